"""Two ways to a sparsity grid: a pruning run for every cell, or one run per seed whose target rises past them all."""

from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd

from hc_lens.analysis.choices import Curve, Semantics
from hc_lens.analysis.effective_size import seed_sizes
from hc_lens.analysis.grid import cells, pruned_rows
from hc_lens.statistics import mean_over_seeds, rank_correlation

_CELL = ["step", "seed", "target", "case", "group"]


@dataclass(frozen=True, eq=False)
class GridAgreement:
    """How a rising-target run (path) compares with the grid of separate runs; differences are path minus grid, paired by seed.

    All intervals are 95 %, Student t over the `n` seeds that both have.

    Attributes:
        accuracy: per `step`, `target`, `case`, `group`: mean accuracy `grid` and `path`, `difference`, `low`, `high`, `n`.
        summary: per evaluation `set`: the mean `difference` over checkpoints and sparsities, `low`, `high`, `n`; `absolute`,
            the mean |difference|; `between_seeds`, the same between two seeds of the grid, the yardstick for it; and `rho`,
            `rho_low`, `rho_high`, Spearman's correlation of the two over checkpoints and sparsities within a seed.
        sizes: per `step` and `set`: mean effective size `grid` and `path` (%), `difference`, `low`, `high`, `n`.
    """

    accuracy: pd.DataFrame
    summary: pd.DataFrame
    sizes: pd.DataFrame


def grid_agreement(
    grid: pd.DataFrame,
    path: pd.DataFrame,
    full: pd.DataFrame | None = None,
    *,
    semantics: Semantics = "as_coded",
    tolerance: float = 0.03,
    curve: Curve = "raw",
) -> GridAgreement:
    """Compare the grid of separate pruning runs with rising-target runs of the same seeds.

    Args:
        grid: as for `effective_size`.
        path: the same of the rising-target runs. Accuracies and correlations are over the cells that both have.
        full: the full model, by default its rows in `grid`.
        semantics, tolerance, curve: of the effective sizes; sizes are per seed under either semantics.

    Raises:
        ValueError: if the two share no cell, or as `effective_size`.
    """
    ours, theirs = pruned_rows(grid), pruned_rows(path)
    paired = ours[[*_CELL, "accuracy"]].merge(theirs[[*_CELL, "accuracy"]], on=_CELL, suffixes=("_grid", "_path"))
    if paired.empty:
        raise ValueError("the grid and the path share no cell: no step, seed, target and case is in both")
    whole = full if full is not None else grid
    sizes = [
        seed_sizes(rows, whole, semantics=semantics, tolerance=tolerance, curve=curve).rename(columns={"size": name})
        for rows, name in ((ours, "grid"), (theirs, "path"))
    ]
    return GridAgreement(
        accuracy=_compared(
            paired.rename(columns={"accuracy_grid": "grid", "accuracy_path": "path"}), ["step", "target", "case", "group"]
        ),
        summary=_summary(_set_means(ours, whole), _set_means(theirs, whole)),
        sizes=_compared(sizes[0].merge(sizes[1], on=["step", "set", "seed"]), ["step", "set"], most=100.0),
    )


def _compared(rows: pd.DataFrame, by: list[str], most: float = 1.0) -> pd.DataFrame:
    """Mean `grid` and `path` over seeds that have both, and their difference."""
    found: list[tuple[object, ...]] = []
    for keys, seeds in rows.dropna(subset=["grid", "path"]).groupby(by, sort=False):
        change = (seeds["path"] - seeds["grid"]).to_numpy(np.float64)
        found.append((*keys, seeds["grid"].mean(), seeds["path"].mean(), *mean_over_seeds(change, -most, most)))
    return pd.DataFrame(found, columns=[*by, "grid", "path", "difference", "low", "high", "n"])


def _set_means(rows: pd.DataFrame, full: pd.DataFrame) -> pd.DataFrame:
    """Accuracy of every run on every evaluation set, all cases alike: `set`, `seed`, `step`, `target` -> accuracy."""
    tables = [
        pd.DataFrame(
            {
                "step": cell.step,
                "set": cell.set,
                "seed": np.repeat(cell.seeds, len(cell.targets)),
                "target": np.tile(cell.targets, len(cell.seeds)),
                "accuracy": cell.accuracy.ravel(),
            }
        )
        for cell in cells(rows, full, "cases")
    ]
    return pd.concat(tables, ignore_index=True).dropna(subset=["accuracy"])


def _summary(grid: pd.DataFrame, path: pd.DataFrame) -> pd.DataFrame:
    paired = grid.merge(path, on=["set", "seed", "step", "target"], suffixes=("_grid", "_path"))
    rows: list[dict[str, object]] = []
    for name, runs in paired.groupby("set", sort=False):
        change = runs["accuracy_path"] - runs["accuracy_grid"]
        difference = mean_over_seeds(change.groupby(runs["seed"]).mean().to_numpy(np.float64), -1.0, 1.0)
        rho = mean_over_seeds(np.array([_rho(of_seed) for _, of_seed in runs.groupby("seed")]), -1.0, 1.0)
        rows.append(
            {
                "set": name,
                "difference": difference.mean,
                "low": difference.low,
                "high": difference.high,
                "n": difference.n,
                "absolute": change.abs().mean(),
                "between_seeds": _between_seeds(grid[grid["set"] == name]),
                "rho": rho.mean,
                "rho_low": rho.low,
                "rho_high": rho.high,
            }
        )
    return pd.DataFrame(rows)


def _rho(runs: pd.DataFrame) -> float:
    return rank_correlation(runs["accuracy_grid"].to_numpy(np.float64), runs["accuracy_path"].to_numpy(np.float64)).rho


def _between_seeds(grid: pd.DataFrame) -> float:
    """Mean absolute difference of two seeds' accuracies in the same cell; NaN for one seed."""
    wide = grid.pivot(index=["step", "target"], columns="seed", values="accuracy")
    pairs = [(wide[a] - wide[b]).abs() for a, b in combinations(wide.columns, 2)]
    return float(pd.concat(pairs).mean()) if pairs else float("nan")
