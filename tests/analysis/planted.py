"""A hooked classifier whose ablation effects are chosen: base margins per word, a weight per head, one interaction."""

from types import SimpleNamespace

import torch
from jaxtyping import Float
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformers import PreTrainedTokenizerFast

from hc_lens.data.batches import Batch
from hc_lens.data.task import Split, Task
from hc_lens.units import Head

N_LAYERS, N_HEADS = 3, 4
A, B = Head(0, 1), Head(1, 2)
"""The two heads that interact."""

WORDS = ("[PAD]", "[CLS]", "[SEP]", "yes", "no", "filler", *(f"m{i}" for i in range(10)))


def tokenizer() -> PreTrainedTokenizerFast:
    made = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="filler"))
    made.pre_tokenizer = WhitespaceSplit()
    made.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 1), ("[SEP]", 2)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="[PAD]", cls_token="[CLS]", sep_token="[SEP]", unk_token="filler"
    )


class _Block(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.Module()
        self.attn.hook_z = HookPoint()
        self.hook_mlp_out = HookPoint()


class PlantedClassifier(HookedRootModule):
    """The word `m3` gives the answer that follows ("yes" or "no") a log-odds margin of 3.5 in the full model.

    Every head's context vector is 1. With zero ablation a head h costs `weights[h]` of every row's margin, and the heads A
    and B together cost `interaction` more than both alone. MLPs do nothing.
    """

    def __init__(
        self,
        weights: dict[Head, float],
        interaction: float = 0.0,
        label_names: tuple[str, ...] = ("yes", "no"),
    ) -> None:
        super().__init__()
        self.cfg = SimpleNamespace(n_layers=N_LAYERS, n_heads=N_HEADS, d_head=1, d_model=1, n_ctx=32)
        self.label_names = label_names
        self.tokenizer = tokenizer()
        self.pad_id = 0
        self.max_length = 32
        self.weights = torch.nn.Parameter(torch.zeros(N_LAYERS, N_HEADS))
        for head, weight in weights.items():
            self.weights.data[head.layer, head.index] = weight
        self.interaction = torch.nn.Parameter(torch.tensor(interaction))
        self.dropout = torch.nn.Dropout()
        self.blocks = torch.nn.ModuleList(_Block() for _ in range(N_LAYERS))
        self.calls = 0
        self.setup()

    def forward(self, batch: Batch) -> Float[Tensor, "batch label"]:
        self.calls += 1
        ids = batch.input_ids
        z = []
        for block in self.blocks:
            z.append(block.attn.hook_z(torch.ones(*ids.shape, N_HEADS, 1))[:, 0, :, 0])
            block.hook_mlp_out(torch.zeros(*ids.shape, 1))
        kept = torch.stack(z, dim=1)  # batch layer head
        first_m = WORDS.index("m0")
        base = torch.where(ids >= first_m, ids - first_m + 0.5, 0).sum(1)
        lost = ((1 - kept) * self.weights).sum((1, 2))
        both = (1 - kept[:, A.layer, A.index]) * (1 - kept[:, B.layer, B.index])
        margin = self.dropout(base - lost - self.interaction * both)
        yes = (ids == WORDS.index("yes")).any(1)
        logits = {"yes": torch.where(yes, margin, 0), "no": torch.where(yes, 0, margin)}
        return torch.stack([logits[name] for name in self.label_names], dim=1)


def split(name: str, words: list[str], answers: list[str]) -> Split:
    """One row per word; every other row is longer, so that batches are mixed."""
    return Split(
        name=name,
        first=tuple(word + " filler" * (i % 3) for i, word in enumerate(words)),
        second=tuple(answers),
        labels=tuple(("yes", "no").index(answer) for answer in answers),
        label_names=("yes", "no"),
        collapse=(0, 1),
    )


def planted_task() -> Task:
    """In-domain `dev` is balanced; out-of-domain `ood` is always "no", and each margin 0.5 .. 9.5 comes once."""
    words = [f"m{i}" for i in range(10)]
    dev = split("dev", words * 2, ["yes", "no"] * 10)
    return Task("planted", ("yes", "no"), dev, {"dev": dev}, {"ood": split("ood", words, ["no"] * 10)})
