"""Across relations: does readability predict generalization, and still when other properties of the relations are held fixed?

Step 7 of the protocol. A row of a table is a relation, and relations are what every bootstrap draws.
"""

import warnings
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float
from scipy.stats import bootstrap

from hc_lens.prose import p_text
from hc_lens.relations.config import LEAST
from hc_lens.report import TextTable, interval_text, text_table
from hc_lens.statistics import Interval, bootstrap_means, centred_ranks, cosine, monte_carlo_p, percentile_interval
from hc_lens.tables import require_columns


class Correlation(NamedTuple):
    """A correlation of two columns over relations, given others; written as `r = 0.87 [0.79, 0.92]`.

    Attributes:
        statistic: Pearson's, or Spearman's: the same of ranks.
        given: the columns held fixed, joined by commas; empty for none.
        r: the correlation of the residuals after least squares on these columns and a constant; NaN where they leave nothing.
        low, high: its 95 % bootstrap interval over relations.
        p: two-sided, of permuted residuals (Freedman and Lane 1983).
        df: n - 2 less the columns held fixed, of which those that are constant or repeat others do not count.
        vif: variance inflation of x: 1 / (1 - R^2) of its regression on the columns held fixed.
        n: relations.
    """

    statistic: Literal["pearson", "spearman"]
    given: str
    r: float
    low: float
    high: float
    p: float
    df: int
    vif: float
    n: int

    def __str__(self) -> str:
        symbol = "r" if self.statistic == "pearson" else "rho"
        return f"{symbol} = {interval_text(self.r, self.low, self.high, 2) or 'undefined'}"


def correlations(
    table: pd.DataFrame, x: str, y: str, controls: Sequence[str] = (), n_boot: int = 4_000, seed: int = 0
) -> list[Correlation]:
    """Pearson's and Spearman's correlation of two columns: alone, given each control, and given all of them at once.

    Intervals are BCa (Efron 1987), for a correlation near 1 is skewed; where BCa is undefined (a sample of relations in which
    nothing varies, or in which the controls explain everything), percentile intervals of the samples in which it is defined.

    Args:
        table: a row per relation; none of the columns may have a missing value.
        n_boot: bootstrap samples, and permutations.

    Raises:
        ValueError: for fewer than four relations, a relation with several rows, a column that is missing or has missing values,
            or x or y the same for all relations.
    """
    columns = _checked(table, x, y, controls)
    givens = [(), *((name,) for name in controls), *([tuple(controls)] if len(controls) > 1 else [])]
    return [
        _correlation(statistic, given, [columns[name] for name in (x, y, *given)], n_boot, seed)
        for given in givens
        for statistic in ("pearson", "spearman")
    ]


def correlation_table(found: Sequence[Correlation], title: str) -> TextTable:
    """Correlations as a table of a report."""
    rows = [
        {
            "correlation": each.statistic.capitalize(),
            "given": each.given or "nothing",
            "r [95 %]": interval_text(each.r, each.low, each.high, 2),
            "p": "" if np.isnan(each.p) else p_text(each.p),
            "df": each.df,
            "variance inflation": each.vif,
        }
        for each in found
    ]
    return text_table(pd.DataFrame(rows), title, labels=2, digits=2)


class Ratio(NamedTuple):
    """A ratio of sums over relations, with a 95 % interval; NaN bounds where there is one relation only."""

    value: float
    low: float
    high: float


def ratio_over_relations(
    numerators: Float[np.ndarray, " row"], denominators: Float[np.ndarray, " row"], n_boot: int = 4_000, seed: int = 0
) -> Ratio:
    """Sum of numerators over sum of denominators, of a row per relation, with a percentile bootstrap over relations.

    So a share of things that are counted per relation: what belongs to a relation is drawn together.

    Raises:
        ValueError: if the denominators sum to nothing.
    """
    if denominators.sum() == 0:
        raise ValueError(f"a ratio over {len(denominators)} relations needs something to divide by; the denominators sum to 0")
    value = float(numerators.sum() / denominators.sum())
    if len(denominators) < 2:
        return Ratio(value, np.nan, np.nan)
    above, below = bootstrap_means(np.stack([numerators, denominators], axis=1), n=n_boot, seed=seed).T
    return Ratio(value, *percentile_interval(above[below != 0] / below[below != 0]))


def _checked(table: pd.DataFrame, x: str, y: str, controls: Sequence[str]) -> dict[str, np.ndarray]:
    names = (x, y, *controls)
    require_columns(table, names, "correlations")
    if len(table) < LEAST:
        raise ValueError(f"correlations need at least {LEAST} relations, got {len(table)}")
    if "relation" in table.columns and (twice := table["relation"].duplicated()).any():
        raise ValueError(f"correlations need one row per relation; {table['relation'][twice].iloc[0]!r} has several")
    columns = {name: table[name].to_numpy(dtype=np.float64, na_value=np.nan) for name in names}
    for name, values in columns.items():
        if not np.isfinite(values).all():
            place = int(np.flatnonzero(~np.isfinite(values))[0])
            who = table["relation"].iloc[place] if "relation" in table.columns else f"row {place}"
            raise ValueError(f"correlations: column {name!r} has no finite value for {who!r}; leave it out, or the column")
    for name in (x, y):
        if np.ptp(columns[name]) == 0:
            raise ValueError(f"correlations: {name!r} is {columns[name][0]:g} for all relations; nothing correlates with it")
    return columns


def _correlation(
    statistic: Literal["pearson", "spearman"],
    given: tuple[str, ...],
    columns: list[Float[np.ndarray, " row"]],
    n_boot: int,
    seed: int,
) -> Correlation:
    scale = centred_ranks if statistic == "spearman" else _centred
    x, y, *controls = map(scale, columns)
    fixed = np.stack(controls, axis=-1) if controls else np.empty((len(x), 0))
    df = len(x) - 2 - int(np.linalg.matrix_rank(fixed))
    left = _residuals(x, fixed)
    vif = float(x @ x / (left @ left)) if left.any() else np.inf
    r = float(cosine(left, _residuals(y, fixed))) if df > 0 else np.nan
    if np.isnan(r):
        return Correlation(statistic, ", ".join(given), r, np.nan, np.nan, np.nan, df, vif, len(x))

    def measure(*samples: np.ndarray, axis: int = -1) -> np.ndarray:  # SciPy passes the axis: always the last
        first, second, *others = map(scale, samples)
        held = np.stack(others, axis=-1) if others else np.empty((*first.shape, 0))
        return cosine(_residuals(first, held), _residuals(second, held))

    low, high = _bootstrapped(measure, columns, n_boot, seed)
    permuted = np.random.default_rng(seed).permuted(np.tile(_residuals(y, fixed), (n_boot, 1)), axis=1)
    p = monte_carlo_p(np.abs(cosine(left, _residuals(permuted, fixed))), abs(r) - 1e-12)
    return Correlation(statistic, ", ".join(given), r, low, high, p, df, vif, len(x))


def _bootstrapped(measure: Callable[..., np.ndarray], columns: list[np.ndarray], n_boot: int, seed: int) -> Interval:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # that an interval is undefined shows in the interval
        found = bootstrap(
            columns,
            measure,
            paired=True,
            vectorized=True,
            n_resamples=n_boot,
            method="BCa",
            rng=np.random.default_rng(seed),
        )
    low, high = (float(bound) for bound in found.confidence_interval)
    if np.isfinite(low) and np.isfinite(high):
        return Interval(low, high)
    defined = found.bootstrap_distribution[~np.isnan(found.bootstrap_distribution)]
    return percentile_interval(defined) if len(defined) else Interval(np.nan, np.nan)


def _centred(values: np.ndarray) -> np.ndarray:
    return values - values.mean(axis=-1, keepdims=True)


def _residuals(values: np.ndarray, fixed: np.ndarray) -> np.ndarray:
    """What least squares on the last axis of `fixed` leave of values; both centred, rows before that axis.

    A residual that is nothing but rounding is 0.
    """
    if fixed.shape[-1] == 0:
        return values
    fitted = fixed @ (np.linalg.pinv(fixed, rcond=1e-10) @ values[..., None])
    left = values - fitted[..., 0]
    scale = np.linalg.norm(values, axis=-1, keepdims=True)
    return np.where(np.linalg.norm(left, axis=-1, keepdims=True) > 1e-10 * scale, left, 0)
