"""What does pruning harder and harder cost, in-domain and out of domain?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import analysis, figures, report
from hc_lens.questions.grid import Grid, grid_options
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample


@dataclass(frozen=True)
class SparsitySweep(Question):
    """Prune the final model of a fine-tuning run at every sparsity: accuracy by case, and where it falls."""

    drop: float = 0.03
    """How far below the full model an accuracy has fallen: 0.03 is three points."""
    grid: Grid = field(default_factory=Grid)
    """Which checkpoint, and how it is pruned; the last one where none is named."""

    name: ClassVar[str] = "sweep-sparsity"
    tables: ClassVar[tuple[str, ...]] = ("sparsity_trend", "accuracy_by_sparsity")
    of: ClassVar[Literal["prune", "finetune"]] = "finetune"

    def __post_init__(self) -> None:
        if not 0 < self.drop < 1:
            raise ValueError(f"--drop is an accuracy in (0, 1), got {self.drop}")

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        return {**grid_options(run, sample, self.grid), "drop": self.drop}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        from dataclasses import replace

        last = self.grid.checkpoints(run)[-1].step
        return self.of_grid(replace(self.grid, steps=(last,)).evaluated(run, sample)).tables

    def of_grid(self, evaluation: pd.DataFrame) -> Answer:
        """The answer from evaluations of one checkpoint at several sparsities, with their `target`."""
        falls = analysis.falls_at(evaluation, drop=self.drop).drop(columns=["low", "high"])
        trend = analysis.sparsity_trend(evaluation).drop(columns="n").merge(falls, on=["case", "group"])
        return Answer(self, {"sparsity_trend": trend, "accuracy_by_sparsity": evaluation}, {"drop": self.drop})

    def short(self, answer: Answer) -> str:
        from hc_lens.analysis.sweep import MEAN

        trend, drop = answer["sparsity_trend"], answer.options["drop"]
        means = trend[trend["case"] == MEAN].set_index("group")["rho"]
        told = f"rank correlation of accuracy with sparsity {', '.join(f'{rho:.2f} {group}' for group, rho in means.items())}"
        if set(trend["group"]) != {"ID", "OOD"}:
            return told
        gap = analysis.fall_gap(answer["accuracy_by_sparsity"], drop=drop)
        if gap.n == 0:
            return f"{told}; no seed falls by {drop:g} both in-domain and out of domain"
        interval = "" if gap.n == 1 else f" [{gap.low:+.2f}, {gap.high:+.2f}]"
        return f"{told}; in-domain falls by {drop:g} at a sparsity {gap.mean:+.2f}{interval} from out of domain ({gap.n} seeds)"

    def sections(self, answer: Answer) -> list[report.Section]:
        sweep, trend = answer["accuracy_by_sparsity"], report.with_interval(answer["sparsity_trend"], "rho", digits=2)
        seeds = sweep["seed"].nunique()
        return [
            report.Section(
                "sweep-sparsity",
                report.heading(answer.short),
                "Mean over seeds with its 95 % interval; dashed: the full model. `rho`: Spearman's correlation of accuracy and "
                "sparsity within a seed. `sparsity`: the least one at which a seed is below the full model by more than "
                f"{answer.options['drop']:g}.",
                figures.accuracy_vs_sparsity(sweep),
                shown=(
                    report.text_table(_by_sparsity(sweep), f"Mean accuracy over {seeds} seeds, by sparsity", labels=2),
                    report.text_table(trend, "Rank correlation with sparsity, and where accuracy first falls", labels=2),
                ),
            )
        ]


def _by_sparsity(sweep: pd.DataFrame) -> pd.DataFrame:
    """One row per case, the full model's accuracy, then one column per sparsity."""
    whole = sweep[sweep["subnetwork"] == "full"].set_index("case")
    pruned = sweep[sweep["subnetwork"] != "full"]
    wide = pruned.pivot_table(index="case", columns="target", values="accuracy", sort=False)
    wide.columns = [f"{target:g}" for target in wide.columns]
    targets = [f"{target:g}" for target in sorted(pruned["target"].unique())]  # one of which every seed collapsed stays empty
    return whole[["group"]].assign(full=whole["accuracy"]).join(wide.reindex(columns=targets)).reset_index()
