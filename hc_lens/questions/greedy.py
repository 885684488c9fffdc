"""Which set of heads costs most together, grown head by head?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import analysis, figures, report
from hc_lens.limits import Count, Natural
from hc_lens.questions.ablated import further_ablations
from hc_lens.questions.heads import Heads, heads_of
from hc_lens.questions.places import main_place
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample
from hc_lens.units import Head

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject


@dataclass(frozen=True)
class Greedy(Question):
    """Grow a set of heads, each time by the one that costs most with those before it: out of domain, if there are cases."""

    size: Count = 3
    """Heads in the last set."""
    candidates: Literal["core", "all"] = "core"
    """Heads that are chosen from: the core (or `heads`), or all of the model."""
    heads: Heads = ()
    """Candidates, as L4.H0 L5.H2, in place of the core."""
    scale: Literal["margin", "accuracy"] = "margin"
    """What is to fall."""
    controls: Natural = 20
    """Random sets of as many heads from the same layers, for comparison."""

    name: ClassVar[str] = "greedy"
    tables: ClassVar[tuple[str, ...]] = ("greedy",)
    sample: ClassVar[Sample] = Sample(500)

    def _from(self, run: Subject) -> list[Head]:
        everything = [head for (head,) in analysis.single_heads(run.means)]
        return everything if self.candidates == "all" else sorted(heads_of(run, self.heads))

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        asked = {"size": self.size, "scale": self.scale, "controls": self.controls}
        return super().options(run, sample) | {"candidates": list(map(str, self._from(run)))} | asked

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        paths: list[analysis.GreedyPath] = []
        group: Literal["ID", "OOD"] = "OOD" if run.task.ood else "ID"
        config = analysis.GreedyConfig(self.size, self.scale, group, self.controls)

        def grow(known: analysis.Ablation) -> analysis.Ablation:
            paths.append(analysis.greedy_sets(run.model, run.task, run.means, self._from(run), config, sample, known=known))
            return paths[-1].ablation

        further_ablations(run, sample, grow)
        return {"greedy": paths[-1].table(seed=sample.seed)}

    def short(self, answer: Answer) -> str:
        shown = _path(answer)
        last, where = shown.iloc[-1], "out of domain" if shown["case"].iloc[0] == "OOD mean" else "in-domain"
        heads = ", ".join(shown["added"])
        return f"greedily {heads} cost most {where}: {last['joint']:.2f} nats together, {last['summed']:.2f} one by one"

    def sections(self, answer: Answer) -> list[report.Section]:
        shown = report.with_interval(_path(answer), "joint", low="joint_low", high="joint_high")
        shown = report.with_interval(shown, "excess")
        columns = ["size", "added", "joint [95 %]", "chosen", "summed", "excess [95 %]", "control_mean"]
        title = "The set that costs most, head by head (margin, rows that did not choose it)"
        return [
            report.Section(
                "greedy",
                report.heading(answer.short),
                "Heads are chosen on one half of the rows and measured on the other. Joint: all of the set ablated; summed: "
                "its heads one by one.",
                figures.greedy_path(answer["greedy"]),
                shown=(report.text_table(shown[columns], title, labels=2),),
                folded=(report.text_table(answer["greedy"], "Every place and scale", labels=6),),
            )
        ]


def _path(answer: Answer) -> pd.DataFrame:
    """The margin of every set at the place that chose."""
    table = answer["greedy"]
    return table[(table["case"] == main_place(table)) & (table["scale"] == "margin")]
