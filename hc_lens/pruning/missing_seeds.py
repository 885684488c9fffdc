"""The seeds of a pruning run: trained in groups, each kept as soon as it is done; several processes may share a run.

A run directory takes more seeds at any time: what it was asked for so far is in `seeds.json`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from hc_lens.data.batches import Encoded
from hc_lens.forward import device_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.precision import settled
from hc_lens.pruning import GateCheckpoints, PruneConfig
from hc_lens.pruning.keeping import Keeping
from hc_lens.pruning.objective import imitation
from hc_lens.pruning.outcomes import ask, asked_seeds
from hc_lens.pruning.trained import TrainedGates, train_seeds
from hc_lens.pruning.training import data_order, runs_together
from hc_lens.runs import Run


@dataclass(frozen=True)
class Leaves:
    """What training a seed leaves in a run.

    Attributes:
        cuts: the steps, counted from 0, whose gates are wanted.
        done: whether everything that a seed leaves is there.
        keep: writes seeds that were trained together; those whose gates collapsed, too: that is an outcome.
    """

    cuts: Sequence[int]
    done: Callable[[int], bool]
    keep: Callable[[TrainedGates], None]


def train_missing(
    run: Run,
    model: HookedModel,
    encoded: Encoded,
    means: ActivationMeans,
    config: PruneConfig,
    seeds: Sequence[int],
    leaves: Leaves,
    keeping: Keeping,
) -> None:
    """Train the seeds that are not done, as many together as the memory allows, and keep each group when it is.

    Where the configuration's precision is auto, the run decides once what that is. The gates of a group in training are kept
    in `training/`.

    Raises:
        BusyError: if another process trains one of the seeds.
        PruneError: if a loss is NaN.
    """
    ask(run, seeds)
    try:
        kind = settled(run, config.precision, model, config.batch_size, config.max_length, keeping.auto)
        config = replace(config, precision=kind)
        missing = [seed for seed in seeds if not leaves.done(seed)]
        _train(run, model, encoded, means, config, missing, leaves, GateCheckpoints(run.path / "training", keeping.every))
    finally:
        with run.locked("seeds", "finished", wait=True):
            if not run.finished and all(map(leaves.done, asked_seeds(run))):
                run.finish()


def _train(
    run: Run,
    model: HookedModel,
    encoded: Encoded,
    means: ActivationMeans,
    config: PruneConfig,
    missing: Sequence[int],
    leaves: Leaves,
    checkpoints: GateCheckpoints,
) -> None:
    groups = _groups(checkpoints, missing, runs_together(model, encoded, config))
    if not groups:
        return
    # The full model's predictions, computed once for all groups.
    loss = imitation(model, encoded, config, [data_order(encoded, config, seed) for group in groups for seed in group])
    for group in groups:
        with run.locked(*(f"seed-{seed}" for seed in group)):
            trained = train_seeds(model, encoded, means, config, group, loss, leaves.cuts, checkpoints)
            leaves.keep(trained.only([seed for seed in group if not leaves.done(seed)]))
            checkpoints.discard(group)


def _groups(checkpoints: GateCheckpoints, missing: Sequence[int], together: int) -> list[tuple[int, ...]]:
    """Groups that an earlier process left in training, whole: alone, a seed's bits would differ. Then the others."""
    begun = [group for group in checkpoints.groups() if set(group) & set(missing)]
    rest = [seed for seed in missing if not any(seed in group for group in begun)]
    return [*begun, *(tuple(rest[start : start + together]) for start in range(0, len(rest), together))]


def device_name(model: HookedModel) -> str:
    """What trains: `cpu`, or the GPU's name."""
    device = device_of(model)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
