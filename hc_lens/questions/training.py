"""How does accuracy grow in fine-tuning, and does generalization come after in-domain learning?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import figures, report
from hc_lens.prose import counted, percent
from hc_lens.questions.question import Answer, Question
from hc_lens.train import evaluations

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample

ONSET = "Does generalization come after in-domain learning?"


@dataclass(frozen=True)
class Training(Question):
    """The full model's accuracy on every case at each checkpoint of fine-tuning, as fine-tuning recorded it."""

    name: ClassVar[str] = "training"
    tables: ClassVar[tuple[str, ...]] = ("training",)
    of: ClassVar[Literal["prune", "finetune"]] = "finetune"
    columns: ClassVar[Mapping[str, Sequence[str]]] = {"training": ("step", "case", "group", "accuracy")}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        return {"training": evaluations(run.place("finetune").path)}

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        return Answer(self, self.measure(run, self.sample), {})

    def kept(self, run: Subject) -> Answer | None:
        answer = None if run.finetuned is None else self.ask(run)
        return None if answer is None or answer["training"].empty else answer

    def unmeasured(self) -> list[report.Finding]:
        short, why = "the course of fine-tuning was not recorded", "This run holds no checkpoint accuracies."
        return [report.not_measured("onset", ONSET, short, why)]

    def findings(self, answer: Answer) -> list[report.Finding]:
        return [_onset(answer["training"])]

    def sections(self, answer: Answer) -> list[report.Section]:
        return [
            report.Section(
                "training",
                report.heading(answer.short),
                "Accuracy of the full model on every case, at each checkpoint of fine-tuning.",
                figures.training_curves(answer["training"]),
                folded=(_at_checkpoints(answer["training"]),),
            )
        ]


def _at_checkpoints(training: pd.DataFrame) -> report.TextTable:
    """One row per checkpoint, one column per case."""
    wide = training.pivot_table(index="step", columns="case", values="accuracy", sort=False).sort_index().reset_index()
    return report.text_table(wide, "Accuracy at each checkpoint (%)", percent=[str(name) for name in wide.columns[1:]])


def _onset(training: pd.DataFrame) -> report.Finding:
    """Whether out-of-domain accuracy rises later in fine-tuning than in-domain accuracy."""
    from hc_lens.analysis import nearly_best
    from hc_lens.analysis import onset as first_above

    rule = (
        "Onset: the first checkpoint at which the mean accuracy over the group's cases is above a level, here nine tenths of "
        "the way from the group's first checkpoint to its best. Yes if it is later out of domain; no if it is not, or if "
        "accuracy there never rises by 5 points; undecided if it never rises in-domain."
    )

    def found(verdict: report.Verdict, short: str, sentence: str) -> report.Finding:
        return report.Finding("onset", ONSET, verdict, short, sentence, rule)

    checkpoints = training["step"].nunique()
    if checkpoints < report.ENOUGH or not {"ID", "OOD"} <= set(training["group"]):
        short = "too few checkpoints were evaluated to tell when generalization sets in"
        return found("undecided", short, f"Only {counted(checkpoints, 'checkpoint')} evaluated.")
    try:
        inside, outside = (first_above(training, level=nearly_best, group=group) for group in ("ID", "OOD"))
    except ValueError as error:  # a checkpoint without an accuracy: its mean would be over other cases
        return found("undecided", "the checkpoints were not all evaluated alike", f"{error}.")
    here, there = inside.curve["accuracy"], outside.curve["accuracy"]
    if outside.step is None or there.max() - there.iloc[0] < 0.05:
        sentence = (
            f"Out-of-domain accuracy starts at {percent(there.iloc[0])} and never gets above {percent(there.max())}, while "
            f"in-domain accuracy reaches {percent(here.max())}."
        )
        return found("no", "out-of-domain accuracy never rises during fine-tuning", sentence)
    if inside.step is None:
        short = "in-domain accuracy never rises during fine-tuning, so that nothing can come after it"
        sentence = f"In-domain accuracy starts at {percent(here.iloc[0])}, its best, while out of domain it rises."
        return found("undecided", short, sentence)
    later = outside.step > inside.step
    short = f"generalization {'comes' if later else 'does not come'} after in-domain learning"
    sentence = (
        f"In-domain accuracy has nearly arrived by step {inside.step} (best {percent(here.max())}), out-of-domain accuracy by "
        f"step {outside.step} (best {percent(there.max())}, last {percent(there.iloc[-1])})."
    )
    return found("yes" if later else "no", short, sentence)
