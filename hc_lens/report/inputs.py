"""What a report is made from: the tables, the core and the provenance of one study."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from hc_lens.figures.effects import ADDITIVITY_COLUMNS
from hc_lens.tables import require_rows

if TYPE_CHECKING:
    from hc_lens.analysis import Core, NullResult
    from hc_lens.statistics import RankCorrelation
    from hc_lens.units import Head

_COLUMNS = {
    "evaluation": ("subnetwork", "seed", "sparsity", "case", "group", "accuracy", "low", "high"),
    "frequency": ("sparsity", "layer", "head", "count", "of"),
    "training": ("step", "case", "group", "accuracy"),
    "joint": ("i", "j", "heads"),
    "mlps": ("sparsity", "layer", "count", "of"),
    "effects": ("group", "case", "scale", "effect", "low", "high"),
    "additivity": ADDITIVITY_COLUMNS,
}


@dataclass(frozen=True)
class CoreSummary:
    """The heads that at least `k` of `n` subnetworks keep, and how many would be shared by chance.

    `sparsities` are those of the `n` runs. `expected` is the number of heads shared by independent subnetworks; `null_low`,
    `null_high` are the 2.5 % and 97.5 % quantiles of the layer-stratified permutation null, and `p_value` is that null's.
    `chosen_for` is set where `k` was chosen from these subnetworks, as the largest that gives a core of so many heads.
    """

    heads: tuple[Head, ...]
    k: int
    n: int
    sparsities: tuple[float, ...]
    expected: float
    null_low: float
    null_high: float
    p_value: float
    chosen_for: int | None = None

    @staticmethod
    def of(core: Core, null: NullResult, sparsities: Sequence[float], chosen_for: int | None = None) -> "CoreSummary":
        """The summary of a core, its null, and the sparsities that its subnetworks were pruned to."""
        low, high = null.interval
        return CoreSummary(
            core.heads, core.k, core.n, tuple(sparsities), null.expected_size, low, high, null.p_value, chosen_for
        )


@dataclass(frozen=True)
class ReportInputs:
    """Everything a report shows; `None` for what was not measured, which the report then says.

    Accuracies and effects are shares in 0..1; an effect is what is lost (full model minus ablated), so positive is damage.
    Sparsity is the share of units removed.

    Args:
        title: heading of the page.
        question: what the study asks, one or two sentences.
        provenance: versions, seeds, data and machine, as stored with the run (JSON values).
        config: the configuration of the study (JSON values, nested as it comes).
        evaluation: one row per subnetwork and case, the full model as `subnetwork == "full"`: `subnetwork`, `seed`, `sparsity`,
            `case`, `group` ("ID" or "OOD"), `accuracy`, `low`, `high`; where known also `target` (the sparsity asked for, by
            which subnetworks are then grouped), `n` (rows of the case), `agreement` (with the full model).
        frequency: one row per sparsity and head: `sparsity`, `layer`, `head`, `count` (runs that keep it), `of` (runs).
        core: the shared heads and their null.
        training: one row per checkpoint and case: `step`, `case`, `group`, `accuracy`.
        joint: `i`, `j` (runs at the lower and at the higher sparsity that keep a head), `heads` (how many heads).
        mlps: one row per sparsity and layer: `sparsity`, `layer`, `count` (runs that keep the MLP), `of`.
        rank: rank correlation of head frequencies at the lowest and the highest sparsity.
        effects: what ablation from the full model costs, one row per group of units, case and scale: `group` (a head, `L4.H0`,
            or the name of a set), `case`, `scale` (only "accuracy" is read), `effect`, `low`, `high`: `Ablation.table()`, or
            several of them one below the other. Single heads outside the core are the control.
        additivity: one row per set, case and scale: `set`, `case`, `scale` ("accuracy" or "margin"), `joint`, `summed`,
            `excess` (joint - summed), `low`, `high`, `floor_limited`, `control_low`, `control_high` (central 95 % of
            layer-matched random sets; NaN where there are none): `Ablation.super_additivity()`.
        warnings: what pruning warned of (collapsed seeds, missed targets, undecided gates), one text each.
        collapsed: by sparsity asked for, which seeds gave no subnetwork and why: `1 of 3 seeds collapsed (44: ...)`.
        notes: remarks to print with the run, one text each.

    Raises:
        ValueError: if a table lacks a column or has no row, naming it, or the evaluation has no subnetwork.
    """

    title: str
    question: str
    provenance: Mapping[str, object]
    config: Mapping[str, object]
    evaluation: pd.DataFrame
    frequency: pd.DataFrame
    core: CoreSummary
    training: pd.DataFrame | None = None
    joint: pd.DataFrame | None = None
    rank: RankCorrelation | None = None
    mlps: pd.DataFrame | None = None
    effects: pd.DataFrame | None = None
    additivity: pd.DataFrame | None = None
    warnings: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    collapsed: Mapping[float, str] = field(default_factory=dict[float, str])

    def __post_init__(self) -> None:
        for name, columns in _COLUMNS.items():
            table: pd.DataFrame | None = getattr(self, name)
            if table is not None:
                require_rows(table, columns, f"the report's {name} table")
        if not self.by_sparsity:
            raise ValueError("the report's evaluation table holds the full model only; it needs at least one subnetwork")

    @property
    def group_of(self) -> dict[str, str]:
        """ "ID" or "OOD" for each case, in the order of the evaluation."""
        return {str(case): str(group) for case, group in zip(self.evaluation["case"], self.evaluation["group"], strict=True)}

    def cases(self, group: str) -> list[str]:
        """The cases of a group, in the order of the evaluation."""
        return [case for case, its in self.group_of.items() if its == group]

    @property
    def full(self) -> pd.DataFrame:
        """The full model's rows of the evaluation."""
        return self.evaluation[self.evaluation["subnetwork"] == "full"]

    @property
    def by_sparsity(self) -> dict[float, pd.DataFrame]:
        """The subnetworks' rows of the evaluation at each sparsity (asked for, where that is recorded), densest first."""
        pruned = self.evaluation[self.evaluation["subnetwork"] != "full"]
        by = "target" if "target" in pruned.columns else "sparsity"
        return {float(s): pruned[pruned[by] == s] for s in sorted(pruned[by].unique())}

    @property
    def accuracy_effects(self) -> pd.DataFrame:
        """The effects on accuracy, with the cases' `case_group`; empty where nothing was ablated."""
        if self.effects is None:
            return pd.DataFrame(columns=["group", "case", "effect", "low", "high", "case_group"])
        rows = self.effects[self.effects["scale"] == "accuracy"].drop_duplicates(["group", "case"])
        return rows.assign(case_group=rows["case"].map(self.group_of))
