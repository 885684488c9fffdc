"""Prune a frozen model with hard-concrete gates: many seeds in one call, each a subnetwork that imitates the full model."""

from collections.abc import Sequence

from hc_lens.forward import Inputs
from hc_lens.gates import undecided
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss
from hc_lens.pruning.path import PathResult, prune_path
from hc_lens.pruning.result import PruneResult, warnings_for
from hc_lens.pruning.trained import train_seeds
from hc_lens.pruning.training import GateTraining, PruneError

__all__ = ["GateTraining", "Loss", "PathResult", "PruneConfig", "PruneError", "PruneResult", "prune", "prune_path"]


def prune(
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig | None = None,
    seeds: Sequence[int] = range(42, 54),
    loss: Loss | None = None,
) -> PruneResult:
    """Train hard-concrete gates on the frozen model, one run per seed, and cut each to a subnetwork.

    The method is that of The Heuristic Core, section 4.

    Args:
        data: a split, encoded rows, or, for a plain language model, token ids `Int[Tensor, "row pos"]`.
        loss: from the model's output and the batch to a value per row, to be minimised; default KL(full model || gated model).

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN, or if a run's gates all ended open or all closed.
        ValueError: without seeds, or for a model whose output the default loss does not fit.
    """
    config = config or PruneConfig()
    last = config.steps - 1
    trained = train_seeds(model, data, means, config, seeds, loss, [last], f"prune {config.sparsity:g}")
    log_alpha = trained.log_alpha[last]
    warnings = tuple(
        text
        for seed, sparsity, share in zip(seeds, trained.sparsity(last), undecided(log_alpha).tolist(), strict=True)
        for text in warnings_for(seed, config, sparsity, share)
    )
    return PruneResult(config, trained.cut(last, config.sparsity), log_alpha, trained.table(), warnings)
