"""What the commands over a sparsity grid share: how it is chosen, made from a fine-tuning run, and drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import Common, PoolChoice, Seeds, TaskChoice
from hc_lens.cli.origin import Start
from hc_lens.cli.prune_options import PruneOptions
from hc_lens.runs import atomic_path, digest
from hc_lens.stages import Measuring
from hc_lens.sweep import (
    AtCheckpoint,
    PathAtCheckpoint,
    chosen_checkpoints,
    collapses,
    over_checkpoints,
    path_checkpoints_into,
    prune_checkpoints_into,
)

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from hc_lens.origin import Checkpoint


@dataclass(frozen=True)
class PruneChoice:
    """How checkpoints are pruned and measured."""

    seeds: Seeds = (42, 43, 44)
    """One subnetwork each, at every checkpoint and sparsity: 42..44, or a list."""
    pruning: tyro.conf.OmitArgPrefixes[PruneOptions] = field(default_factory=PruneOptions)
    means_rows: Count | None = 10_000
    """Random training rows that the stand-ins are collected on, anew for every checkpoint; None for all."""
    max_rows: Count | None = None
    """Rows of each case when evaluating; all by default."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them, and permutations where there are some."""
    batch_size: Count = 64
    """Rows in one forward pass when evaluating."""
    pool: tyro.conf.OmitArgPrefixes[PoolChoice] = field(default_factory=PoolChoice)

    @property
    def measuring(self) -> Measuring:
        """The rows for means and evaluation."""
        return Measuring(means_rows=self.means_rows, max_rows=self.max_rows, batch_size=self.batch_size, seed=self.seed)


@dataclass(frozen=True)
class GridChoice(PruneChoice):
    """Which sparsities, besides how they are pruned and measured."""

    sparsities: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Shares of units to remove."""
    path: bool = False
    """One run per seed whose target rises through all sparsities, in place of a run for each: far cheaper, and not the same."""

    def ascending(self) -> list[float]:
        """The sparsities in order.

        Raises:
            ValueError: if there are none, one comes twice, or the preset cannot cut along a path.
        """
        if not self.sparsities or len(set(self.sparsities)) != len(self.sparsities):
            raise ValueError(f"--sparsities: at least one, all different, got {list(self.sparsities)}")
        if self.path and self.pruning.preset == "paper":
            raise ValueError(
                "--path cuts exactly (top-k) as the target rises, which the preset paper does not: drop one of them"
            )
        return sorted(self.sparsities)


@dataclass(frozen=True)
class Gridded:
    """Where the pruning runs of a grid are, and their evaluations with `step` and `target`."""

    directory: Path
    evaluation: pd.DataFrame


def checkpoints_of(finetuned: str, command: str, steps: Sequence[int] | None = None) -> list[Checkpoint]:
    """The checkpoints of a fine-tuning run, or those at the given steps.

    Raises:
        RunError: if it is not a fine-tuning run.
        ValueError: if none is named, or a step has no checkpoint.
    """
    if not finetuned:
        raise ValueError(f"no FINETUNED given: name a fine-tuning run (see hc-lens {command} --help)")
    return chosen_checkpoints(Path(finetuned), steps)


def prune_grid(command: str, finetuned: str, chosen: Sequence[Checkpoint], choice: GridChoice, common: Common) -> Gridded:
    """Prune the chosen checkpoints of a fine-tuning run at every sparsity, and evaluate.

    Raises:
        RunError: if it has not finished.
        ValueError: for a choice that cannot be pruned.
    """
    pool = choice.pool.on(common.device)
    sparsities = choice.ascending()
    configs = [choice.pruning.config(sparsity) for sparsity in sparsities]
    task = Start.find(finetuned, TaskChoice()).task
    recipe = {
        "model": finetuned,
        "steps": [checkpoint.step for checkpoint in chosen],
        "path": choice.path,
        "configs": [config.as_dict() for config in configs],
        "means_rows": choice.means_rows,
    }
    directory = common.out or Path("runs") / f"{command}-{digest(recipe)[:12]}"
    runs = len(chosen) * len(choice.seeds) * (1 if choice.path else len(sparsities))
    output.say(f"{runs} pruning runs: checkpoints {recipe['steps']} of {finetuned}, on {pool.device}")
    if choice.path:
        paths = path_checkpoints_into(directory, task, chosen, configs[-1], sparsities, choice.seeds, choice.measuring, pool)
        return _told(directory, paths)
    pruned = prune_checkpoints_into(directory, task, chosen, configs, choice.seeds, choice.measuring, pool)
    return _told(directory, pruned)


def _told(directory: Path, found: Sequence[AtCheckpoint | PathAtCheckpoint]) -> Gridded:
    for text in collapses(found):
        output.say(f"warning: {text}")
    return Gridded(directory, over_checkpoints(found))


def keep_figure(drawn: go.Figure, directory: Path, name: str) -> None:
    """Write a figure as `directory/name.html`, which needs no network to open."""
    file = directory / f"{name}.html"
    with atomic_path(file) as temporary:
        drawn.write_html(temporary, include_plotlyjs=True)
    output.say(f"figure in {file}")
