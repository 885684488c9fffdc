"""A sparsity grid: one model, or each of its checkpoints, pruned to several sparsities with several seeds, as arrays."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from hc_lens.tables import require, require_once

EvaluationSet = Literal["ID", "OOD", "mixed"]

Weights = Literal["cases", "groups"]
"""What weighs the same in the mixed set: every case, or ID as a whole and OOD as a whole."""

GRID_COLUMNS = ("step", "seed", "target", "case", "group", "accuracy")
"""The columns a grid needs: one row per checkpoint, pruning run and case."""


class Cells(NamedTuple):
    """One checkpoint on one evaluation set: the accuracy of every pruning run beside the full model's.

    `accuracy` is NaN where a run is missing on any case of the set; `failed` marks the missing runs known to have failed.
    `targets` ascend.
    """

    step: int
    set: EvaluationSet
    full: float
    seeds: tuple[int, ...]
    targets: Float[np.ndarray, " target"]
    accuracy: Float[np.ndarray, "run target"]
    failed: Bool[np.ndarray, "run target"]


def pruned_rows(table: pd.DataFrame, columns: Sequence[str] = GRID_COLUMNS) -> pd.DataFrame:
    """The rows of a table that are pruning runs, not the full model, checked.

    Raises:
        ValueError: for a missing column, no rows, a target outside (0, 1), a group that is neither ID nor OOD, an accuracy
            outside 0..1 (missing ones are NaN), a run without a seed, or a run and case that come twice.
    """
    require(table, columns, "the grid")
    pruned = table[table["subnetwork"] != "full"] if "subnetwork" in table.columns else table
    if pruned.empty:
        raise ValueError("the grid has no pruning run: every row is of the full model")
    if (bad := ~pruned["target"].between(0, 1, inclusive="neither")).any():
        raise ValueError(f"a target sparsity is in (0, 1), got {pruned.loc[bad, 'target'].iloc[0]} in row {bad.idxmax()}")
    if (bad := pruned["seed"].isna()).any():
        raise ValueError(f"a pruning run needs a seed; row {bad.idxmax()} has none")
    _require_values(pruned, "the grid")
    require_once(pruned, [name for name in ("step", "seed", "target", "case") if name in columns], "the grid")
    return pruned.assign(target=pruned["target"].astype("float64").round(9))  # 0.30000000000000004 of a range is 0.3


def full_rows(table: pd.DataFrame, full: pd.DataFrame | None, columns: Sequence[str]) -> pd.DataFrame:
    """The rows of the full model: `full`, or the rows of `table` whose `subnetwork` is "full"; checked.

    Raises:
        ValueError: if there are none, a column is missing, or a checkpoint and case come twice.
    """
    if full is None:
        if "subnetwork" not in table.columns or not (table["subnetwork"] == "full").any():
            raise ValueError('the table has no rows of the full model (subnetwork "full"), and none were given apart')
        full = table[table["subnetwork"] == "full"]
    elif "subnetwork" in full.columns:
        full = full[full["subnetwork"] == "full"]
    require(full, columns, "the full model's table")
    _require_values(full, "the full model's table")
    keys = [name for name in columns if name in ("step", "case")]
    require_once(full, keys, "the full model's table")
    return full


def cells(grid: pd.DataFrame, full: pd.DataFrame | None, weights: Weights) -> list[Cells]:
    """Every checkpoint of a grid on every evaluation set that it has cases for.

    A set's accuracy is the mean over all its cases in the grid, of a run as of the full model. "mixed" needs both groups.

    Raises:
        ValueError: as `pruned_rows` and `full_rows`, or if the full model lacks a checkpoint or case of the grid.
    """
    pruned = pruned_rows(grid)
    groups = dict(zip(pruned["case"], pruned["group"], strict=True))
    whole = full_rows(grid, full, ("step", "case", "accuracy")).pivot(index="step", columns="case", values="accuracy")
    runs = pruned.pivot(index=["step", "seed", "target"], columns="case", values="accuracy")
    failed = _failed(pruned)
    found: list[Cells] = []
    for step in sorted({int(step) for step in pruned["step"]}):
        wholes = _of_full(whole, step, list(groups))
        for name, accuracy in set_means(runs.loc[[step]].droplevel("step"), groups, weights).items():
            table = accuracy.unstack("target").sort_index(axis=1)
            lost = failed.loc[step].unstack("target", fill_value=False).reindex_like(table)
            found.append(
                Cells(
                    step=step,
                    set=name,
                    full=float(set_means(wholes, groups, weights)[name].iloc[0]),
                    seeds=tuple(int(seed) for seed in table.index),
                    targets=table.columns.to_numpy(np.float64),
                    accuracy=table.to_numpy(np.float64),
                    failed=lost.to_numpy(bool) & table.isna().to_numpy(),
                )
            )
    return found


def set_means(wide: pd.DataFrame, groups: Mapping[str, str], weights: Weights) -> dict[EvaluationSet, pd.Series]:
    """The mean accuracy on each evaluation set of every row of a table with a column per case; NaN where a case is missing."""
    inside = [case for case, group in groups.items() if group == "ID"]
    outside = [case for case, group in groups.items() if group == "OOD"]
    means: dict[EvaluationSet, pd.Series] = {}
    if inside:
        means["ID"] = wide[inside].mean(axis=1, skipna=False)
    if outside:
        means["OOD"] = wide[outside].mean(axis=1, skipna=False)
    if inside and outside:
        by_group = (means["ID"] + means["OOD"]) / 2
        means["mixed"] = by_group if weights == "groups" else wide[inside + outside].mean(axis=1, skipna=False)
    return means


def _failed(pruned: pd.DataFrame) -> pd.Series:
    """Whether each run is known to have failed, by step, seed and target; without a column `failed` none is."""
    marks = pruned["failed"].astype(bool) if "failed" in pruned.columns else pd.Series(False, pruned.index)
    return marks.groupby([pruned["step"], pruned["seed"], pruned["target"]]).any()


def _of_full(whole: pd.DataFrame, step: int, cases: Sequence[str]) -> pd.DataFrame:
    if step not in whole.index:
        raise ValueError(f"the full model was not evaluated at step {step}; it was at {[int(s) for s in whole.index]}")
    row = whole.loc[[step]]
    if missing := [case for case in cases if case not in row.columns or row[case].isna().any()]:
        raise ValueError(f"the full model was not evaluated on {missing[0]!r} at step {step}")
    return row


def _require_values(table: pd.DataFrame, what: str) -> None:
    accuracy = table["accuracy"]
    if (bad := accuracy.notna() & ~accuracy.between(0, 1)).any():
        raise ValueError(
            f"{what}: an accuracy is in 0..1, or NaN for a missing run; row {bad.idxmax()} has {accuracy[bad].iloc[0]}"
        )
    if "group" in table.columns and (odd := ~table["group"].isin(["ID", "OOD"])).any():
        raise ValueError(f'{what}: a group is "ID" or "OOD", got {table.loc[odd, "group"].iloc[0]!r} in row {odd.idxmax()}')
