"""Which later heads build on the core: how much does their output change without it?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import analysis, figures, report
from hc_lens.limits import Natural
from hc_lens.questions.heads import Heads, heads_of, sorted_names
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject

_PATHS: tuple[Literal["all paths", "direct path"], ...] = ("all paths", "direct path")


@dataclass(frozen=True)
class Dependence(Question):
    """How much the output of every later head changes without heads: through all paths, and by the direct path."""

    heads: Heads = ()
    """As L4.H0 L5.H2, in place of the core."""
    controls: Natural = 20
    """Random heads from the same layers, for comparison."""

    name: ClassVar[str] = "dependence"
    tables: ClassVar[tuple[str, ...]] = ("dependence",)
    sample: ClassVar[Sample] = Sample(500)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        return super().options(run, sample) | {"core": sorted_names(run, self.heads), "controls": self.controls}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        """At most `max_rows` rows of all in-domain cases together, and as many of all out-of-domain ones."""
        from dataclasses import replace

        import pandas as pd

        from hc_lens.metrics import encode_cases

        heads, tables = heads_of(run, self.heads), list[pd.DataFrame]()
        for group, cases in (("ID", run.task.in_domain), ("OOD", run.task.ood)):
            if not cases:
                continue
            data = encode_cases(run.model, run.task, replace(sample, cases=tuple(cases))).data
            for through in _PATHS:
                table = analysis.dependence_on(
                    run.model, data, run.means, heads, sample, through=through, controls=self.controls
                )
                tables.append(table.assign(case_group=group, through=through))
        return {"dependence": pd.concat(tables, ignore_index=True)}

    def short(self, answer: Answer) -> str:
        whole = _whole(answer)
        last = whole[whole["source"] == whole["source"].iloc[-1]]
        others = last[~last["among"]]
        beyond = int((others["low"] > others["control_high"]).sum())
        return f"{beyond} of {len(others)} later heads change more without {last['source'].iloc[0]} than without random heads"

    def sections(self, answer: Answer) -> list[report.Section]:
        here = _here(answer)
        group = here["case_group"].iloc[0]
        most = here.sort_values("change", ascending=False).groupby(["source", "through"], sort=False).head(3)
        told = report.with_interval(most, "change")
        columns = ["source", "through", "layer", "head", "among", "change [95 %]", "control_mean", "control_high"]
        title = f"Later heads whose output changes most without a head ({group}; 1: as if ablated itself)"
        return [
            report.Section(
                "dependence",
                report.heading(answer.short),
                "Change of a later head's context vectors when a head is ablated, relative to its own ablation: 0 if it does "
                "not depend on it, 1 if it changes as if it were ablated itself. Grey: random heads of the same layers.",
                figures.dependence(_whole(answer)),
                shown=(report.text_table(told[columns], title, labels=5),),
                folded=(report.text_table(report.with_interval(here, "change"), f"Every later head ({group})", labels=3),),
            )
        ]


def _here(answer: Answer) -> pd.DataFrame:
    """The rows out of domain, where there are some."""
    table = answer["dependence"]
    return table[table["case_group"] == ("OOD" if (table["case_group"] == "OOD").any() else "ID")]


def _whole(answer: Answer) -> pd.DataFrame:
    here = _here(answer)
    return here[here["through"] == "all paths"]
