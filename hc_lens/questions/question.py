"""A question that can be asked of a run: what it measures, what the numbers answer, and how both are shown."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

from hc_lens.cache import read, remembered_tables
from hc_lens.sample import Sample
from hc_lens.tables import require_columns

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.report import Finding, Section

Tables = Mapping[str, "pd.DataFrame"]
"""Tables by name: that of the file that a run keeps each in."""


class Question(ABC):
    """What can be asked of a run: an analysis and its figures bound together; a frozen dataclass whose fields are its options.

    Attributes:
        name: of the question on the command line, and its sections' anchor.
        tables: the tables that answer it, kept in the run in files of these names; the first one's is that of their options.
        of: the kind of run that keeps them, a pruning run or the fine-tuning run that it is of.
        columns: those that its tables need to be told of and shown, by table.
        sample: what it is measured on where nobody says.
    """

    name: ClassVar[str]
    tables: ClassVar[tuple[str, ...]]
    of: ClassVar[Literal["prune", "finetune"]] = "prune"
    columns: ClassVar[Mapping[str, Sequence[str]]] = {}
    sample: ClassVar[Sample] = Sample()

    @abstractmethod
    def measure(self, run: Subject, sample: Sample) -> Tables:
        """The tables, computed."""

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        """What decides the tables, JSON-ready: kept ones are of exactly these, or measured anew."""
        return run.options(sample)

    def findings(self, answer: Answer) -> list[Finding]:
        """What the tables show by a rule, if there is one."""
        return []

    def unmeasured(self) -> list[Finding]:
        """What a page says where a run was not asked; nothing, as a rule."""
        return []

    def short(self, answer: Answer) -> str:
        """The answer in half a sentence, without capital and full stop."""
        return "; ".join(finding.short for finding in answer.findings)

    def sentence(self, answer: Answer) -> str:
        """What to say at length besides, if there is something."""
        return ""

    def sections(self, answer: Answer) -> list[Section]:
        """The figures and tables of a page, each with a heading that says what it shows."""
        return []

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        """The answer: the kept tables if they are of the same options, else measured and kept.

        Raises:
            RunError: for a run of another kind, or where what the question builds on is not there yet.
        """
        sample = run.settled(self.sample if sample is None else sample)
        options = self.options(run, sample)
        found = remembered_tables(run.place(self.of), self.tables, options, lambda: self.measure(run, sample))
        return Answer(self, dict(zip(self.tables, found, strict=True)), options)

    def kept(self, run: Subject) -> Answer | None:
        """The answer that the run holds, of whatever options; None where it was not asked."""
        place = run.finetuned if self.of == "finetune" else run.home
        found = None if place is None else read(place, *self.tables)
        if found is None:
            return None
        options, tables = found
        return Answer(self, dict(zip(self.tables, tables, strict=True)), cast("dict[str, object]", options))


@cache
def every_question() -> tuple[type[Question], ...]:
    """The questions in the order of the page, which is that of the package's stub."""
    from hc_lens import questions

    lines = ast.parse(Path(__file__).with_name("__init__.pyi").read_text()).body
    names = [alias.name for line in lines if isinstance(line, ast.ImportFrom) for alias in line.names]
    found = (getattr(questions, name) for name in names)
    return tuple(each for each in found if isinstance(each, type) and issubclass(each, Question))


@dataclass(frozen=True, eq=False)
class Answer:
    """The tables that answer a question, and the options that they are of; in a notebook it shows itself.

    Raises:
        ValueError: for a table without a column that the question needs, naming both.
    """

    question: Question
    tables: Tables
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        for name, columns in self.question.columns.items():
            if name in self.tables:
                require_columns(self.tables[name], columns, f"the {name} table")

    @cached_property
    def findings(self) -> list[Finding]:
        return self.question.findings(self)

    @cached_property
    def sections(self) -> list[Section]:
        return self.question.sections(self)

    @property
    def short(self) -> str:
        """The answer in half a sentence."""
        return self.question.short(self)

    @property
    def sentence(self) -> str:
        """What is said at length besides; empty if nothing is."""
        return self.question.sentence(self)

    def __getitem__(self, table: str) -> pd.DataFrame:
        return self.tables[table]

    def __repr__(self) -> str:
        return f"{type(self.question).__name__}: {self.short}"

    def _repr_html_(self) -> str:
        from hc_lens.report.page import fragment

        return fragment(self.short, self.sections)
