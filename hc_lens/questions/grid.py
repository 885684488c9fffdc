"""Checkpoints of a fine-tuning run pruned at every sparsity with every seed: what several questions are about."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.pruning import PruneConfig
from hc_lens.sample import Measuring, Sample
from hc_lens.sweep import (
    AtCheckpoint,
    Pool,
    chosen_checkpoints,
    collapses,
    over_checkpoints,
    path_checkpoints_into,
    prune_checkpoints_into,
)

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.origin import Checkpoint
    from hc_lens.questions.subject import Subject


@dataclass(frozen=True)
class Grid:
    """Which checkpoints are pruned, and how.

    Attributes:
        configs: one for each sparsity.
        seeds: one subnetwork each, at every checkpoint and sparsity.
        steps: of the checkpoints; all of them where none is named.
        path: one run for each seed whose target rises through all sparsities, by the last configuration.
        means_rows: random training rows that the stand-ins are collected on, anew for every checkpoint; None for all.
        directory: where the pruning runs lie; in `grid/` of the fine-tuning run by default.
    """

    configs: tuple[PruneConfig, ...] = tuple(PruneConfig.desk(share / 10) for share in range(1, 10))
    seeds: tuple[int, ...] = (42, 43, 44)
    steps: tuple[int, ...] = ()
    path: bool = False
    means_rows: int | None = 10_000
    directory: Path | None = None
    pool: Pool = field(default_factory=Pool, compare=False)

    def spec(self) -> dict[str, object]:
        """What decides the pruning runs, JSON-ready."""
        return {
            "configs": [config.as_dict() for config in self.configs],
            "seeds": list(self.seeds),
            "steps": list(self.steps),
            "path": self.path,
            "means_rows": self.means_rows,
        }

    def checkpoints(self, run: Subject) -> list[Checkpoint]:
        """The checkpoints chosen.

        Raises:
            ValueError: naming a step without a checkpoint, and those there are.
        """
        return chosen_checkpoints(run.place("finetune").path, self.steps or None)

    def pruned(self, run: Subject, sample: Sample) -> list[AtCheckpoint]:
        """Every checkpoint pruned at each sparsity, and evaluated; what is there already is read.

        Raises:
            SweepError: if a job failed, naming it and the reason.
        """
        chosen, place = self.checkpoints(run), self._place(run)
        return prune_checkpoints_into(place, run.task, chosen, self.configs, self.seeds, self._measuring(sample), self.pool)

    def evaluated(self, run: Subject, sample: Sample) -> pd.DataFrame:
        """The evaluation of every subnetwork beside the full model's, with `step` and `target`; a collapsed seed is a gap.

        Raises:
            SweepError: as `pruned`.
        """
        if not self.path:
            found = self.pruned(run, sample)
            _warn(collapses(found))
            return over_checkpoints(found)
        sparsities = [config.sparsity for config in self.configs]
        chosen, how = self.checkpoints(run), self._measuring(sample)
        paths = path_checkpoints_into(
            self._place(run), run.task, chosen, self.configs[-1], sparsities, self.seeds, how, self.pool
        )
        _warn(collapses(paths))
        return over_checkpoints(paths)

    def _place(self, run: Subject) -> Path:
        return self.directory or run.place("finetune").path / "grid"

    def _measuring(self, sample: Sample) -> Measuring:
        return Measuring(self.means_rows, sample.max_rows, sample.precision, sample.batch_size, sample.seed)


def _warn(told: Sequence[str]) -> None:
    for text in told:
        warnings.warn(text, stacklevel=3)


def grid_options(run: Subject, sample: Sample, grid: Grid) -> Mapping[str, object]:
    """The options of a question about a grid.

    Raises:
        ValueError: for a sample of some cases, or of a length: runs are evaluated whole, at the length that they are pruned at.
    """
    asked = run.options(sample)
    if other := [f"{name}={asked[name]}" for name in ("cases", "max_length") if name in asked]:
        raise ValueError(f"a grid is evaluated on every case, at the length that it is pruned at: leave out {other[0]}")
    return asked | {"grid": grid.spec()}
