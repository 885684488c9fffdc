"""Hard-concrete gates over a model's units, and the edits that put gate values into a model.

The distribution is that of Louizos, Welling and Kingma (2018), equations 10-13, with the constants of The Heuristic Core
(appendix A). Gate tensors are `Float[Tensor, "run layer unit"]`: several runs share one forward pass, and unit `n_heads` of a
layer is its MLP.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.hooks import Edit, HookFunction, mlp_point, positionwise, z_point
from hc_lens.means import ActivationMeans

UNDECIDED = 1.6
"""|log_alpha| below this: neither P(g = 0) nor P(g = 1) passes one half, the two crossing it at -1.5986 and +1.5986."""


@dataclass(frozen=True)
class HardConcrete:
    """The hard-concrete distribution of a gate with location `log_alpha`.

    s = sigmoid((ln u - ln(1 - u) + log_alpha) / beta) with u ~ U(eps, 1 - eps), stretched to (gamma, zeta), clipped to [0, 1].
    """

    beta: float = 2 / 3
    gamma: float = -0.1
    zeta: float = 1.1
    eps: float = 1e-6

    def noise(
        self, shape: tuple[int, ...], generator: torch.Generator, device: torch.device | None = None
    ) -> Float[Tensor, "*gates"]:
        """u ~ U(eps, 1 - eps), drawn on the generator's device (the CPU, so that CPU and CUDA runs see the same draws)."""
        u = torch.rand(shape, generator=generator, device=generator.device)
        return (self.eps + (1 - 2 * self.eps) * u).to(device or generator.device)

    def sample(self, log_alpha: Float[Tensor, "*gates"], u: Float[Tensor, "*gates"]) -> Float[Tensor, "*gates"]:
        """Gate values in [0, 1] for uniform noise `u`, differentiable in `log_alpha`."""
        s = torch.sigmoid((torch.log(u) - torch.log1p(-u) + log_alpha) / self.beta)
        return (s * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)

    def p_closed(self, log_alpha: Float[Tensor, "*gates"]) -> Float[Tensor, "*gates"]:
        """P(g = 0) = sigmoid(beta ln(-gamma / zeta) - log_alpha)."""
        return torch.sigmoid(self.beta * math.log(-self.gamma / self.zeta) - log_alpha)

    def p_open(self, log_alpha: Float[Tensor, "*gates"]) -> Float[Tensor, "*gates"]:
        """P(g > 0) = 1 - P(g = 0): each gate's part of the expected L0 norm (Louizos et al., equation 12)."""
        return 1 - self.p_closed(log_alpha)

    def deterministic(self, log_alpha: Float[Tensor, "*gates"]) -> Float[Tensor, "*gates"]:
        """The gate without noise: sigmoid(log_alpha) stretched and clipped (Louizos et al., equation 13)."""
        return (torch.sigmoid(log_alpha) * (self.zeta - self.gamma) + self.gamma).clamp(0, 1)


def gate_edits(means: ActivationMeans, gates: Float[Tensor, "run layer unit"]) -> list[Edit]:
    """Edits that gate every unit, x' = mu + g (x - mu), with run r's gates on the r-th of `run` equal parts of the batch.

    A gate of 1 keeps the activation, 0 puts its reference value (the mean, by default) in its place. Gradients flow to `gates`.

    Raises:
        ValueError: if the gates are not those of a model with the means' layers and heads.
    """
    expected = (means.n_layers, means.n_heads + 1)
    if tuple(gates.shape[1:]) != expected:
        raise ValueError(f"gates have {tuple(gates.shape[1:])} (layer, unit); these means belong to a model with {expected}")
    runs = gates.shape[0]
    edits: list[Edit] = []
    for layer in range(means.n_layers):
        heads, mlp = gates[:, layer, : means.n_heads], gates[:, layer, means.n_heads]
        gate_heads = _gated(means.head_reference(layer), rearrange(heads, "run head -> run 1 1 head 1"), runs)
        gate_mlp = _gated(means.mlp_reference(layer), rearrange(mlp, "run -> run 1 1 1"), runs)
        edits.append(Edit(z_point(layer), positionwise(gate_heads, when=means.positionwise)))
        edits.append(Edit(mlp_point(layer), positionwise(gate_mlp, when=means.positionwise)))
    return edits


def _gated(reference: HookFunction, gate: Float[Tensor, "run *broadcast"], runs: int) -> HookFunction:
    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        # The gate and its product stay in the gate's dtype (fp32) under autocast; the activation's dtype is what goes on.
        mu = reference(activation, hook=hook)
        if activation.shape[0] % runs:
            raise ValueError(f"a batch of {activation.shape[0]} rows does not split into {runs} equal runs")
        x = activation.unflatten(0, (runs, -1))
        mu = mu.unflatten(0, (runs, -1)) if mu.ndim == activation.ndim else mu
        return torch.lerp(mu.to(gate.dtype).expand_as(x), x.to(gate.dtype), gate).flatten(0, 1).to(activation.dtype)

    return hook


def top_k(log_alpha: Float[Tensor, "run layer unit"], sparsity: float) -> Bool[Tensor, "run layer unit"]:
    """Keep the `n - round(sparsity n)` units with the largest log_alpha of each run: the target is hit exactly."""
    n = log_alpha[0].numel()
    keep = n - round(sparsity * n)
    order = log_alpha.flatten(1).argsort(dim=1, descending=True, stable=True)
    mask = torch.zeros_like(order, dtype=torch.bool).scatter(1, order[:, :keep], True)
    return mask.view_as(log_alpha)


def two_stage(
    log_alpha: Float[Tensor, "run layer unit"], n_heads: int, sparsity: float, concrete: HardConcrete
) -> Bool[Tensor, "run layer unit"]:
    """Cut gates by the paper's rule: the expected number of closed gates closes, then whatever scores at most tau.

    A score is sigmoid(1.2 log_alpha). In each layer tensor, which is one layer's heads or one layer's MLP, the
    n0 = round(sum P(g = 0)) smallest scores close; of the rest, over all layers, scores above tau stay. tau is chosen for each
    run from a grid of 101 points in [0, 1]: the one whose realised sparsity is nearest the target.
    """
    score = torch.sigmoid(1.2 * log_alpha)
    survivors = torch.cat(
        [
            _all_but_expected_closed(log_alpha[..., part], score[..., part], concrete)
            for part in (slice(0, n_heads), slice(n_heads, None))
        ],
        dim=-1,
    )
    taus = torch.linspace(0, 1, 101, device=score.device, dtype=score.dtype)
    masks = survivors & (score > taus.view(-1, 1, 1, 1))
    error = (1 - masks.flatten(2).to(score.dtype).mean(2) - sparsity).abs()
    best: Int[Tensor, " run"] = error.argmin(0)
    return masks[best, torch.arange(score.shape[0], device=score.device)]


def _all_but_expected_closed(
    log_alpha: Float[Tensor, "run layer part"], score: Float[Tensor, "run layer part"], concrete: HardConcrete
) -> Bool[Tensor, "run layer part"]:
    closed = concrete.p_closed(log_alpha).sum(-1, keepdim=True).round()
    rank = score.argsort(dim=-1, stable=True).argsort(dim=-1)
    return rank >= closed


Discretisation = Literal["top_k", "two_stage"]


def discretise(
    log_alpha: Float[Tensor, "run layer unit"], sparsity: float, rule: Discretisation, concrete: HardConcrete | None = None
) -> Bool[Tensor, "run layer unit"]:
    """Hard masks of trained gates, by exact top-k (default for new work) or the paper's two stages (parity)."""
    if rule == "top_k":
        return top_k(log_alpha, sparsity)
    return two_stage(log_alpha, log_alpha.shape[-1] - 1, sparsity, concrete or HardConcrete())


def undecided(log_alpha: Float[Tensor, "*runs layer unit"]) -> Float[Tensor, "*runs"]:
    """Share of gates with |log_alpha| < 1.6."""
    return (log_alpha.abs() < UNDECIDED).flatten(-2).to(log_alpha.dtype).mean(-1)
