"""A rising-target pruning run as a run directory: one run per seed, a subnetwork at each sparsity of its grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from hc_lens.forward import Inputs, inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.pruning import PruneConfig, prune_path
from hc_lens.runs import Run, RunError
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class PrunedPath:
    """A finished rising-target run: `by_target` are the subnetworks of each sparsity of the grid, in the order of the seeds."""

    run: Run
    config: PruneConfig
    by_target: Mapping[float, tuple[Subnetwork, ...]]

    @property
    def subnetworks(self) -> tuple[Subnetwork, ...]:
        """All of them, one sparsity after the other."""
        return tuple(sub for subs in self.by_target.values() for sub in subs)

    def with_targets(self, evaluation: pd.DataFrame) -> pd.DataFrame:
        """The evaluation of `subnetworks` with the sparsity that each was cut at, as `target`; the full model has none."""
        targets = [float("nan"), *(target for target, subs in self.by_target.items() for _ in subs)]
        return evaluation.assign(target=np.repeat(targets, len(evaluation) // len(targets)))


def prune_path_into(
    directory: Path,
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig,
    grid: Sequence[float],
    seeds: Sequence[int],
) -> PrunedPath:
    """Prune along the grid with every seed that the directory does not hold yet, keeping each as soon as it is trained.

    Raises:
        RunError: if the directory holds another run, or another process works on it.
        MeansError, PruneError, ValueError: as `prune_path`.
    """
    spec = {
        "config": config.as_dict(),
        "grid": list(grid),
        "seeds": list(seeds),
        "model": means.model,
        "data": inputs_of(model, data, config.max_length).fingerprint,
        "means": means.digest,
    }
    run = Run.at(directory, "prune-path", spec)
    with run.locked():
        missing = [seed for seed in seeds if not _file(run, seed, grid[-1]).exists()]
        for seed in missing:
            result = prune_path(model, data, means, config, grid, (seed,))
            run.write_table(f"history/seed-{seed}", result.history)
            for target, (sub,) in result.subnetworks.items():  # the last one's file says that the seed is done
                sub.save(_file(run, seed, target))
        if not run.finished:
            run.finish()
    return open_path(directory)


def open_path(directory: Path) -> PrunedPath:
    """Read a rising-target run back.

    Raises:
        RunError: if the directory is not a finished run of this kind.
        SubnetworkError, MeansError: if a subnetwork or its means are absent or damaged.
    """
    run = Run.open(directory)
    if run.kind != "prune-path" or not run.finished:
        raise RunError(f"{directory} holds a {run.kind!r} run, finished: {run.finished}; a finished 'prune-path' run is needed")
    seeds, grid = cast("list[int]", run.spec["seeds"]), cast("list[float]", run.spec["grid"])
    by_target = {target: tuple(Subnetwork.load(_file(run, seed, target)) for seed in seeds) for target in grid}
    return PrunedPath(run, PruneConfig(**cast("dict[str, Any]", run.spec["config"])), by_target)


def _file(run: Run, seed: int, target: float) -> Path:
    return run.file(f"subnetworks/seed-{seed}-at-{target:g}", "safetensors")
