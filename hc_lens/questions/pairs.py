"""Which heads make up for each other: does a pair cost more, or less, than its two heads one by one?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import analysis, figures, report
from hc_lens.limits import Natural
from hc_lens.questions.ablated import further_ablations
from hc_lens.questions.heads import Heads, heads_of, sorted_names
from hc_lens.questions.places import PLACES, main_place
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject


@dataclass(frozen=True)
class Pairs(Question):
    """Ablate every pair of heads, and all of them: which make up for each other, in domain and out of domain."""

    heads: Heads = ()
    """At least two, as L4.H0 L5.H2, in place of the core."""
    controls: Natural = 20
    """Random sets of as many heads from the same layers, for comparison."""

    name: ClassVar[str] = "pairs"
    tables: ClassVar[tuple[str, ...]] = ("domains", "interactions")
    sample: ClassVar[Sample] = Sample(500)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        return super().options(run, sample) | {"core": sorted_names(run, self.heads), "controls": self.controls}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        heads = sorted(heads_of(run, self.heads))
        groups = {**{str(head): [head] for head in heads}, **{f"{a} + {b}": [a, b] for a, b in analysis.core_pairs(heads)}}
        groups |= {"core": heads} if len(heads) > 2 else {}

        def ablate(known: analysis.Ablation) -> analysis.Ablation:
            return analysis.ablate(run.model, run.task, run.means, groups, sample, controls=self.controls, known=known)

        found = further_ablations(run, sample, ablate)
        return {
            "domains": analysis.by_domain(found, seed=sample.seed),
            "interactions": analysis.interactions(found, seed=sample.seed),
        }

    def short(self, answer: Answer) -> str:
        pairs = answer["interactions"]
        place = main_place(pairs)
        shown = pairs[(pairs["case"] == place) & (pairs["scale"] == "margin")]
        apart = int(((shown["low"] > 0) | (shown["high"] < 0)).sum())
        most = shown.iloc[int(shown["interaction"].abs().argmax())]
        strongest = f"{most['a']} and {most['b']} most ({most['interaction']:+.2f} nats)"
        return f"{apart} of {len(shown)} pairs interact ({place}, 95 %), {strongest}"

    def sections(self, answer: Answer) -> list[report.Section]:
        pairs, domains = answer["interactions"], answer["domains"]
        places = [place for place in PLACES if (pairs["case"] == place).any()]
        means = pairs[pairs["case"].isin(places)]
        matrices = [
            report.text_table(
                analysis.interaction_matrix(pairs, place).rename_axis("head").reset_index(),
                f"{place}: margin (nats) that a pair costs beyond its two heads; alone on the diagonal",
            )
            for place in places
        ]
        together = domains[domains["case"].isin(places) & (domains["size"] > 2)]
        columns = ["set", "quantity", "case", "scale", "value [95 %]", "floor_limited", "control_mean", "control_p"]
        told = report.with_interval(together, "value")[columns]
        title = "All together: effect, and excess over the sum of single effects"
        return [
            report.Section(
                "pairs",
                report.heading(answer.short),
                "What a pair of heads costs together beyond the sum of both alone: above 0 they make up for each other, below "
                "they hurt the same thing. Margin, 95 % bootstrap intervals over rows.",
                figures.interaction_matrix(pairs),
                shown=(*matrices, *([report.text_table(told, title, labels=4)] if len(told) else [])),
                folded=(report.text_table(report.with_interval(means, "interaction"), "Every pair", labels=2),),
            )
        ]
