"""One job of a sweep: some seeds of one model pruned at one sparsity, or along a grid of them, and evaluated."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hc_lens.origin import Origin
from hc_lens.precision import Resolved, choose, products_of, settle
from hc_lens.pruning import (
    Keeping,
    PruneConfig,
    Pruned,
    PrunedPath,
    evaluate_into,
    grid_evaluation,
    means_into,
    open_path,
    prune_into,
    prune_path_into,
    pruned_outcome,
)
from hc_lens.pruning.collected_means import means_are_kept
from hc_lens.pruning.pruned import is_whole
from hc_lens.pruning.pruned_path import is_whole_path
from hc_lens.runs import Run
from hc_lens.sample import Measuring

if TYPE_CHECKING:
    import pandas as pd
    import torch

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier


@dataclass(frozen=True)
class PruneJob:
    """What a worker does at a time.

    Attributes:
        directory: the pruning run, which may hold other seeds, too.
        means: the run of the stand-ins.
        grid: sparsities to cut at along one run with a rising target; None for one run at `config.sparsity`.
        sweep: the directory of the sweep, which decides once for all its jobs what precision "auto" comes to.
    """

    source: Origin
    directory: Path
    means: Path
    config: PruneConfig
    seeds: tuple[int, ...]
    measuring: Measuring
    grid: tuple[float, ...] | None = None
    sweep: Path | None = None

    @property
    def title(self) -> str:
        """The job in a few words."""
        at = f"{self.config.sparsity:g}" if self.grid is None else f"{self.grid[0]:g}..{self.grid[-1]:g}"
        seeds = str(self.seeds[0]) if len(self.seeds) == 1 else f"{self.seeds[0]}..{self.seeds[-1]}"
        step = "" if self.source.step is None else f", step {self.source.step}"
        return f"{Path(self.source.model).parent.name}{step}, sparsity {at}, seed {seeds}"

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        """Collect means, train, evaluate: whatever of it is not there yet.

        Raises:
            BusyError: if another process trains one of the seeds.
            Exception: whatever goes wrong in one of the steps.
        """
        model, task = _loaded(self.source, device)
        length = self.config.max_length
        means = means_into(self.means, model, task.train, rows=self.measuring.means_rows, max_length=length)
        keeping = Keeping(self.source, every, self._auto(model))
        run: Pruned | PrunedPath
        if self.grid is None:
            run = prune_into(self.directory, model, task.train, means, self.config, self.seeds, keeping)
        else:
            run = prune_path_into(self.directory, model, task.train, means, self.config, self.grid, self.seeds, keeping)
        trained = self.source.step != 0  # an untrained checkpoint has no label order to check
        evaluate_into(run, model, task, self.measuring.sample, trained=trained)

    def whole(self) -> bool:
        """Whether its means, its subnetworks and their evaluation are there."""
        try:
            self.table()
            self.result()
            kept = is_whole if self.grid is None else is_whole_path
            told = all(Run.open(self.directory).file(name, "json").exists() for name in ("origin", "task"))
            return told and kept(self.directory, self.seeds) and means_are_kept(self.means)
        except ValueError:  # absent or damaged: doing it again says which
            return False

    def result(self) -> Pruned | PrunedPath:
        """What the job has left: its own seeds of the pruning run.

        Raises:
            RunError: if it is not done, or its directory damaged.
        """
        return pruned_outcome(self.directory, seeds=self.seeds) if self.grid is None else open_path(self.directory, self.seeds)

    def table(self) -> pd.DataFrame:
        """The evaluation of its subnetworks beside the full model, with `model`, `step` and `model_path`.

        `model` is the name of the fine-tuning run, or of the model. A seed that collapsed has rows without accuracy.

        Raises:
            RunError: as `result`.
        """
        name = Path(self.source.finetuned or self.source.model).name
        return grid_evaluation(Run.open(self.directory), self.seeds).assign(
            model=name, step=self.source.step, model_path=str(self.source.model)
        )

    def _auto(self, model: Classifier) -> Resolved | None:
        """What precision "auto" comes to in the sweep: decided by the job that first needs it."""
        from hc_lens.forward import device_of

        if self.sweep is None or self.config.precision != "auto":
            return None
        products = products_of(model, self.config.batch_size, self.config.max_length)
        return settle(Run.open(self.sweep), lambda: choose(lambda: products, device_of(model)))

    def spec(self, base: Path) -> dict[str, object]:
        """The job as JSON, with places relative to `base`."""
        return {
            "source": self.source.as_json(base),
            "directory": os.path.relpath(self.directory, base),
            "means": os.path.relpath(self.means, base),
            "config": self.config.as_dict(),
            "seeds": list(self.seeds),
            "measuring": asdict(self.measuring),
            "grid": None if self.grid is None else list(self.grid),
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> PruneJob:
        """The job that `spec` describes.

        Raises:
            KeyError, TypeError: for anything else.
        """
        grid = cast("list[float] | None", spec["grid"])
        return cls(
            source=Origin.from_json(cast("dict[str, object]", spec["source"]), base),
            directory=Path(os.path.normpath(base / cast(str, spec["directory"]))),
            means=Path(os.path.normpath(base / cast(str, spec["means"]))),
            config=PruneConfig(**cast("dict[str, Any]", spec["config"])),
            seeds=tuple(cast("list[int]", spec["seeds"])),
            measuring=Measuring(**cast("dict[str, Any]", spec["measuring"])),
            grid=None if grid is None else tuple(grid),
            sweep=base,
        )


@lru_cache(maxsize=1)
def _loaded(source: Origin, device: torch.device) -> tuple[Classifier, Task]:
    """Kept in the process for the next job of the same source."""
    return source.load(device)


def split(seeds: Sequence[int], jobs: int, workers: int) -> list[tuple[int, ...]]:
    """The seeds in groups: one where there are `jobs` enough for all workers, else more, of nearly equal size."""
    n = min(len(seeds), -(-workers // jobs))
    return [tuple(int(seed) for seed in part) for part in np.array_split(np.array(seeds), n)]
