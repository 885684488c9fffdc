"""Does the full model lose more without core heads than subnetworks that lack what could make up for them?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import analysis, report
from hc_lens.pruning.members import digest_of
from hc_lens.questions.heads import Heads, heads_of, sorted_names
from hc_lens.questions.places import PLACES, main_place
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject


@dataclass(frozen=True)
class Removal(Question):
    """Remove heads from every subnetwork of the run, too: does the full model lose more?"""

    heads: Heads = ()
    """As L4.H0 L5.H2, in place of the core."""

    name: ClassVar[str] = "removal"
    tables: ClassVar[tuple[str, ...]] = ("removal",)
    sample: ClassVar[Sample] = Sample(500)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        of = {str(sub.seed): digest_of(sub) for sub in run.first.subnetworks}
        return super().options(run, sample) | {"core": sorted_names(run, self.heads), "of": of}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        heads = heads_of(run, self.heads)
        return {"removal": analysis.in_subnetworks(run.model, run.task, run.first.subnetworks, heads, sample)}

    def short(self, answer: Answer) -> str:
        table = answer["removal"]
        place = main_place(table)
        known = table[(table["case"] == place) & (table["scale"] == "margin") & table["difference"].notna()]
        if known.empty:
            return "no subnetwork keeps one of the heads, so that nothing can be removed from it"
        shown = known.iloc[-1]
        return (
            f"ablating {shown['head']} costs the full model {shown['difference']:+.2f} nats ({shown['low']:+.2f} to "
            f"{shown['high']:+.2f}) against its subnetworks ({place})"
        )

    def sections(self, answer: Answer) -> list[report.Section]:
        table = answer["removal"]
        for value, low, high in (
            ("full_effect", "full_low", "full_high"),
            ("within", "within_low", "within_high"),
            ("difference", "low", "high"),
        ):
            table = report.with_interval(table, value, low=low, high=high)
        columns = ["head", "case", "scale", "subnetworks", "full_effect [95 %]", "within [95 %]", "difference [95 %]"]
        told = table[[*columns, "floor_limited"]]
        title = "Cost in the full model, and of removal from the subnetworks that keep the head (within)"
        return [
            report.Section(
                "removal",
                report.heading(answer.short),
                "Heads removed from the full model and from every subnetwork that keeps them; accuracy as a share, margin in "
                "nats; intervals resample rows, within subnetworks those, too.",
                shown=(report.text_table(told[told["case"].isin(PLACES)], title, labels=3),),
                folded=(report.text_table(told, "Every case", labels=3),),
            )
        ]
