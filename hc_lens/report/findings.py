"""A finding: one question put to the numbers, its verdict, and the sentence and rule behind it."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.statistics import Interval, bootstrap_means, percentile_interval

Verdict = Literal["yes", "no", "undecided", "not measured"]
"""`yes`: the numbers show it; `no`: they show that it is absent; `undecided`: the interval includes 0, or too few values."""

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

    @property
    def heading(self) -> str:
        """The answer as the heading of a section."""
        return heading(self.short)


def heading(clauses: str) -> str:
    """A clause, or several, with a capital and without full stop."""
    return clauses[:1].upper() + clauses[1:]


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
