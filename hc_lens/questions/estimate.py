"""What would ablating every head and MLP cost, estimated from one backward pass, and does the estimate rank the heads?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import analysis, report
from hc_lens.questions.ablated import kept_ablation
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject

_SHOWN = 10
"""Units that are shown; all are kept."""


@dataclass(frozen=True)
class Estimate(Question):
    """Estimate what every head and MLP costs from one backward pass, in fp32, and how well that ranks the heads."""

    name: ClassVar[str] = "estimate"
    tables: ClassVar[tuple[str, ...]] = ("estimates", "agreement")
    sample: ClassVar[Sample] = Sample(500)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        options = super().options(run, sample)
        return options | {"exact": kept_ablation(run.home, "singles", options) is not None}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        """How well the estimate ranks heads is empty where the run keeps no single ablations of the same rows."""
        import pandas as pd

        estimate = analysis.first_order_effects(run.model, run.task, run.means, sample)
        exact = kept_ablation(run.home, "singles", run.options(sample))
        agreement = (
            pd.DataFrame({"case": []}) if exact is None else analysis.rank_correlation(estimate, exact, seed=sample.seed)
        )
        return {"estimates": estimate.table(seed=sample.seed), "agreement": agreement}

    def short(self, answer: Answer) -> str:
        if answer["agreement"].empty:
            return f"by the estimate {_costliest(answer).index[0]} costs most"
        found = answer["agreement"]["spearman"]
        return f"the estimate ranks the heads as ablation does to {found.min():.2f}..{found.max():.2f} (Spearman, by case)"

    def sections(self, answer: Answer) -> list[report.Section]:
        costs = _costliest(answer)
        most = f"the {min(_SHOWN, len(costs))} of {len(costs)} that cost most"
        title = f"Estimated cost of each head and MLP on the margin (nats): {most}"
        shown = [report.text_table(costs.head(_SHOWN).rename_axis("unit").reset_index(), title)]
        if not answer["agreement"].empty:
            told = report.with_interval(answer["agreement"], "spearman", digits=2)
            shown.append(
                report.text_table(told, "Rank correlation of the estimate with the exact ablation of every head", labels=3)
            )
        return [
            report.Section(
                "estimate",
                report.heading(answer.short),
                "A first-order estimate of each unit's mean ablation, from the full model's gradient (attribution patching).",
                shown=shown,
                folded=(
                    report.text_table(report.with_interval(answer["estimates"], "effect"), "Every unit and case", labels=4),
                ),
            )
        ]


def _costliest(answer: Answer) -> pd.DataFrame:
    """Cost by unit and case, the costliest unit first."""
    wide = answer["estimates"].pivot_table(index="group", columns="case", values="effect", sort=False)
    return wide.loc[wide.mean(axis=1).sort_values(ascending=False).index]
