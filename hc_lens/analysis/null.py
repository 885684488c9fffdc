"""How many heads subnetworks would share by chance: independent random subnetworks, and permutations within layers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hc_lens.statistics import Interval, monte_carlo_p

if TYPE_CHECKING:
    from jaxtyping import Bool, Int

_CHUNK = 16_000_000  # permuted mask entries held at once: 16 MB


@dataclass(frozen=True)
class NullResult:
    """The number of shared heads, and what chance gives.

    Attributes:
        observed: heads that at least k of n subnetworks keep.
        expected_size: under independent runs, each keeping heads at random at its own realised head rate.
        published_size: the same as the paper writes it, with each run's rate over all units, MLPs included. MLPs are hardly
            ever pruned, so the head rate is lower and the paper's figure too large (144 * 0.3^12 = 7.65e-5, not 5.7e-6).
        permutation_mean: mean over permutations of each run's heads within their layer: what the layers' rates alone explain.
        interval: central 95 % of the permutations.
        most: the largest number of shared heads in any permutation.
        p_value: one-sided, (1 + permutations with at least `observed`) / (1 + n); its smallest value is 1 / (1 + n).
        n: permutations.
    """

    observed: int
    expected_size: float
    published_size: float
    permutation_mean: float
    interval: Interval
    most: int
    p_value: float
    n: int


def independent_size(n_heads: int, keep_rates: Sequence[float], k: int | None = None) -> float:
    """Expected number of heads that at least `k` of the runs keep if each keeps every head independently at its own rate.

    For `k` = all runs (the default), `n_heads` times the product of the rates (The Heuristic Core, section 5); for fewer, the
    upper tail of the Poisson-binomial distribution.

    Raises:
        ValueError: for no runs, a rate outside [0, 1], or `k` outside 1..n.
    """
    if not keep_rates or not all(0 <= rate <= 1 for rate in keep_rates):
        raise ValueError(f"keep rates must be in [0, 1], one per run, got {list(keep_rates)}")
    threshold = len(keep_rates) if k is None else k
    if not 1 <= threshold <= len(keep_rates):
        raise ValueError(f"k must be in 1..{len(keep_rates)}, got {k}")
    exactly = np.ones(1)  # exactly[i]: probability that i of the runs so far keep a head
    for rate in keep_rates:
        exactly = np.convolve(exactly, [1 - rate, rate])
    return float(n_heads * exactly[threshold:].sum())


def core_null(
    kept: Bool[np.ndarray, "run layer unit"], k: int, n: int = 10_000, seed: int = 0, units: Sequence[int] | None = None
) -> NullResult:
    """Compare the number of heads that at least `k` runs keep with chance.

    The permutation null shuffles each run's heads within their layer, apart from the other runs: it keeps how many heads a run
    has in each layer, so it does not count it as agreement that all runs prefer the same layers. Runs with the same number in
    `units` are shuffled alike: runs of one seed at two sparsities share their randomness, so that their agreement is no
    evidence of a core. By default every run is a unit of its own. The expected sizes take all runs as independent.

    Raises:
        ValueError: if `n` is not positive or `k` is outside 1..runs.
    """
    heads = kept[:, :, :-1]
    n_runs, n_layers, n_heads = heads.shape
    if not 1 <= k <= n_runs:
        raise ValueError(f"k must be in 1..{n_runs}, the number of runs, got {k}")
    observed = int((heads.sum(0) >= k).sum())
    null = permuted_sizes(heads, k, n, seed, units)
    low, high = np.quantile(null, [0.025, 0.975])
    total = n_layers * n_heads
    return NullResult(
        observed=observed,
        expected_size=independent_size(total, heads.mean((1, 2)).tolist(), k),
        published_size=independent_size(total, kept.mean((1, 2)).tolist(), k),
        permutation_mean=float(null.mean()),
        interval=Interval(float(low), float(high)),
        most=int(null.max()),
        p_value=monte_carlo_p(null, float(observed)),
        n=n,
    )


def permuted_sizes(
    heads: Bool[np.ndarray, "run layer head"], k: int, n: int, seed: int, units: Sequence[int] | None = None
) -> Int[np.ndarray, " draw"]:
    """Heads kept by at least `k` runs, in each of `n` permutations of every unit's heads within their layers.

    Raises:
        ValueError: if `n` is not positive.
    """
    if n < 1:
        raise ValueError(f"the number of permutations must be positive, got {n}")
    generator = np.random.default_rng(seed)
    per_chunk = max(1, _CHUNK // heads.size)
    _, unit_of = np.unique(np.arange(len(heads)) if units is None else np.asarray(units), return_inverse=True)
    sizes = [_permuted(heads, unit_of, k, min(per_chunk, n - start), generator) for start in range(0, n, per_chunk)]
    return np.concatenate(sizes)


def _permuted(
    heads: Bool[np.ndarray, "run layer head"], unit_of: Int[np.ndarray, " run"], k: int, n: int, generator: np.random.Generator
) -> Int[np.ndarray, " draw"]:
    # How many runs of each unit keep a head, permuted as one: the runs of a unit stay together.
    counts = np.zeros((unit_of.max() + 1, *heads.shape[1:]), dtype=np.int16)
    np.add.at(counts, unit_of, heads)
    copies = np.broadcast_to(counts, (n, *counts.shape)).copy()
    shuffled = generator.permuted(copies, axis=-1, out=copies)
    return (shuffled.sum(1) >= k).sum((1, 2))
