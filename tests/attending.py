"""A hooked model whose heads attend by rules that one can write down, on the words of `tiny_tokenizers.bert`."""

from collections.abc import Callable
from types import SimpleNamespace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformers import PreTrainedTokenizerFast

from tests.data import tiny_tokenizers as tiny


class Seen:
    """What a rule sees: ids, token types, and the real positions of a batch."""

    def __init__(self, ids: Int[Tensor, "batch pos"], types: Int[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"]) -> None:
        self.ids, self.types, self.real = ids, types, real
        self.at = torch.arange(ids.shape[1])
        self.visible = real[:, None, :].expand(-1, ids.shape[1], -1)
        self.other_sentence = (types[:, :, None] != types[:, None, :]) & self.visible & ~self.special[:, None, :]

    @property
    def special(self) -> Bool[Tensor, "batch pos"]:
        return (self.ids == 2) | (self.ids == 3)

    def shift(self, by: int) -> Bool[Tensor, "batch query key"]:
        return ((self.at[None, :] - self.at[:, None]) == by) & self.visible


Rule = Callable[[Seen], Bool[Tensor, "batch query key"]]
"""The tokens among which a head spreads its attention evenly; where there are none, it attends to all real tokens."""

RULES: dict[str, Rule] = {
    "overlap": lambda s: s.other_sentence & (s.ids[:, :, None] == s.ids[:, None, :]),
    "previous": lambda s: s.shift(-1),
    "next": lambda s: s.shift(1),
    "separator": lambda s: (s.ids == 3)[:, None, :] & s.visible,
    "first": lambda s: (s.at == 0)[None, None, :] & s.visible,
    "self": lambda s: s.shift(0),
    "uniform": lambda s: s.visible,
    "other sentence": lambda s: s.other_sentence,
}


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.Module()
        self.attn.hook_pattern = HookPoint()


class AttendingModel(HookedRootModule):
    """One layer per dictionary of `RULES`' names: one head for each name, in order."""

    def __init__(self, *layers: tuple[str, ...], tokenizer: PreTrainedTokenizerFast | None = None) -> None:
        super().__init__()
        self.layers = layers
        self.tokenizer = tokenizer or tiny.bert()
        self.cfg = SimpleNamespace(
            n_layers=len(layers), n_heads=len(layers[0]), d_model=1, n_ctx=64, attention_dir="bidirectional"
        )
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.blocks = torch.nn.ModuleList(_Block() for _ in layers)
        self.setup()

    def forward(
        self,
        input_ids: Int[Tensor, "batch pos"],
        attention_mask: Int[Tensor, "batch pos"],
        token_type_ids: Int[Tensor, "batch pos"],
    ) -> Float[Tensor, "batch 2"]:
        seen = Seen(input_ids, token_type_ids, attention_mask.bool())
        for names, block in zip(self.layers, self.blocks, strict=True):
            block.attn.hook_pattern(torch.stack([_pattern(RULES[name], seen) for name in names], dim=1))
        return torch.zeros(len(input_ids), 2)


def _pattern(rule: Rule, seen: Seen) -> Float[Tensor, "batch query key"]:
    among = rule(seen)
    among = torch.where(among.any(-1, keepdim=True), among, seen.visible).float()
    return among / among.sum(-1, keepdim=True)
