"""The rows that a step measures on, and what of that decides its tables."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hc_lens.limits import require_at_least_one
from hc_lens.precision import Precision, settled

if TYPE_CHECKING:
    from hc_lens.data.task import Task
    from hc_lens.hooks import HookedModel
    from hc_lens.runs import Run


@dataclass(frozen=True)
class Rows:
    """Which rows a step measures on, and how: `max_rows` random ones of each case (None: all), drawn by `seed`."""

    max_rows: int | None
    seed: int = 0
    batch_size: int = 64
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        require_at_least_one("max_rows", self.max_rows)
        require_at_least_one("batch_size", self.batch_size)

    def settled(self, run: Run, model: HookedModel) -> Rows:
        """The same rows, with the precision that "auto" comes to in a run: tables are kept under it."""
        return replace(self, precision=settled(run, self.precision, model, self.batch_size))

    def options(self, task: Task) -> dict[str, object]:
        """What decides the values, JSON-ready; the size of a batch does not."""
        return {"task": task.fingerprint, "max_rows": self.max_rows, "precision": self.precision, "seed": self.seed}


@dataclass(frozen=True)
class Measuring:
    """How a pruned model is measured: training rows for the means, rows of each case for the evaluation (None: all)."""

    means_rows: int | None = 10_000
    max_rows: int | None = None
    precision: Precision = "fp32"
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("means_rows", "max_rows", "batch_size"):
            require_at_least_one(name, getattr(self, name))
