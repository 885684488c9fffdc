"""Checkpoints of a fine-tuning run pruned and evaluated, each in a directory of its own (`step-000300/prune-0.5`, ...)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.data.stored import save_task
from hc_lens.limits import require_different
from hc_lens.origin import Checkpoint, Origin
from hc_lens.pruning import Pruned, PrunedPath, grid_evaluation, open_path, pruned_outcome
from hc_lens.runs import Run, RunError
from hc_lens.sample import Measuring
from hc_lens.sweep.run import run_jobs

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.pruning import PruneConfig
    from hc_lens.subnetwork import Subnetwork
    from hc_lens.sweep.pool import Pool


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
    from hc_lens.train import checkpoints

    found = checkpoints(finetuned)
    have = [checkpoint.step for checkpoint in found]
    require_different("steps", steps or ())
    if steps is not None and (absent := sorted(set(steps) - set(have))):
        raise ValueError(f"{finetuned} has no checkpoint at step {absent[0]}; it has {have}")
    return found if steps is None else [checkpoint for checkpoint in found if checkpoint.step in steps]


def prune_checkpoints_into(
    out: Path,
    task: Task,
    chosen: Sequence[Checkpoint],
    configs: Sequence[PruneConfig],
    seeds: Sequence[int],
    measuring: Measuring | None = None,
    pool: Pool | None = None,
) -> list[AtCheckpoint]:
    """Prune and evaluate each checkpoint at each configuration's sparsity.

    The means are collected anew at every checkpoint: a head's mean output moves with the weights.

    Raises:
        RunError: if `out` holds something else.
        SweepError: if a job failed, naming it and the reason.
    """
    import pandas as pd

    from hc_lens.sweep.pool import Pool
    from hc_lens.sweep.prune_job import PruneJob, split

    how, pool = measuring or Measuring(), pool or Pool()
    sources = _sources(chosen, task, out)
    jobs = [
        PruneJob(sources[checkpoint], at / f"prune-{config.sparsity:g}", at / "means", config, group, how)
        for checkpoint in chosen
        for at in [_place(out, checkpoint)]
        for config in configs
        for group in split(seeds, len(chosen) * len(configs), pool.wanted)
    ]
    run_jobs(out, jobs, pool)
    found: list[AtCheckpoint] = []
    for checkpoint in chosen:
        places = [_place(out, checkpoint) / f"prune-{config.sparsity:g}" for config in configs]
        runs = tuple(pruned_outcome(place, seeds=seeds) for place in places)
        first, *others = [grid_evaluation(each.run, seeds) for each in runs]
        evaluation = pd.concat([first, *(table[table["subnetwork"] != "full"] for table in others)], ignore_index=True)
        found.append(AtCheckpoint(checkpoint.step, runs, evaluation))
    return found


def path_checkpoints_into(
    out: Path,
    task: Task,
    chosen: Sequence[Checkpoint],
    config: PruneConfig,
    grid: Sequence[float],
    seeds: Sequence[int],
    measuring: Measuring | None = None,
    pool: Pool | None = None,
) -> list[PathAtCheckpoint]:
    """Prune each checkpoint once per seed along a rising target, and evaluate the subnetwork at each sparsity of the grid.

    Raises:
        RunError: if `out` holds something else.
        SweepError: if a job failed, naming it and the reason.
    """
    from hc_lens.sweep.pool import Pool
    from hc_lens.sweep.prune_job import PruneJob, split

    how, pool = measuring or Measuring(), pool or Pool()
    sources = _sources(chosen, task, out)
    jobs = [
        PruneJob(sources[checkpoint], at / "prune-path", at / "means", config, group, how, tuple(grid))
        for checkpoint in chosen
        for at in [_place(out, checkpoint)]
        for group in split(seeds, len(chosen), pool.wanted)
    ]
    run_jobs(out, jobs, pool)
    paths = {checkpoint.step: open_path(_place(out, checkpoint) / "prune-path", seeds) for checkpoint in chosen}
    return [PathAtCheckpoint(step, path, grid_evaluation(path.run, seeds)) for step, path in paths.items()]


def over_checkpoints(found: Sequence[AtCheckpoint | PathAtCheckpoint]) -> pd.DataFrame:
    """The evaluations of all checkpoints as one table, with their `step`."""
    import pandas as pd

    return pd.concat([each.evaluation.assign(step=each.step) for each in found], ignore_index=True)


def subnetworks_by_step(found: Sequence[AtCheckpoint]) -> dict[int, list[Subnetwork]]:
    """The subnetworks of each checkpoint, over all its configurations; of those that have any."""
    by_step = {each.step: [sub for run in each.pruned for sub in run.subnetworks] for each in found}
    return {step: subs for step, subs in by_step.items() if subs}


def collapses(found: Sequence[AtCheckpoint | PathAtCheckpoint]) -> list[str]:
    """Which seeds collapsed, and why, at each checkpoint and sparsity where some did: gaps of the tables."""
    runs = [(each.step, run) for each in found for run in ([each.path] if isinstance(each, PathAtCheckpoint) else each.pruned)]
    return [
        f"step {step}, sparsity {'..'.join(f'{target:g}' for target in dict.fromkeys((run.targets[0], run.targets[-1])))}: "
        f"{run.collapse}, which leaves a gap"
        for step, run in runs
        if run.collapse
    ]


def _sources(chosen: Sequence[Checkpoint], task: Task, out: Path) -> dict[Checkpoint, Origin]:
    """The checkpoints with these rows, which are kept in `out` unless the fine-tuning run keeps the same."""
    return {checkpoint: _finetuned(checkpoint, task, out).with_checkpoint(checkpoint) for checkpoint in chosen}


def _finetuned(checkpoint: Checkpoint, task: Task, out: Path) -> Origin:
    try:
        origin = Origin.of(Run.open(checkpoint.finetuned))
        if origin.rows == task.fingerprint:
            return origin
    except RunError:  # of an earlier version
        pass
    place = save_task(task, out / "task")
    return Origin.at(checkpoint.finetuned / "model", place, finetuned=checkpoint.finetuned)


def _place(out: Path, checkpoint: Checkpoint) -> Path:
    return out / f"step-{checkpoint.step:06d}"
