"""Means over seeds: pruning runs are few, so an interval needs Student's t, and a missing run must stay missing."""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float


class SeedMean(NamedTuple):
    """A mean over `n` seeds with its interval; the ends are NaN below two seeds, the mean without any."""

    mean: float
    low: float
    high: float
    n: int


def mean_over_seeds(
    values: Float[np.ndarray, " run"], least: float = -np.inf, most: float = np.inf, level: float = 0.95
) -> SeedMean:
    """Mean and Student t interval (n - 1 degrees of freedom) of one value per seed; NaN is a missing run.

    The interval is for the mean of seeds like these, normally distributed; it has no width where all seeds agree. `least` and
    `most` are the ends of the scale, which it does not leave.

    Raises:
        ValueError: if the level is outside (0, 1).
    """
    from scipy.special import stdtrit

    if not 0 < level < 1:
        raise ValueError(f"the level of an interval must be in (0, 1), got {level}")
    present = values[~np.isnan(values)].astype(np.float64)
    n = len(present)
    if n == 0:
        return SeedMean(np.nan, np.nan, np.nan, 0)
    mean = float(present.mean())
    if n == 1:
        return SeedMean(mean, np.nan, np.nan, 1)
    half = float(stdtrit(n - 1, 0.5 + level / 2) * present.std(ddof=1) / n**0.5)
    return SeedMean(mean, max(least, mean - half), min(most, mean + half), n)
