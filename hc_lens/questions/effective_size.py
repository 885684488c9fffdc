"""How small is the smallest faithful subnetwork at each checkpoint, in-domain and out of domain?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import analysis, figures, report
from hc_lens.analysis.choices import Curve, Semantics
from hc_lens.prose import percent
from hc_lens.questions.grid import Grid, grid_options
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample

_NAMES = {"ID": "in-domain", "OOD": "out of domain", "mixed": "mixed"}


@dataclass(frozen=True)
class EffectiveSize(Question):
    """Prune the checkpoints of a fine-tuning run at every sparsity: the size of the smallest faithful subnetwork of each."""

    tolerance: float = 0.03
    """How far from the full model's accuracy is still faithful: 0.03 is three points."""
    semantics: tuple[Semantics, ...] = ("as_coded", "as_written")
    """The rule that the paper's code applies, the one that its text describes, or both."""
    curve: Curve = "raw"
    """raw: the sparsest faithful subnetwork; monotone: it and all less sparse ones must be faithful."""
    grid: Grid = field(default_factory=Grid)
    """Which checkpoints, and how they are pruned."""

    name: ClassVar[str] = "effective-size"
    tables: ClassVar[tuple[str, ...]] = ("effective_size", "accuracy_grid")
    of: ClassVar[Literal["prune", "finetune"]] = "finetune"

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        asked = {"tolerance": self.tolerance, "semantics": list(self.semantics), "curve": self.curve}
        return {**grid_options(run, sample, self.grid), **asked}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        return self.of_grid(self.grid.evaluated(run, sample)).tables

    def of_grid(self, evaluation: pd.DataFrame, full: pd.DataFrame | None = None) -> Answer:
        """The answer from evaluations of a grid with `step` and `target`; `full` are the full model's, where they are apart."""
        import pandas as pd

        sizes = [
            analysis.effective_size(evaluation, full, semantics=rule, tolerance=self.tolerance, curve=self.curve)
            for rule in dict.fromkeys(self.semantics)
        ]
        tables = {"effective_size": pd.concat(sizes, ignore_index=True), "accuracy_grid": evaluation}
        return Answer(self, tables, {"tolerance": self.tolerance, "curve": self.curve})

    def short(self, answer: Answer) -> str:
        table = _by_rule(answer)[0]
        ends = [table["step"].min(), table["step"].max()]
        kept = table[table["step"].isin(ends)].pivot(index="set", columns="step", values="size")
        told = ", ".join(
            f"{label} " + " to ".join(f"{kept.loc[name, step]:.1f}" for step in dict.fromkeys(ends))
            for name, label in _NAMES.items()
            if name in kept.index
        )
        floors = table[table["floor"]].groupby("set")["step"].nunique()
        worthless = "".join(
            f"; {_NAMES[str(name)]}, the full model is below {percent(float(table['tolerance'].iloc[0]), 0)} at {count} of "
            f"{table['step'].nunique()} checkpoints, where any subnetwork is faithful"
            for name, count in floors.items()
        )
        when = f"step {ends[0]}" if ends[0] == ends[1] else f"steps {ends[0]} to {ends[1]}"
        return f"effective size in %, {_told(table)}, {when}: {told}{worthless}"

    def sections(self, answer: Answer) -> list[report.Section]:
        return [_section(table, answer) for table in _by_rule(answer)]


def _by_rule(answer: Answer) -> Sequence[pd.DataFrame]:
    return [table for _, table in answer["effective_size"].groupby("semantics", sort=False)]


def _told(table: pd.DataFrame) -> str:
    return str(table["semantics"].iloc[0]).replace("_", " ")


def _section(table: pd.DataFrame, answer: Answer) -> report.Section:
    tolerance, rule = percent(float(answer.options["tolerance"]), 0), _told(table)
    shown = report.with_interval(table, "size", digits=1)[["set", "step", "size [95 %]", "n", "full", "bound", "floor"]]
    return report.Section(
        f"effective-size-{rule.replace(' ', '-')}",
        f"Effective size over fine-tuning, {rule}",
        f"Share of heads and MLPs kept by the smallest subnetwork within {tolerance} of the full model's accuracy, {rule} "
        "(as coded: not below it, per seed, then averaged); the band is a 95 % interval over seeds. At a floor even a "
        "subnetwork that is always wrong would do.",
        figures.effective_size_curves(table),
        shown=(report.text_table(shown, f"Effective size in %, {rule}, {answer.options['curve']} curve", labels=2),),
    )
