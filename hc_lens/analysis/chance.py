"""Exact chance distributions of overlaps between sets of heads that are random within their layers.

The layer-stratified permutation null, without drawing permutations: shuffling a set of heads within its layers makes its
overlap with a fixed set hypergeometric in each layer, and layers are independent.
"""

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from hc_lens.statistics import Interval


@dataclass(frozen=True, eq=False)
class Chance:
    """The distribution of a count under a null: `probability[c]` is that of the count c."""

    probability: Float[np.ndarray, " count"] = field(repr=False)

    @property
    def mean(self) -> float:
        return float(self.probability @ np.arange(len(self.probability)))

    @property
    def interval(self) -> Interval:
        """Central 95 %: the 2.5 % and the 97.5 % quantile."""
        below = np.cumsum(self.probability)
        low, high = np.searchsorted(below, [0.025, 0.975])
        top = len(below) - 1  # the sum may round to less than 1
        return Interval(float(min(low, top)), float(min(high, top)))

    def p_value(self, observed: int) -> float:
        """The probability of at least `observed`.

        Raises:
            ValueError: for a count that cannot be.
        """
        if not 0 <= observed < len(self.probability):
            raise ValueError(f"the count must be in 0..{len(self.probability) - 1}, got {observed}")
        return min(1.0, float(self.probability[observed:].sum()))


def chance_of_hits(target: Int[np.ndarray, " layer"], sets: Int[np.ndarray, "run layer"], n_heads: int) -> Chance:
    """How many heads of a fixed set random sets contain, summed over the sets.

    Args:
        target: how many heads the fixed set has in each layer.
        sets: how many heads each random set has in each layer; it takes them at random among the layer's `n_heads`.
        n_heads: heads of a layer.

    Raises:
        ValueError: if a layer is said to have more heads than `n_heads`.
    """
    from scipy.stats import hypergeom

    _require_fit(sets, n_heads)
    _require_fit(target[None], n_heads)
    total = np.ones(1)
    for kept in sets:
        for size, drawn in zip(target, kept, strict=True):
            total = np.convolve(total, hypergeom.pmf(np.arange(size + 1), n_heads, size, drawn))
    return Chance(total)


def chance_of_sharing(sets: Int[np.ndarray, "run layer"], n_heads: int) -> Chance:
    """How many heads ALL of several random sets contain, each of so many heads in each layer.

    Raises:
        ValueError: for no sets, or if a layer is said to have more heads than `n_heads`.
    """
    from scipy.stats import hypergeom

    if not len(sets):
        raise ValueError("no sets of heads to intersect: give at least one")
    _require_fit(sets, n_heads)
    total = np.ones(1)
    for sizes in sets.T:
        shared = np.eye(1, sizes[0] + 1, sizes[0])[0]  # the first set alone: all its heads
        for size in sizes[1:]:
            # Of c heads shared so far, the next set, being random, keeps a hypergeometric number.
            steps = [hypergeom.pmf(np.arange(len(shared)), n_heads, c, size) for c in range(len(shared))]
            shared = shared @ np.stack(steps)
        total = np.convolve(total, shared)
    return Chance(total)


def _require_fit(sets: Int[np.ndarray, "run layer"], n_heads: int) -> None:
    if sets.size and not (sets.min() >= 0 and sets.max() <= n_heads):
        raise ValueError(f"a set must have 0..{n_heads} heads of each layer, got {int(sets.min())}..{int(sets.max())}")
