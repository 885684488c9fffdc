"""A pruning run directory: pruned seed by seed, and read back.

It holds `subnetworks/seed-42.safetensors` (with the means once, in `subnetworks/means/`), `gates/`, `history/`, `outcome/`, and
for gates in training `training/`.
"""

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pandas as pd

from hc_lens.forward import Inputs, inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig
from hc_lens.pruning.trained import TrainedGates
from hc_lens.runs import Run, RunError
from hc_lens.stages.seeds import device_name, require_done, train_missing
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class Pruned:
    """A finished pruning run: its directory, configuration, subnetworks in the order of their seeds, and what it warned of.

    `devices` are those that its seeds were trained on, where that is recorded.
    """

    run: Run
    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    warnings: tuple[str, ...]
    devices: tuple[str, ...] = ()

    @property
    def means(self) -> ActivationMeans:
        return self.subnetworks[0].means

    def only(self, seeds: Container[int | None]) -> "Pruned":
        """The same run with the subnetworks of these seeds alone."""
        return replace(self, subnetworks=tuple(sub for sub in self.subnetworks if sub.seed in seeds))

    def with_targets(self, evaluation: pd.DataFrame) -> pd.DataFrame:
        """The evaluation of `subnetworks` with the sparsity that was asked for, as `target`."""
        return evaluation.assign(target=self.config.sparsity)

    def history(self) -> pd.DataFrame:
        """Target, sparsity, loss and multipliers at every step of every seed."""
        tables = [self.run.read_table(f"history/seed-{sub.seed}") for sub in self.subnetworks]
        return pd.concat(tables, ignore_index=True)


def prune_into(
    directory: Path,
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig,
    seeds: Sequence[int],
    *,
    every: float = 30.0,
    origin: Origin | None = None,
) -> Pruned:
    """Prune with every seed that the directory does not hold yet, keeping each group of seeds as soon as it is trained.

    Gates in training are kept `every` so many seconds, and a killed call goes on from them. A directory takes further seeds at
    any time; several processes may train different seeds of it. The result is of these seeds, whatever else it holds. `origin`
    says where model and task lie, so that commands and later calls need only the directory.

    Raises:
        RunError: if the directory holds another run, or another process trains one of the seeds.
        MeansError, PruneError, ValueError: as `prune`.
    """
    encoded = inputs_of(model, data, config.max_length)
    spec = {"config": config.as_dict(), "model": means.model, "data": encoded.fingerprint, "means": means.digest}
    run = Run.at(directory, "prune", spec)
    if origin is not None:
        origin.store(run)
    device = device_name(model)

    def keep(trained: TrainedGates, places: Sequence[int]) -> None:
        last = config.steps - 1
        cut, warnings, history = trained.cut(last, config.sparsity), trained.warnings(last), trained.table()
        for i in places:
            seed = trained.seeds[i]
            run.write_table(f"history/seed-{seed}", history[history["seed"] == seed].reset_index(drop=True))
            run.write_tensors(f"gates/seed-{seed}", {"log_alpha": trained.log_alpha[last][i]})
            run.write_json(f"outcome/seed-{seed}", {"warnings": list(warnings[i]), "device": device})
            cut[i].save(_file(run, seed))  # last: its presence says that the seed is done

    last = config.steps - 1
    train_missing(run, model, encoded, means, config, seeds, [last], partial(_done, run), keep, every=every)
    return _read(run, seeds)


def open_pruned(directory: Path, model: HookedModel | None = None, seeds: Sequence[int] | None = None) -> Pruned:
    """Read a pruning run back, with all its seeds or these; with `model`, refuse one of another model.

    Raises:
        RunError: if the directory is not a pruning run, or some of its seeds are not trained yet.
        SubnetworkError, MeansError: if a subnetwork or its means are absent, damaged, or of another model.
    """
    run = Run.open(directory)
    if run.kind != "prune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a 'prune' run")
    return _read(run, require_done(run, partial(_done, run), seeds), model)


def _read(run: Run, seeds: Sequence[int], model: HookedModel | None = None) -> Pruned:
    subnetworks = tuple(Subnetwork.load(_file(run, seed), model) for seed in seeds)
    outcomes = [cast("dict[str, Any]", run.read_json(f"outcome/seed-{seed}")) for seed in seeds]
    devices = tuple(dict.fromkeys(outcome["device"] for outcome in outcomes))
    config = PruneConfig(**cast("dict[str, Any]", run.spec["config"]))
    return Pruned(run, config, subnetworks, tuple(text for outcome in outcomes for text in outcome["warnings"]), devices)


def _done(run: Run, seed: int) -> bool:
    return _file(run, seed).exists()


def _file(run: Run, seed: int) -> Path:
    return run.file(f"subnetworks/seed-{seed}", "safetensors")
