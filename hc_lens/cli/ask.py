"""`hc-lens ask`: any question, of a run; and what the commands that ask one question share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import tyro

from hc_lens.cli import Command, output
from hc_lens.cli.options import Computing, RunPaths, at_least_one, device_of_name, parse
from hc_lens.cli.origin import finetuned_of, model_and_task
from hc_lens.limits import Count, Natural
from hc_lens.precision import Precision
from hc_lens.pruning import open_pruned
from hc_lens.questions.opened import OpenRun
from hc_lens.questions.question import Question, every_question
from hc_lens.runs import Run
from hc_lens.sample import Sample

if TYPE_CHECKING:
    from hc_lens.data import Task
    from hc_lens.models import Classifier


@dataclass(frozen=True)
class SampleChoice:
    """Which rows, and how they are measured."""

    max_rows: Count | None = None
    """Random rows of each case; None for all."""
    case: tuple[str, ...] = ()
    """Which cases, by name; all by default."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them, and whatever else is random: control sets, shuffles, the bootstrap."""
    batch_size: Count = 64
    """Rows in one forward pass."""
    precision: Precision = "fp32"
    """Of matrix products: fp32, bf16, or auto for whichever is faster where it is first asked for in RUN."""

    @staticmethod
    def of(question: type[Question]) -> SampleChoice:
        """What a question is measured on where nobody says."""
        return SampleChoice(question.sample.max_rows, batch_size=question.sample.batch_size)

    def sample(self) -> Sample:
        """The rows as the library takes them."""
        cases = self.case or None
        return Sample(self.max_rows, self.seed, cases, batch_size=self.batch_size, precision=self.precision)


def opened(paths: Sequence[Path], device: str, of: str = "prune") -> OpenRun:
    """The runs, of a kind, with the model on a device of this name; runs of earlier versions, too.

    Raises:
        RunError: as `open`, or if every seed of one collapsed.
        ValueError: if there is no such device here.
    """
    pruned = () if of == "finetune" else tuple(open_pruned(path) for path in paths)
    first = pruned[0].run if pruned else Run.open(paths[0])
    finetuned = finetuned_of(first) if pruned else first.path

    def load() -> tuple[Classifier, Task]:
        return model_and_task(first, device_of_name(device))

    return OpenRun(pruned, None if finetuned is None else Run.open(finetuned), load)


def arguments_of(question: type[Question]) -> Any:
    """The arguments of the command that asks a question: its fields, and the rows."""
    runs = Annotated[RunPaths, tyro.conf.arg(help="Runs of one model, the first of which keeps the answer.")]
    fields: list[tuple[str, Any, Any]] = [
        ("runs", runs, ()),
        ("question", tyro.conf.OmitArgPrefixes[question], field(default_factory=question)),
        ("rows", tyro.conf.OmitArgPrefixes[SampleChoice], field(default_factory=lambda: SampleChoice.of(question))),
        ("common", tyro.conf.OmitArgPrefixes[Computing], field(default_factory=Computing)),
    ]
    made = make_dataclass("Arguments", fields, frozen=True)
    made.__doc__ = question.__doc__
    return made


def ask(question: type[Question], command: str, words: Sequence[str]) -> None:
    """Ask, print the answer, and leave its tables in the run."""
    args = parse(arguments_of(question), command, words)
    run = opened(at_least_one(args.runs, command), args.common.device, question.of)
    require_cases(run, args.rows.case)
    answer = run.ask(args.question, args.rows.sample())
    output.answer(answer, args.common.out)
    collapses = [f"{each.run.path}: {each.collapse}" for each in run.pruned if each.collapse]
    output.headline(run.place(question.of).path, "; ".join([answer.short, *collapses]))


def require_cases(run: OpenRun, names: Sequence[str]) -> None:
    """Refuse a case that the task does not have."""
    if names and (unknown := [name for name in names if name not in run.task.cases]):
        raise ValueError(f"--case {unknown[0]}: the task has the cases {', '.join(run.task.cases)}")


def main(words: Sequence[str]) -> None:
    """Ask one question by its name, or list them."""
    from hc_lens.cli.questions import Questions

    by_name = {question.name: question for question in every_question()}
    if words and (question := by_name.get(words[0])):
        return ask(question, f"ask {words[0]}", words[1:])
    told = {name: Command("ask", cast(str, each.__doc__).splitlines()[0]) for name, each in by_name.items()}
    return Questions("ask", "What can be asked of a run; its report shows every answer.", told, "ask pairs runs/half").ask(
        words
    )
