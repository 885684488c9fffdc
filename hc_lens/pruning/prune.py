"""Pruning to one sparsity."""

from collections.abc import Sequence
from dataclasses import replace

from hc_lens.forward import Inputs
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.precision import resolve_asked
from hc_lens.pruning.checkpoint import GateCheckpoints
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss
from hc_lens.pruning.result import PruneResult
from hc_lens.pruning.trained import train_seeds


def prune(
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig | None = None,
    seeds: Sequence[int] = range(42, 54),
    loss: Loss | None = None,
    checkpoints: GateCheckpoints | None = None,
) -> PruneResult:
    """Train hard-concrete gates on the frozen model, one run per seed, and cut each to a subnetwork.

    A seed whose gates all end open, or all closed, gives none: it is in `PruneResult.collapsed`, and the others are kept.
    The method is that of The Heuristic Core, section 4.

    Args:
        data: a split, encoded rows, or, for a plain language model, token ids `Int[Tensor, "row pos"]`.
        loss: from the model's output and the batch to a value per row, to be minimised; default KL(full model || gated model).
        checkpoints: where gates in training are kept, for the same call to go on from; a directory for each loss.

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN, or if the gates of every run all ended open or all closed.
        ValueError: without seeds, or for a model whose output the default loss does not fit.
    """
    config = config or PruneConfig()
    last = config.steps - 1
    computed = replace(config, precision=resolve_asked(config.precision, model, config.batch_size, config.max_length))
    trained = train_seeds(model, data, means, computed, seeds, loss, [last], checkpoints)
    alive = trained.alive()
    return PruneResult(
        config,
        alive.cut(last, config.sparsity),
        alive.log_alpha[last],
        trained.table(),
        trained.warnings(),
        trained.collapsed(),
    )
