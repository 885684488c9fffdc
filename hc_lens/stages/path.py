"""A rising-target pruning run as a run directory: one run per seed, a subnetwork at each sparsity of its grid."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd

from hc_lens.data.task import Task
from hc_lens.forward import Inputs, Precision, inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, prune_path
from hc_lens.runs import Run, RunError
from hc_lens.stages.kept import remembered
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class PrunedPath:
    """A finished rising-target run: `subnetworks` are those of each sparsity of the grid, in the order of the seeds."""

    run: Run
    config: PruneConfig
    subnetworks: Mapping[float, tuple[Subnetwork, ...]]


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
    subnetworks = {target: tuple(Subnetwork.load(_file(run, seed, target)) for seed in seeds) for target in grid}
    return PrunedPath(run, PruneConfig(**cast("dict[str, Any]", run.spec["config"])), subnetworks)


def evaluate_path_into(
    path: PrunedPath,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
    seed: int = 0,
    trained: bool = True,
) -> pd.DataFrame:
    """The evaluation table of all subnetworks of a rising-target run, with their `target`; kept as `evaluation.parquet`."""
    subs = [sub for of_target in path.subnetworks.values() for sub in of_target]

    def compute() -> pd.DataFrame:
        table = evaluate(
            model,
            task,
            subs,
            max_rows=max_rows,
            max_length=path.config.max_length,
            batch_size=batch_size,
            seed=seed,
            trained=trained,
            precision=precision,
        )
        per_model = len(table) // (len(subs) + 1)
        targets = [float("nan"), *(cast(float, sub.provenance["target"]) for sub in subs)]  # the full model has none
        return table.assign(target=np.repeat(targets, per_model))

    options = {"task": task.fingerprint, "max_rows": max_rows, "precision": precision, "seed": seed}
    return remembered(path.run, "evaluation", options, compute)


def _file(run: Run, seed: int, target: float) -> Path:
    return run.file(f"subnetworks/seed-{seed}-at-{target:g}", "safetensors")
