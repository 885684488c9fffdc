"""A sparsity sweep: how the accuracy of one model's subnetworks on each case changes with sparsity, seed by seed."""

import numpy as np
import pandas as pd

from hc_lens.analysis.grid import full_rows, pruned_rows
from hc_lens.statistics import SeedMean, mean_over_seeds, rank_correlation

SWEEP_COLUMNS = ("seed", "target", "case", "group", "accuracy")
"""The columns a sweep needs: one row per pruning run and case."""

MEAN = "mean over cases"
"""What the tables call the mean accuracy over all cases of a group, beside the cases."""


def sparsity_trend(sweep: pd.DataFrame) -> pd.DataFrame:
    """Whether sparser subnetworks are less accurate: Spearman's rho of accuracy and sparsity within each seed, over its runs.

    -1 where every sparser subnetwork is worse. Then the mean over seeds with its interval: seeds are the units, not runs.

    Args:
        sweep: one row per pruning run and case: `seed`, `target` (0..1), `case`, `group` ("ID" or "OOD"), `accuracy` (NaN if
            missing). Rows whose `subnetwork` is "full" are left out.

    Returns:
        `case`, `group`, `rho`, `low`, `high` (95 %, Student t), `n` seeds. Each group also has a row `mean over cases`, the rho
        of its mean accuracy. A seed whose accuracy never changes (at the floor, say), or with fewer than three runs, ranks
        nothing and is not in `n`.

    Raises:
        ValueError: for a missing column, a target outside (0, 1), or a run and case that come twice.
    """
    rows: list[dict[str, object]] = []
    for (case, group), curves in _curves(pruned_rows(sweep, SWEEP_COLUMNS)).items():
        rho = mean_over_seeds(np.array([_rho(curve.dropna()) for _, curve in curves.iterrows()]), -1.0, 1.0)
        rows.append({"case": case, "group": group, "rho": rho.mean, "low": rho.low, "high": rho.high, "n": rho.n})
    return pd.DataFrame(rows)


def falls_at(
    sweep: pd.DataFrame, full: pd.DataFrame | None = None, *, drop: float | None = None, level: float | None = None
) -> pd.DataFrame:
    """The sparsity at which a seed's accuracy first falls: more than `drop` below the full model's, or below `level`.

    The least sparsity of the sweep that does, whether or not a sparser subnetwork recovers; nothing is interpolated.

    Args:
        sweep: as for `sparsity_trend`.
        full: the full model's `case` and `accuracy`, for `drop`; by default the rows of `sweep` whose `subnetwork` is "full".
        drop: how far below the full model, in accuracy (0.03: three points).
        level: below which accuracy.

    Returns:
        `case`, `group`, `sparsity` (mean over the `n` seeds that fall), `low`, `high` (95 %, Student t, inside 0..1), `n`, and
        `never`, the seeds that do not fall anywhere in the sweep. Each group also has a row `mean over cases`.

    Raises:
        ValueError: unless exactly one of `drop` and `level` is given, inside (0, 1); for no rows of the full model or none of a
            case; or as `sparsity_trend`.
    """
    rows: list[dict[str, object]] = []
    for (case, group), found in _falls(sweep, full, drop, level).items():
        mean = mean_over_seeds(found.to_numpy(np.float64), 0.0, 1.0)
        rows.append(
            {
                "case": case,
                "group": group,
                "sparsity": mean.mean,
                "low": mean.low,
                "high": mean.high,
                "n": mean.n,
                "never": int(found.isna().sum()),
            }
        )
    return pd.DataFrame(rows)


def fall_gap(sweep: pd.DataFrame, full: pd.DataFrame | None = None, *, drop: float = 0.03) -> SeedMean:
    """How much sparser a seed gets before it falls in-domain than before it falls out of domain, on the mean over cases.

    ID minus OOD sparsity of `falls_at`, paired by seed: positive where generalization goes first. Seeds that fall in neither or
    only one of the groups are not in `n`.

    Raises:
        ValueError: as `falls_at`, or if the sweep has no ID or no OOD case.
    """
    found = _falls(sweep, full, drop, None)
    if absent := [group for group in ("ID", "OOD") if (MEAN, group) not in found]:
        raise ValueError(f"the sweep has no {absent[0]} case, so there is no gap between ID and OOD")
    return mean_over_seeds((found[MEAN, "ID"] - found[MEAN, "OOD"]).to_numpy(np.float64), -1.0, 1.0)


def _falls(
    sweep: pd.DataFrame, full: pd.DataFrame | None, drop: float | None, level: float | None
) -> dict[tuple[str, str], pd.Series]:
    """For every case and group mean, by seed: the least sparsity that falls, or NaN."""
    given = [value for value in (drop, level) if value is not None]
    if len(given) != 1 or not 0 < given[0] < 1:
        raise ValueError(f"give a drop or a level, one of them and in (0, 1); got drop={drop}, level={level}")
    curves = _curves(pruned_rows(sweep, SWEEP_COLUMNS))
    thresholds = dict.fromkeys(curves, level or 0.0) if drop is None else _below_full(sweep, full, curves, drop)
    return {
        key: wide.apply(lambda curve, at=thresholds[key]: curve.index[curve < at].min(), axis=1) for key, wide in curves.items()
    }


def _below_full(
    sweep: pd.DataFrame, full: pd.DataFrame | None, curves: dict[tuple[str, str], pd.DataFrame], drop: float
) -> dict[tuple[str, str], float]:
    whole = full_rows(sweep, full, ("case", "accuracy")).set_index("case")["accuracy"]
    cases = [key for key in curves if key[0] != MEAN]
    if missing := [case for case, _ in cases if case not in whole.index or pd.isna(whole[case])]:
        raise ValueError(f"the full model was not evaluated on {missing[0]!r}")
    of_group = {group: [float(whole[case]) for case, its in cases if its == group] for _, group in cases}
    return {
        (case, group): (float(np.mean(of_group[group])) if case == MEAN else float(whole[case])) - drop
        for case, group in curves
    }


def _curves(pruned: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """For every case, and the mean over each group's cases: accuracy by seed (rows) and ascending target (columns)."""
    wide = pruned.pivot(index=["seed", "target"], columns="case", values="accuracy")
    groups = dict(zip(pruned["case"], pruned["group"], strict=True))
    curves = {(case, group): wide[case].unstack("target") for case, group in groups.items()}
    for group in dict.fromkeys(groups.values()):
        cases = [case for case, its in groups.items() if its == group]
        curves[MEAN, group] = wide[cases].mean(axis=1, skipna=False).unstack("target")
    return {key: curve.sort_index(axis=1) for key, curve in curves.items()}


def _rho(curve: pd.Series) -> float:
    return rank_correlation(curve.index.to_numpy(np.float64), curve.to_numpy(np.float64)).rho
