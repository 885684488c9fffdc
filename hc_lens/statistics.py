"""Statistics of plain numbers: intervals, rank correlation, overlap of sets and p-values of random draws.

Everything here is a pure function of arrays: it knows no model and no data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Num

_CHUNK = 8_000_000  # resampled values held at once: 64 MB in fp64


class Interval(NamedTuple):
    """An interval estimate; `low <= high`."""

    low: float
    high: float


def wilson_interval(successes: int, n: int, level: float = 0.95) -> Interval:
    """Wilson score interval of a proportion (Wilson 1927): inside [0, 1], and never of zero width, also at 0 and n successes.

    Raises:
        ValueError: if `n` is not positive, `successes` is outside 0..n, or `level` is outside (0, 1).
    """
    if n < 1 or not 0 <= successes <= n:
        raise ValueError(f"successes must be in 0..n and n positive, got {successes} of {n}")
    from scipy.stats import binomtest

    _require_level(level)
    low, high = binomtest(successes, n).proportion_ci(level, "wilson")
    return Interval(float(low), float(high))


def _require_level(level: float) -> None:
    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must be in (0, 1), got {level}")


def bootstrap_interval(
    values: Num[np.ndarray, "row *columns"] | Bool[np.ndarray, "row *columns"],
    statistic: Callable[[np.ndarray], np.ndarray],
    n: int = 2_000,
    seed: int = 0,
    level: float = 0.95,
) -> Interval:
    """Percentile bootstrap interval of a statistic of the rows; all columns of a row are resampled together.

    `statistic` is vectorised: it gets `draw row *columns` and returns one value per draw, for instance
    `lambda sample: np.median(sample, axis=1)`. For means, `bootstrap_means` does the same without materialising the samples.

    Raises:
        ValueError: for no rows, `n` not positive, a level outside (0, 1), or a statistic that is not one value per draw.
    """
    _require_level(level)
    n_rows = _require_sample(values.shape[0], n)
    generator = np.random.default_rng(seed)
    per_chunk = max(1, _CHUNK // max(1, values.size))
    draws: list[np.ndarray] = []
    for start in range(0, n, per_chunk):
        size = min(per_chunk, n - start)
        result = np.asarray(statistic(values[generator.integers(n_rows, size=(size, n_rows))]))
        if result.shape != (size,):
            raise ValueError(f"the statistic must return one value per draw, shape ({size},); it returned shape {result.shape}")
        draws.append(result)
    return percentile_interval(np.concatenate(draws).astype(np.float64), level)


def bootstrap_means(values: Float[np.ndarray, "row column"], n: int = 2_000, seed: int = 0) -> Float[np.ndarray, "draw column"]:
    """Column means of `n` bootstrap samples of the rows; paired, since all columns see the same samples.

    A sample is drawn as the multinomial counts of its rows, so that all means are one matrix product.

    Raises:
        ValueError: for no rows or `n` not positive.
    """
    n_rows = _require_sample(values.shape[0], n)
    generator = np.random.default_rng(seed)
    means = np.empty((n, values.shape[1]), dtype=np.float64)
    per_chunk = max(1, _CHUNK // n_rows)
    for start in range(0, n, per_chunk):
        size = min(per_chunk, n - start)
        counts = generator.multinomial(n_rows, np.full(n_rows, 1 / n_rows), size=size)
        means[start : start + size] = counts.astype(np.float64) @ values.astype(np.float64) / n_rows
    return means


def percentile_interval(draws: Float[np.ndarray, " draw"], level: float = 0.95) -> Interval:
    """The central `level` share of the draws."""
    low, high = np.quantile(draws, [0.5 - level / 2, 0.5 + level / 2])
    return Interval(float(low), float(high))


def _require_sample(n_rows: int, n: int) -> int:
    if n_rows < 1:
        raise ValueError("a bootstrap needs at least one row, got 0")
    if n < 1:
        raise ValueError(f"the number of bootstrap draws must be positive, got {n}")
    return n_rows


class SeedMean(NamedTuple):
    """A mean over `n` seeds with its interval; the ends are NaN below two seeds, the mean without any."""

    mean: float
    low: float
    high: float
    n: int


def mean_over_seeds(
    values: Float[np.ndarray, " run"], least: float = -np.inf, most: float = np.inf, level: float = 0.95
) -> SeedMean:
    """Mean and Student t interval (n - 1 degrees of freedom) of one value per seed; NaN is a missing run and stays missing.

    The interval is for the mean of seeds like these, normally distributed; it has no width where all seeds agree. `least` and
    `most` are the ends of the scale, which it does not leave.

    Raises:
        ValueError: if the level is outside (0, 1).
    """
    _require_level(level)
    present = values[~np.isnan(values)].astype(np.float64)
    n = len(present)
    if n == 0:
        return SeedMean(np.nan, np.nan, np.nan, 0)
    mean = float(present.mean())
    if n == 1:
        return SeedMean(mean, np.nan, np.nan, 1)
    half = float(_student_quantile(float(n - 1), level) * present.std(ddof=1) / n**0.5)
    return SeedMean(mean, max(least, mean - half), min(most, mean + half), n)


def welch_interval(first: Float[np.ndarray, " value"], second: Float[np.ndarray, " other"], level: float = 0.95) -> Interval:
    """Welch's interval of mean(second) - mean(first) (Welch 1947); NaN if a sample has fewer than two values.

    It has no width where both samples have none.
    """
    if min(len(first), len(second)) < 2:
        return Interval(float("nan"), float("nan"))
    parts = [float(values.var(ddof=1)) / len(values) for values in (first, second)]
    difference, error2 = float(second.mean() - first.mean()), sum(parts)
    if error2 == 0:
        return Interval(difference, difference)
    freedom = error2**2 / sum(part**2 / (n - 1) for part, n in zip(parts, (len(first), len(second)), strict=True))
    half = _student_quantile(freedom, level) * error2**0.5
    return Interval(difference - half, difference + half)


def jackknife_interval(
    without: Float[np.ndarray, " run"], value: float, least: float = -np.inf, most: float = np.inf, level: float = 0.95
) -> Interval:
    """Student t interval of a statistic from its values without one run each; NaN for fewer than two runs."""
    n = len(without)
    if n < 2:
        return Interval(float("nan"), float("nan"))
    half = float(_student_quantile(float(n - 1), level) * np.sqrt((n - 1) * np.var(without)))
    return Interval(max(least, value - half), min(most, value + half))


def _student_quantile(freedom: float, level: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, 0.5 + level / 2))


class RankCorrelation(NamedTuple):
    """Spearman's rho, its two-sided p-value (t distribution), and the number of pairs it is over."""

    rho: float
    p_value: float
    n: int


def rank_correlation(first: Num[np.ndarray, " pair"], second: Num[np.ndarray, " pair"]) -> RankCorrelation:
    """Spearman's correlation, ties with average ranks; NaN for fewer than three pairs, or where one side ranks nothing."""
    from scipy.stats import spearmanr

    if len(first) < 3 or np.ptp(first) == 0 or np.ptp(second) == 0:
        return RankCorrelation(float("nan"), float("nan"), len(first))
    found = spearmanr(first, second)
    return RankCorrelation(float(found.statistic), float(found.pvalue), len(first))


def centred_ranks(values: Num[np.ndarray, "*draw value"]) -> Float[np.ndarray, "*draw value"]:
    """Ranks along the last axis, ties with average ranks, less their mean."""
    from scipy.stats import rankdata

    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(axis=-1, keepdims=True)


def cosine(first: Float[np.ndarray, "*draw value"], second: Float[np.ndarray, "*other value"]) -> Float[np.ndarray, "..."]:
    """The correlation of centred values over the last axis, Spearman's for centred ranks; NaN where one is 0 throughout.

    The other axes are matched by broadcasting.
    """
    with np.errstate(invalid="ignore"):
        norms = np.linalg.norm(first, axis=-1) * np.linalg.norm(second, axis=-1)
        return np.asarray(np.clip((first * second).sum(-1) / norms, -1, 1))


def jaccard_matrix(sets: Bool[np.ndarray, "set member"]) -> Float[np.ndarray, "set set"]:
    """|A & B| / |A | B| of each two sets, 1 between two empty ones."""
    held = sets.astype(np.int64)
    both = held @ held.T
    either = held.sum(1)[:, None] + held.sum(1)[None, :] - both
    return np.where(either > 0, both / np.maximum(either, 1), 1.0)


def monte_carlo_p(draws: Num[np.ndarray, " draw"], observed: float) -> float:
    """One-sided p-value: (1 + draws of at least `observed`) / (1 + draws), never 0 (Davison and Hinkley 1997, section 4.2)."""
    return (1 + int((draws >= observed).sum())) / (1 + len(draws))
