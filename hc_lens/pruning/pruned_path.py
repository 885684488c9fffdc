"""A rising-target pruning run as a run directory: one run per seed, a subnetwork at each sparsity of its grid."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hc_lens.pruning import PruneConfig
from hc_lens.pruning.advice import collapse_told
from hc_lens.pruning.keeping import ALONE, Keeping
from hc_lens.pruning.outcomes import asked_seeds, collapse_of, collapsed_seeds, record_outcome, require_done
from hc_lens.runs import Run, RunError

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.forward import Inputs
    from hc_lens.hooks import HookedModel
    from hc_lens.means import ActivationMeans
    from hc_lens.pruning.trained import TrainedGates
    from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class PrunedPath:
    """A finished rising-target run: `by_target` are the subnetworks of each sparsity of the grid, in the order of the seeds.

    `collapsed` says, by seed, why some gave none.
    """

    run: Run
    config: PruneConfig
    by_target: Mapping[float, tuple[Subnetwork, ...]]
    collapsed: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def subnetworks(self) -> tuple[Subnetwork, ...]:
        """All of them, one sparsity after the other."""
        return tuple(sub for subs in self.by_target.values() for sub in subs)

    @property
    def targets(self) -> tuple[float, ...]:
        """The sparsities that were asked for."""
        return tuple(self.by_target)

    @property
    def collapse(self) -> str:
        """Which seeds collapsed, and why; empty if none did."""
        alive = {sub.seed for sub in self.subnetworks}
        return collapse_told(self.collapsed, len(alive) + len(self.collapsed)) if self.collapsed else ""

    def only(self, seeds: Container[int | None]) -> PrunedPath:
        """The same run with the subnetworks of these seeds alone."""
        return replace(self, by_target={t: tuple(s for s in subs if s.seed in seeds) for t, subs in self.by_target.items()})

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
    keeping: Keeping = ALONE,
) -> PrunedPath:
    """Prune along the grid with every seed that the directory does not hold yet; resumes and grows as `prune_into` does.

    Raises:
        RunError: if the directory holds another run, or another process trains one of the seeds.
        MeansError, PruneError, ValueError: as `prune_path`.
    """
    from hc_lens.forward import inputs_of
    from hc_lens.pruning.missing_seeds import Leaves, device_name, train_missing
    from hc_lens.pruning.path import cut_steps, require_grid

    require_grid(grid, config)
    encoded = inputs_of(model, data, config.max_length)
    spec = {
        "config": config.as_dict(),
        "grid": list(grid),
        "model": means.model,
        "data": encoded.fingerprint,
        "means": means.digest,
    }
    run = Run.at(directory, "prune-path", spec)
    if keeping.origin is not None:
        keeping.origin.store(run)
    steps = cut_steps(config, grid)

    device = device_name(model)

    def keep(trained: TrainedGates) -> None:
        collapsed, history = trained.collapsed(), trained.table()
        alive = trained.only([seed for seed in trained.seeds if seed not in collapsed])
        cuts = {
            target: dict(zip(alive.seeds, alive.cut(step, target), strict=True))
            for step, target in zip(steps, grid, strict=True)
        }
        for seed in trained.seeds:
            run.write_table(f"history/seed-{seed}", history[history["seed"] == seed].reset_index(drop=True))
            record_outcome(run, seed, device, collapsed.get(seed))
            for target, subs in cuts.items() if seed not in collapsed else ():
                subs[seed].save(_file(run, seed, target))

    train_missing(run, model, encoded, means, config, seeds, Leaves(steps, partial(_whole, run), keep), keeping)
    if any(_file(run, seed, grid[0]).exists() for seed in seeds):
        means.save(_file(run, seeds[0], grid[0]).parent / "means")  # they are there, unless somebody deleted them
    return _read(run, seeds)


def open_path(directory: Path, seeds: Sequence[int] | None = None) -> PrunedPath:
    """Read a rising-target run back, with all its seeds or these; without subnetworks if all of them collapsed.

    Raises:
        RunError: if the directory is not a run of this kind, or some of its seeds are not trained yet.
        SubnetworkError, MeansError: if a subnetwork or its means are absent or damaged.
    """

    run = Run.open(directory)
    if run.kind != "prune-path":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a 'prune-path' run")
    return _read(run, require_done(run, partial(_done, run), seeds))


def _read(run: Run, seeds: Sequence[int]) -> PrunedPath:
    from hc_lens.subnetwork import Subnetwork

    collapsed = collapsed_seeds(run, seeds)
    alive = [seed for seed in seeds if seed not in collapsed]
    by_target = {target: tuple(Subnetwork.load(_file(run, seed, target)) for seed in alive) for target in _grid(run)}
    return PrunedPath(run, PruneConfig(**cast("dict[str, Any]", run.spec["config"])), by_target, collapsed)


def _grid(run: Run) -> list[float]:
    return cast("list[float]", run.spec["grid"])


def _done(run: Run, seed: int) -> bool:
    """Whether a seed can be read: earlier versions left less beside its subnetworks."""
    return all(_file(run, seed, target).exists() for target in _grid(run)) or collapse_of(run, seed) is not None


def is_whole_path(directory: Path, seeds: Sequence[int]) -> bool:
    """Whether a rising-target run was asked for these seeds and everything that training them leaves is there."""
    run = Run.open(directory)
    return set(seeds) <= set(asked_seeds(run)) and all(_whole(run, seed) for seed in seeds)


def _whole(run: Run, seed: int) -> bool:
    """Whether everything that training a seed leaves is there; what was deleted is made again."""
    if collapse_of(run, seed) is not None:
        return True
    names = {f"history/seed-{seed}": "parquet", f"outcome/seed-{seed}": "json"}
    kept = all(run.file(name, suffix).exists() for name, suffix in names.items())
    return kept and all(_file(run, seed, target).exists() for target in _grid(run))


def _file(run: Run, seed: int, target: float) -> Path:
    return run.file(f"subnetworks/seed-{seed}.at-{target:g}", "safetensors")
