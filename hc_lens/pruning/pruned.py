"""A pruning run directory: pruned seed by seed, and read back.

It holds `subnetworks/seed-42.safetensors` (with the means once, in `subnetworks/means/`), `gates/`, `history/`, `outcome/`
(which says of a seed without a subnetwork how its gates collapsed), and for gates in training `training/`.
"""

from __future__ import annotations

import math
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hc_lens.pruning import PruneConfig
from hc_lens.pruning.advice import Ended, collapse_told, warnings_of
from hc_lens.pruning.keeping import ALONE, Keeping
from hc_lens.pruning.outcomes import (
    asked_seeds,
    collapse_of,
    collapsed_seeds,
    device_of_seed,
    kept_outcome,
    record_outcome,
    require_done,
)
from hc_lens.runs import Run, RunError

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.forward import Inputs
    from hc_lens.hooks import HookedModel
    from hc_lens.means import ActivationMeans
    from hc_lens.pruning.trained import TrainedGates
    from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class Pruned:
    """A finished pruning run: its directory, configuration, subnetworks in the order of their seeds, and what it warned of.

    `devices` are those that its seeds were trained on, where that is recorded; `collapsed` says why some seeds gave no
    subnetwork.
    """

    run: Run
    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    warnings: tuple[str, ...]
    devices: tuple[str, ...] = ()
    collapsed: Mapping[int, str] = field(default_factory=dict[int, str])

    @property
    def means(self) -> ActivationMeans:
        return self.subnetworks[0].means

    @property
    def targets(self) -> tuple[float, ...]:
        """The sparsity that was asked for."""
        return (self.config.sparsity,)

    @property
    def collapse(self) -> str:
        """Which seeds collapsed, and why; empty if none did."""
        return collapse_told(self.collapsed, len(self.subnetworks) + len(self.collapsed)) if self.collapsed else ""

    def only(self, seeds: Container[int | None]) -> Pruned:
        """The same run with the subnetworks of these seeds alone."""
        return replace(self, subnetworks=tuple(sub for sub in self.subnetworks if sub.seed in seeds))

    def with_targets(self, evaluation: pd.DataFrame) -> pd.DataFrame:
        """The evaluation of `subnetworks` with the sparsity that was asked for, as `target`; the full model has none."""
        return evaluation.assign(target=self.config.sparsity).assign(
            target=lambda table: table["target"].where(table["subnetwork"] != "full")
        )

    def history(self) -> pd.DataFrame:
        """Target, sparsity, loss and multipliers at every step of every seed, of those that collapsed last."""
        import pandas as pd

        seeds = [*(sub.seed for sub in self.subnetworks), *self.collapsed]
        return pd.concat([self.run.read_table(f"history/seed-{seed}") for seed in seeds], ignore_index=True)


def prune_into(
    directory: Path,
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig,
    seeds: Sequence[int],
    keeping: Keeping = ALONE,
) -> Pruned:
    """Prune with every seed that the directory does not hold yet, keeping each group of seeds as soon as it is trained.

    A killed call goes on from the gates in training. A directory takes further seeds at any time; several processes may train
    different seeds of it. The result is of these seeds, whatever else it holds. A seed whose gates all end open, or all closed,
    has no subnetwork; that is kept, and it is not trained again.

    Raises:
        RunError: if the directory holds another run, or another process trains one of the seeds.
        MeansError, PruneError, ValueError: as `prune`.
    """
    from hc_lens.forward import inputs_of
    from hc_lens.pruning.missing_seeds import Leaves, device_name, train_missing

    encoded = inputs_of(model, data, config.max_length)
    spec = {"config": config.as_dict(), "model": means.model, "data": encoded.fingerprint, "means": means.digest}
    run = Run.at(directory, "prune", spec)
    if keeping.origin is not None:
        keeping.origin.store(run)
    device = device_name(model)

    last = config.steps - 1

    def keep(trained: TrainedGates) -> None:
        collapsed, history = trained.collapsed(), trained.table()
        alive = trained.only([seed for seed in trained.seeds if seed not in collapsed])
        cuts = dict(zip(alive.seeds, alive.cut(last, config.sparsity), strict=True))
        for i, seed in enumerate(trained.seeds):
            run.write_table(f"history/seed-{seed}", history[history["seed"] == seed].reset_index(drop=True))
            run.write_tensors(f"gates/seed-{seed}", {"log_alpha": trained.log_alpha[last][i]})
            record_outcome(run, seed, device, collapsed.get(seed))
            if seed in cuts:
                cuts[seed].save(_file(run, seed))

    train_missing(run, model, encoded, means, config, seeds, Leaves([last], partial(_whole, run), keep), keeping)
    if any(_file(run, seed).exists() for seed in seeds):
        means.save(_file(run, seeds[0]).parent / "means")  # they are there, unless somebody deleted them
    return _read(run, seeds)


def open_pruned(directory: Path, model: HookedModel | None = None, seeds: Sequence[int] | None = None) -> Pruned:
    """Read a pruning run back, with all its seeds or these; with `model`, refuse one of another model.

    Raises:
        RunError: if the directory is not a pruning run, some of its seeds are not trained yet, or all of them collapsed.
        SubnetworkError, MeansError: if a subnetwork or its means are absent, damaged, or of another model.
    """
    pruned = pruned_outcome(directory, model, seeds)
    require_subnetworks([pruned])
    return pruned


def require_subnetworks(pruned: Sequence[Pruned]) -> None:
    """Check that one of these runs has a subnetwork at least.

    Raises:
        RunError: saying how all seeds collapsed.
    """
    if not any(each.subnetworks for each in pruned):
        told = "; ".join(f"{each.run.path}: {'; '.join(each.warnings)}" for each in pruned)
        raise RunError(f"{told}; {kept_outcome(pruned[0].run, list(pruned[0].collapsed))}")


def pruned_outcome(directory: Path, model: HookedModel | None = None, seeds: Sequence[int] | None = None) -> Pruned:
    """`open_pruned` for a grid, of which a cell may be empty: no subnetworks where all seeds collapsed.

    Raises:
        RunError, SubnetworkError, MeansError: as `open_pruned`.
    """

    run = Run.open(directory)
    if run.kind != "prune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a 'prune' run")
    return _read(run, require_done(run, partial(_done, run), seeds), model)


def _read(run: Run, seeds: Sequence[int], model: HookedModel | None = None) -> Pruned:
    from hc_lens.subnetwork import Subnetwork

    collapsed = collapsed_seeds(run, seeds)
    subnetworks = tuple(Subnetwork.load(_file(run, seed), model) for seed in seeds if seed not in collapsed)
    devices = dict.fromkeys(device for seed in seeds if (device := device_of_seed(run, seed)) is not None)
    config = PruneConfig(**cast("dict[str, Any]", run.spec["config"]))
    warnings = warnings_of(config, [*map(_ended, subnetworks), *(_none_from(seed, collapsed) for seed in collapsed)])
    return Pruned(run, config, subnetworks, warnings, tuple(devices), collapsed)


def _ended(sub: Subnetwork) -> Ended:
    told = cast("dict[str, float]", sub.provenance)  # what is not told there cannot be warned of
    return Ended(cast(int, sub.seed), told.get("trained_sparsity", math.nan), told.get("undecided", math.nan))


def _none_from(seed: int, collapsed: Mapping[int, str]) -> Ended:
    return Ended(seed, math.nan, math.nan, collapsed[seed])


def _done(run: Run, seed: int) -> bool:
    """Whether a seed can be read: earlier versions left less beside its subnetworks."""
    return _file(run, seed).exists() or collapse_of(run, seed) is not None


def is_whole(directory: Path, seeds: Sequence[int]) -> bool:
    """Whether a pruning run was asked for these seeds and everything that training them leaves is there."""
    run = Run.open(directory)
    return set(seeds) <= set(asked_seeds(run)) and all(_whole(run, seed) for seed in seeds)


def _whole(run: Run, seed: int) -> bool:
    """Whether everything that training a seed leaves is there; what was deleted is made again."""
    if collapse_of(run, seed) is not None:
        return True
    names = {f"history/seed-{seed}": "parquet", f"gates/seed-{seed}": "safetensors", f"outcome/seed-{seed}": "json"}
    return _file(run, seed).exists() and all(run.file(name, suffix).exists() for name, suffix in names.items())


def _file(run: Run, seed: int) -> Path:
    return run.file(f"subnetworks/seed-{seed}", "safetensors")
