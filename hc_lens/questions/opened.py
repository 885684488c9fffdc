"""A finished run opened from its directory: what it was made from, what it holds, and what can be asked of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.origin import Origin
from hc_lens.pruning.pruned import pruned_outcome, require_subnetworks
from hc_lens.questions.page import answers_of, run_article
from hc_lens.questions.question import Answer, Question
from hc_lens.questions.subject import Subject
from hc_lens.runs import Run

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.sample import Sample


@dataclass(frozen=True, eq=False)
class OpenRun(Subject):
    """A fine-tuning run, or pruning runs of one model, that can be asked questions; several sparsities are read together."""

    def ask(self, question: Question, sample: Sample | None = None) -> Answer:
        """The answer to a question, kept in the run: asked again, it is read; of other rows or options, measured anew.

        Raises:
            RunError: for a run of another kind, or where what the question builds on is not there yet.
        """
        return question.ask(self, sample)

    def answers(self) -> list[Answer]:
        """The answers that the run holds, in the order of the page."""
        return answers_of(self)

    def tables(self) -> dict[str, pd.DataFrame]:
        """Every table that the run holds, by name."""
        names = {str(file.relative_to(self.home.path).with_suffix("")) for file in self.home.path.rglob("*.parquet")}
        return {name: self.home.read_table(name) for name in sorted(names)}

    def report(self, directory: str | Path | None = None, title: str = "Which subnetworks generalize?") -> Path:
        """Write `report.html` and `report.md` of all that was asked, into the run unless told; returns the page's path.

        Raises:
            RunError: if a pruning run was not evaluated yet, or its core not found.
            OSError: naming the file, when it cannot be written.
        """
        from hc_lens.report import write_article

        return write_article(run_article(self, title=title), self.home.path if directory is None else Path(directory))


def open(run: str | Path, *more: str | Path, device: str = "cpu") -> OpenRun:
    """Open a run directory: a fine-tuning run, or pruning runs of one model, of which the first keeps what is asked.

    Model and rows are loaded onto `device` when they are first needed.

    Raises:
        RunError: if there is no such run, it has not finished, or is of another kind; later, if what it was made from is gone.
        ValueError: for pruning runs of different models, or one given twice.
    """
    first = Run.open(Path(run))
    if first.kind == "finetune":
        if more:
            raise ValueError(f"{run} is a fine-tuning run: it is opened alone")
        return OpenRun((), first, partial(_load, first, device))
    pruned = tuple(pruned_outcome(Path(each)) for each in (run, *more))
    require_subnetworks(pruned)
    return OpenRun(pruned, finetuned_of(first), partial(_load, first, device))


def _load(run: Run, device: str) -> tuple[Classifier, Task]:
    return Origin.of(run).load(device)


def finetuned_of(run: Run) -> Run | None:
    """The fine-tuning run that a run's model is of, if that is known and it is there.

    Raises:
        RunError: if origin.json is damaged.
    """
    if not run.file("origin", "json").exists():
        return None
    place = Origin.of(run).finetuned
    return Run.open(place) if place is not None and (place / "run.json").exists() else None
