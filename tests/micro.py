"""A hooked model small enough to work out by hand: every unit writes its activation, weighted, straight into the logits."""

from types import SimpleNamespace

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint


class MicroBlock(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = torch.nn.Module()
        self.attn.hook_z = HookPoint()
        self.hook_mlp_out = HookPoint()


class MicroModel(HookedRootModule):
    """Two layers, two heads, one-dimensional heads and residual stream.

    Unit u of layer l turns token t into `values[l, u, t]` (unit 2 is the MLP); the logits are
    (sum over units and real positions of weights[l, u] * activation, 0).
    """

    def __init__(self, values: Float[Tensor, "layer unit vocab"], weights: Float[Tensor, "layer unit"]) -> None:
        super().__init__()
        n_layers, n_units, _ = values.shape
        self.cfg = SimpleNamespace(n_layers=n_layers, n_heads=n_units - 1, d_head=1, d_model=1, n_ctx=16)
        self.values = torch.nn.Parameter(values)
        self.weights = torch.nn.Parameter(weights)
        self.blocks = torch.nn.ModuleList(MicroBlock() for _ in range(n_layers))
        self.unused = HookPoint()
        self.setup()

    def forward(
        self, input_ids: Int[Tensor, "batch pos"], attention_mask: Int[Tensor, "batch pos"]
    ) -> Float[Tensor, "batch 2"]:
        total = torch.zeros(input_ids.shape, device=input_ids.device)
        for layer, block in enumerate(self.blocks):
            activation = self.values[layer][:, input_ids]
            z = block.attn.hook_z(activation[:-1].permute(1, 2, 0).unsqueeze(-1))
            mlp = block.hook_mlp_out(activation[-1].unsqueeze(-1))
            total = total + (z.squeeze(-1) * self.weights[layer, :-1]).sum(-1) + mlp.squeeze(-1) * self.weights[layer, -1]
        score = (total * attention_mask).sum(1)
        return torch.stack([score, torch.zeros_like(score)], dim=1)


def micro_model() -> MicroModel:
    """Token 0 gives 0 everywhere; token 1 gives unit u of layer l the value 10 l + u + 1; token 2 twice that."""
    base = torch.tensor([[1.0, 2.0, 3.0], [11.0, 12.0, 13.0]])
    values = torch.stack([torch.zeros_like(base), base, 2 * base], dim=-1)
    return MicroModel(values, torch.tensor([[1.0, -1.0, 0.5], [0.1, 0.2, -0.1]]))
