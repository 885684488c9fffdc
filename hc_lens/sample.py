"""Which rows are measured, and how: the one description of both that everything which measures takes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hc_lens.limits import require_at_least_one
from hc_lens.precision import Precision, settled

if TYPE_CHECKING:
    from hc_lens.data.task import Task
    from hc_lens.hooks import HookedModel
    from hc_lens.runs import Run


@dataclass(frozen=True)
class Sample:
    """Rows of each case of a task, or of other data, and how they go through a model.

    Attributes:
        max_rows: at most so many random rows of each case, drawn by `seed`; None: all.
        seed: of the rows, and of whatever else is random in a measurement: control sets, shuffled pairs, bootstraps.
        cases: by name, kept as a tuple; None: all.
        max_length: tokens that a pair is cut at, at most the model's own limit. None: that limit; in a run, what it was pruned
            at.
        batch_size: rows in one forward pass.
        precision: of the model's products; "auto" is what is faster on this machine.

    Raises:
        ValueError: for numbers below 1.
    """

    max_rows: int | None = None
    seed: int = 0
    cases: Sequence[str] | None = None
    max_length: int | None = None
    batch_size: int = 64
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        for name in ("max_rows", "max_length", "batch_size"):
            require_at_least_one(name, getattr(self, name))
        if self.cases is not None:
            object.__setattr__(self, "cases", tuple(self.cases))

    def options(self, task: Task) -> dict[str, object]:
        """What of this decides what is measured on a task at one length, JSON-ready; the size of a batch does not."""
        asked: dict[str, object] = {
            "task": task.fingerprint,
            "max_rows": self.max_rows,
            "precision": self.precision,
            "seed": self.seed,
        }
        return asked if self.cases is None else asked | {"cases": list(self.cases)}

    def options_beside(self, length: int | None, task: Task) -> dict[str, object]:
        """The same in a run that cuts pairs at `length`: the sample's own length decides, too, where it is another."""
        asked = self.options(task)
        return asked if self.max_length in (None, length) else asked | {"max_length": self.max_length}

    def settled(self, run: Run, model: HookedModel) -> Sample:
        """The same with the precision that "auto" comes to in a run, under which its tables are kept."""
        return replace(self, precision=settled(run, self.precision, model, self.batch_size))


ALL_ROWS = Sample()
"""Every row of every case."""


@dataclass(frozen=True)
class Measuring:
    """How a pruned model is measured: training rows for the means, rows of each case for the evaluation (None: all)."""

    means_rows: int | None = 10_000
    max_rows: int | None = None
    precision: Precision = "fp32"
    batch_size: int = 64
    seed: int = 0

    def __post_init__(self) -> None:
        require_at_least_one("means_rows", self.means_rows)
        _ = self.sample

    @property
    def sample(self) -> Sample:
        """The rows of the evaluation."""
        return Sample(self.max_rows, self.seed, batch_size=self.batch_size, precision=self.precision)
