"""A hooked model in which it is known who reads whom, and a BERT whose heads say enough to be heard by later ones."""

from collections.abc import Mapping
from types import SimpleNamespace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformers import BertConfig

from hc_lens.units import Head, Mlp, Unit
from tests.analysis.planted import WORDS

N_LAYERS, N_HEADS = 3, 2

LOUD_BERT = BertConfig(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=32,
    vocab_size=len(WORDS),
    initializer_range=0.4,
)


class RelayModel(HookedRootModule):
    """Three layers of two heads and an MLP, all one-dimensional.

    A unit's activation is `values[unit][token]` plus `reads[unit][other]` times what each earlier unit gives, after its hooks.
    Units in neither give 0. The output is the mean activation of the last layer's heads over the real positions.
    """

    def __init__(self, values: Mapping[Unit, list[float]], reads: Mapping[Unit, Mapping[Unit, float]]) -> None:
        super().__init__()
        self.cfg = SimpleNamespace(n_layers=N_LAYERS, n_heads=N_HEADS, d_head=1, d_model=1, n_ctx=16)
        self.values = values
        self.reads = reads
        self.unit_weights = torch.nn.Parameter(torch.zeros(1))
        self.blocks = torch.nn.ModuleList(torch.nn.Module() for _ in range(N_LAYERS))
        for block in self.blocks:
            block.attn = torch.nn.Module()
            block.attn.hook_z = HookPoint()
            block.hook_mlp_out = HookPoint()
        self.setup()

    def forward(
        self, input_ids: Int[Tensor, "batch pos"], attention_mask: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 1"]:
        given: dict[Unit, Tensor] = {}

        def activation(unit: Unit) -> Tensor:
            total = torch.tensor(self.values.get(unit, [0.0] * 3))[input_ids]
            return total + sum(weight * given[other] for other, weight in self.reads.get(unit, {}).items())

        for layer, block in enumerate(self.blocks):
            heads = [Head(layer, index) for index in range(N_HEADS)]
            z = block.attn.hook_z(torch.stack([activation(head) for head in heads], dim=-1).unsqueeze(-1))
            given |= {head: z[:, :, head.index, 0] for head in heads}
            given[Mlp(layer)] = block.hook_mlp_out(activation(Mlp(layer)).unsqueeze(-1))[..., 0]
        last = given[Head(N_LAYERS - 1, 0)] + given[Head(N_LAYERS - 1, 1)]
        return ((last * attention_mask).sum(1) / attention_mask.sum(1))[:, None]
