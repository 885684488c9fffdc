"""What gates minimise: a divergence from the full model, or any per-row loss, plus the Lagrangian that holds the sparsity."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hc_lens.data.batches import Batch, Encoded
from hc_lens.forward import device_of, dtype_of, mode, run_batch
from hc_lens.hooks import HookedModel
from hc_lens.models import fused
from hc_lens.precision import resolve
from hc_lens.pruning.config import PruneConfig

Loss = Callable[[Tensor, Batch], Tensor]
"""From the model's output and the batch to a loss for each row: Float[Tensor, " batch"]."""


def kl_divergence(teacher: Float[Tensor, "batch label"], student: Float[Tensor, "batch label"]) -> Float[Tensor, " batch"]:
    """KL(teacher || student) of each row, in nats, from log-probabilities."""
    return (teacher.exp() * (teacher - student)).sum(-1)


@torch.no_grad()
def kl_to_full(
    model: HookedModel,
    encoded: Encoded,
    rows: Int[Tensor, " row"],
    batch_size: int = 128,
    dtype: torch.dtype | None = None,
) -> Loss:
    """The loss KL(full model || gated model) at temperature 1, in nats, for batches of these rows.

    The full model's log-probabilities are computed here, once, without dropout whatever mode the model is in.

    Raises:
        ValueError: for a model whose output is not one row of class logits per row of the batch.
    """
    device = device_of(model)
    teacher: Tensor | None = None
    order = rows[encoded.lengths[rows].argsort(descending=True, stable=True)]
    with mode(model, training=False), fused(model, dtype=dtype, narrow=True):
        for part in order.split(batch_size):
            logits = run_batch(model, encoded.batch(part).to(device))
            if logits.ndim != 2:
                raise ValueError(
                    f"{type(model).__name__} returns {tuple(logits.shape)}, not (batch, label) logits: "
                    "give prune a loss(output, batch) that returns one value per row"
                )
            if teacher is None:
                teacher = torch.full((len(encoded), logits.shape[1]), torch.nan, device=device)
            teacher[part.to(device)] = logits.float().log_softmax(-1)
    assert teacher is not None
    known = teacher

    def loss(output: Tensor, batch: Batch) -> Tensor:
        return kl_divergence(known[batch.rows], output.float().log_softmax(-1))

    return loss


def imitation(model: HookedModel, encoded: Encoded, config: PruneConfig, orders: Sequence[Int[Tensor, "micro batch"]]) -> Loss:
    """`kl_to_full` for the rows that these data orders visit, in the configuration's precision: what `prune` minimises."""
    visited = torch.unique(torch.cat([order.flatten() for order in orders]))
    return kl_to_full(model, encoded, visited, dtype=dtype_of(resolve(config.precision, model)))


def lagrangian(target: float, sparsity: Float[Tensor, " run"], multipliers: Float[Tensor, "run 2"]) -> Float[Tensor, " run"]:
    """lambda1 (t - s) + lambda2 (t - s)^2: minimised over the gates, maximised over lambda (The Heuristic Core, appendix A)."""
    gap = target - sparsity
    return multipliers[:, 0] * gap + multipliers[:, 1] * gap**2
