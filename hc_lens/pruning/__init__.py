"""Prune a frozen model with hard-concrete gates: many seeds in one call, each a subnetwork that imitates the full model."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from hc_lens.data.batches import Encoded
from hc_lens.forward import Inputs, inputs_of
from hc_lens.gates import undecided
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.cut import cut, history_table, require_no_collapse
from hc_lens.pruning.objective import Loss, imitation
from hc_lens.pruning.path import PathResult, prune_path
from hc_lens.pruning.result import PruneResult, warnings_for
from hc_lens.pruning.training import HISTORY, GateTraining, PruneError, data_order, runs_together, train_gates

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
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds: needs at least one, all different, got {list(seeds)}")
    means.require_model(model)
    encoded = inputs_of(model, data, config.max_length)
    orders = {seed: data_order(encoded, config, seed) for seed in seeds}
    if loss is None:
        loss = imitation(model, encoded, config, list(orders.values()))
    together = runs_together(model, encoded, config)
    gates: list[Tensor] = []
    histories: list[Tensor] = []
    for start in range(0, len(seeds), together):
        chunk = list(seeds[start : start + together])
        training = GateTraining(model, encoded, means, config, chunk, loss, [orders[seed] for seed in chunk])
        gates += train_gates(training, [config.steps - 1], f"prune {config.sparsity:g}, seeds {chunk[0]}..{chunk[-1]}")
        histories.append(training.history.cpu())
    return _result(config, seeds, means, encoded, torch.cat(gates), torch.cat(histories, dim=1))


def _result(
    config: PruneConfig,
    seeds: Sequence[int],
    means: ActivationMeans,
    encoded: Encoded,
    log_alpha: Float[Tensor, "run layer unit"],
    history: Float[Tensor, "step run column"],
) -> PruneResult:
    tail = max(1, config.steps // 50)  # the draws' sparsity is noisy: the last 2 % of the steps say where a run ended
    ended = history[-tail:, :, HISTORY.index("sparsity")].mean(0).tolist()
    for run, seed in enumerate(seeds):
        require_no_collapse(seed, log_alpha[run], config)
    subnetworks = cut(log_alpha, config.sparsity, ended, config=config, seeds=seeds, means=means, encoded=encoded)
    warnings = tuple(
        text
        for seed, trained, share in zip(seeds, ended, undecided(log_alpha).tolist(), strict=True)
        for text in warnings_for(seed, config, trained, share)
    )
    return PruneResult(config, subnetworks, log_alpha, history_table(seeds, history), warnings)
