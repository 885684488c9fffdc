"""A finding: one question put to the numbers, its verdict, and the sentence and rule behind it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.statistics import Interval, bootstrap_means, percentile_interval

Verdict = Literal["yes", "no", "undecided", "not measured"]
"""`yes`: the numbers show it; `no`: they show that it is absent; `undecided`: the interval includes 0, or too few values."""

MINUS = "\N{MINUS SIGN}"

ENOUGH = 3
"""With fewer values than this a bootstrap interval says nothing, and the verdict is `undecided`."""


@dataclass(frozen=True)
class Finding:
    """A question answered from the numbers.

    `short` is the answer as a clause, without capital and full stop; `sentence` gives the numbers; `rule` says what decided.
    """

    key: str
    question: str
    verdict: Verdict
    short: str
    sentence: str
    rule: str


def not_measured(key: str, question: str, short: str, why: str) -> Finding:
    """The finding for something that the run does not hold."""
    return Finding(key, question, "not measured", short, why, "")


def sign_verdict(interval: Interval) -> Verdict:
    """`yes` if the interval lies above 0, `no` if below, else `undecided`."""
    return "yes" if interval.low > 0 else "no" if interval.high < 0 else "undecided"


def mean_interval(values: Float[np.ndarray, " value"]) -> Interval:
    """Bootstrap 95 % interval of the mean; without bounds where there are too few values."""
    if len(values) < ENOUGH:
        return Interval(-np.inf, np.inf)
    return percentile_interval(bootstrap_means(values[:, None])[:, 0])


def difference_interval(first: Float[np.ndarray, " value"], second: Float[np.ndarray, " other"]) -> Interval:
    """Bootstrap 95 % interval of mean(first) - mean(second), independent samples; without bounds where one is too small."""
    if min(len(first), len(second)) < ENOUGH:
        return Interval(-np.inf, np.inf)
    draws = bootstrap_means(first[:, None], seed=0)[:, 0] - bootstrap_means(second[:, None], seed=1)[:, 0]
    return percentile_interval(draws)


def values(column: pd.Series) -> Float[np.ndarray, " value"]:
    """A column as 64-bit floats."""
    return column.to_numpy(dtype=np.float64)


def percent(share: float) -> str:
    """A share as a percentage with one decimal: `98.1 %`."""
    return f"{100 * share:.1f} %"


def sparsity(share: float) -> str:
    """A sparsity as a whole percentage: `50 % sparsity`."""
    return f"{100 * share:.0f} % sparsity"


def points(difference: float) -> str:
    """A difference of shares in percentage points: `12.3 points`."""
    return f"{100 * difference:.1f} points".replace("-", MINUS)


def p_text(value: float) -> str:
    """A p-value with two significant digits, one where it is tiny: `0.041`, `2e-5`."""
    return f"{value:.2g}" if value >= 1e-4 else f"{value:.0e}".replace("e-0", "e-")


def in_points(interval: Interval) -> str:
    """An interval of shares in points, or why there is none: `(95 % interval 1.0 to 2.0)`."""
    if not np.isfinite(interval.low):
        return f"(fewer than {ENOUGH} values: no interval)"
    return f"(95 % interval {100 * interval.low:.1f} to {100 * interval.high:.1f})".replace("-", MINUS)


def listed(items: list[str], most: int = 12) -> str:
    """`a, b and c`; beyond `most`, the rest is counted."""
    if len(items) > most:
        items = [*items[:most], f"{len(items) - most} more"]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}" if items else "none"


def counted(number: int, noun: str) -> str:
    """`1 head`, `3 heads`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
