"""Every checkpoint of a fine-tuning run pruned and evaluated, each in a directory of its own (`step-000300/prune-0.5`, ...)."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import pandas as pd

from hc_lens.data.task import Task
from hc_lens.forward import Precision
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig
from hc_lens.stages.evaluation import evaluate_into, pruned_evaluation
from hc_lens.stages.means import means_into
from hc_lens.stages.path import PrunedPath, prune_path_into
from hc_lens.stages.pruned import Pruned, prune_into
from hc_lens.subnetwork import Subnetwork
from hc_lens.train import Checkpoint, checkpoints

_T = TypeVar("_T")


@dataclass(frozen=True)
class Measuring:
    """How checkpoints are measured: training rows for the means, rows of each case for the evaluation (None: all)."""

    means_rows: int | None = 10_000
    max_rows: int | None = None
    precision: Precision = "fp32"
    batch_size: int = 64
    seed: int = 0


@dataclass(frozen=True, eq=False)
class AtCheckpoint:
    """The pruning runs of one checkpoint, one per configuration, evaluated."""

    step: int
    pruned: tuple[Pruned, ...]
    evaluation: pd.DataFrame


@dataclass(frozen=True, eq=False)
class PathAtCheckpoint:
    """The rising-target run of one checkpoint, evaluated."""

    step: int
    path: PrunedPath
    evaluation: pd.DataFrame


def chosen_checkpoints(finetuned: Path, steps: Sequence[int] | None = None) -> list[Checkpoint]:
    """The checkpoints of a fine-tuning run, or those at the given steps.

    Raises:
        RunError: if it is not a fine-tuning run.
        ValueError: naming a step without a checkpoint, and those there are.
    """
    found = checkpoints(finetuned)
    have = [checkpoint.step for checkpoint in found]
    if steps is not None and (absent := sorted(set(steps) - set(have))):
        raise ValueError(f"{finetuned} has no checkpoint at step {absent[0]}; it has {have}")
    return found if steps is None else [checkpoint for checkpoint in found if checkpoint.step in steps]


def prune_checkpoints_into(
    out: Path,
    model: Classifier,
    task: Task,
    chosen: Sequence[Checkpoint],
    configs: Sequence[PruneConfig],
    seeds: Sequence[int],
    measuring: Measuring | None = None,
) -> list[AtCheckpoint]:
    """Prune and evaluate each checkpoint at each configuration's sparsity; the model ends with the last one's weights.

    The means are collected anew at every checkpoint: a head's mean output moves with the weights.

    Raises:
        RunError: if `out` holds something else, or another process works on it.
        PruneError, MeansError, ValueError: as `prune_into`.
    """
    how = measuring or Measuring()

    def at(directory: Path, step: int, means: ActivationMeans) -> AtCheckpoint:
        runs = tuple(prune_into(directory / f"prune-{c.sparsity:g}", model, task.train, means, c, seeds) for c in configs)
        for run in runs:
            _evaluated(run, model, task, how, step)
        return AtCheckpoint(step, runs, pruned_evaluation(runs))

    return _at_each(out, model, task, chosen, configs[0].max_length, how, at)


def path_checkpoints_into(
    out: Path,
    model: Classifier,
    task: Task,
    chosen: Sequence[Checkpoint],
    config: PruneConfig,
    grid: Sequence[float],
    seeds: Sequence[int],
    measuring: Measuring | None = None,
) -> list[PathAtCheckpoint]:
    """Prune each checkpoint once per seed along a rising target, and evaluate the subnetwork at each sparsity of the grid.

    Raises:
        RunError: if `out` holds something else, or another process works on it.
        PruneError, MeansError, ValueError: as `prune_path_into`.
    """
    how = measuring or Measuring()

    def at(directory: Path, step: int, means: ActivationMeans) -> PathAtCheckpoint:
        path = prune_path_into(directory / "prune-path", model, task.train, means, config, grid, seeds)
        return PathAtCheckpoint(step, path, _evaluated(path, model, task, how, step))

    return _at_each(out, model, task, chosen, config.max_length, how, at)


def over_checkpoints(found: Sequence[AtCheckpoint | PathAtCheckpoint]) -> pd.DataFrame:
    """The evaluations of all checkpoints as one table, with their `step`."""
    return pd.concat([each.evaluation.assign(step=each.step) for each in found], ignore_index=True)


def subnetworks_by_step(found: Sequence[AtCheckpoint]) -> dict[int, list[Subnetwork]]:
    """The subnetworks of each checkpoint, over all its configurations."""
    return {each.step: [sub for run in each.pruned for sub in run.subnetworks] for each in found}


def _evaluated(run: Pruned | PrunedPath, model: Classifier, task: Task, how: Measuring, step: int) -> pd.DataFrame:
    return evaluate_into(
        run,
        model,
        task,
        max_rows=how.max_rows,
        batch_size=how.batch_size,
        precision=how.precision,
        seed=how.seed,
        trained=step > 0,  # an untrained checkpoint has no label order to check
    )


def _at_each(
    out: Path,
    model: Classifier,
    task: Task,
    chosen: Sequence[Checkpoint],
    max_length: int,
    how: Measuring,
    at: Callable[[Path, int, ActivationMeans], _T],
) -> list[_T]:
    found: list[_T] = []
    for checkpoint in chosen:
        checkpoint.load_into(model)
        directory = out / f"step-{checkpoint.step:06d}"
        means = means_into(directory / "means", model, task.train, rows=how.means_rows, max_length=max_length)
        found.append(at(directory, checkpoint.step, means))
    return found
