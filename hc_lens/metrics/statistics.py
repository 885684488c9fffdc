"""Statistics of evaluated rows: intervals, divergence from the full model, agreement and calibration.

Everything here is a pure function of arrays: it knows no model and no data.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int, Num
    from torch import Tensor

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
    z2 = _normal_quantile(level) ** 2
    share = successes / n
    centre = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = (z2 * (share * (1 - share) / n + z2 / (4 * n * n))) ** 0.5 / (1 + z2 / n)
    # At the ends the two terms are equal on paper; rounding must not leave -1e-17.
    return Interval(0.0 if successes == 0 else centre - half, 1.0 if successes == n else centre + half)


def _normal_quantile(level: float) -> float:
    from scipy.special import ndtri

    _require_level(level)
    return float(ndtri(0.5 + level / 2))


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


def kl_to_full(full: Float[Tensor, "row label"], sub: Float[Tensor, "row label"]) -> Float[Tensor, " row"]:
    """KL(full || sub) of each row in nats, from logits: the divergence that pruning minimises."""
    from torch.nn.functional import log_softmax

    log_full = log_softmax(full.double(), dim=-1)
    log_sub = log_softmax(sub.double(), dim=-1)
    return (log_full.exp() * (log_full - log_sub)).sum(-1).float()


def agreement(full: Int[np.ndarray, " row"], sub: Int[np.ndarray, " row"]) -> float:
    """Share of rows on which two models predict the same class."""
    return float(np.mean(full == sub))


def calibration_error(confidence: Float[np.ndarray, " row"], correct: Bool[np.ndarray, " row"], n_bins: int = 15) -> float:
    """Expected calibration error: |accuracy - mean confidence| of equal-width confidence bins, weighted by their rows.

    Guo et al. 2017, equation 3. `confidence` is the probability of the predicted class; bins are (low, high].

    Raises:
        ValueError: for a confidence outside [0, 1].
    """
    if len(confidence) and not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-6):
        raise ValueError(f"confidences must be in [0, 1], got {confidence.min():.3g}..{confidence.max():.3g}")
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, weights=correct.astype(np.float64) - confidence, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(confidence))
