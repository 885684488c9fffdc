"""Intervals, rank correlations, overlaps and p-values against textbook examples and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from hc_lens.statistics import (
    bootstrap_interval,
    bootstrap_means,
    centred_ranks,
    cosine,
    jaccard_matrix,
    jackknife_interval,
    mean_over_seeds,
    monte_carlo_p,
    percentile_interval,
    rank_correlation,
    wilson_interval,
)


def test_wilson_interval_of_a_textbook_example():
    assert wilson_interval(8, 10) == pytest.approx((0.4902, 0.9433), abs=1e-4)


@given(st.integers(1, 200).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_interval_stays_in_range_holds_the_share_and_is_never_empty(counts):
    successes, n = counts
    low, high = wilson_interval(successes, n)
    assert 0 <= low <= successes / n <= high <= 1
    assert low < high
    mirrored = wilson_interval(n - successes, n)
    assert (1 - mirrored.high, 1 - mirrored.low) == pytest.approx((low, high))


def test_bootstrap_interval_of_a_mean_is_the_normal_one_on_many_rows():
    values = np.random.default_rng(1).normal(size=2_000)
    low, high = bootstrap_interval(values, lambda sample: sample.mean(1), n=4_000)
    assert (high - low) / 2 == pytest.approx(1.96 * values.std() / math.sqrt(2_000), rel=0.05)
    assert percentile_interval(bootstrap_means(values[:, None], n=4_000)[:, 0]) == pytest.approx((low, high), abs=0.005)


def test_bootstrap_resamples_rows_whole():
    """Two columns that differ by 1 in every row differ by 1 in every resample, however noisy they are."""
    noise = np.random.default_rng(0).normal(size=50)
    pair = np.stack([noise, noise + 1], axis=1)
    assert bootstrap_interval(pair, lambda s: (s[:, :, 1] - s[:, :, 0]).mean(1)) == pytest.approx((1, 1))
    draws = bootstrap_means(pair)
    assert np.allclose(draws[:, 1] - draws[:, 0], 1)
    assert draws[:, 0].std() > 0.05


def test_bootstrap_gives_the_same_interval_for_the_same_seed_in_any_chunking(monkeypatch):
    values = np.arange(40.0)
    whole = bootstrap_interval(values, lambda s: np.median(s, axis=1), n=100)
    monkeypatch.setattr("hc_lens.statistics._CHUNK", 40 * 7)
    assert bootstrap_interval(values, lambda s: np.median(s, axis=1), n=100) == whole


def test_bad_samples_name_the_value():
    with pytest.raises(ValueError, match="at least one row"):
        bootstrap_interval(np.zeros(0), lambda s: s.mean(1))
    with pytest.raises(ValueError, match=r"one value per draw, shape \(10,\)"):
        bootstrap_interval(np.zeros(3), lambda s: s, n=10)
    with pytest.raises(ValueError, match=r"level of an interval must be in \(0, 1\), got 95.0"):
        wilson_interval(1, 2, level=95.0)
    with pytest.raises(ValueError, match="got 3 of 2"):
        wilson_interval(3, 2)


def test_rank_correlation_by_hand():
    assert rank_correlation(np.array([1.0, 2.0, 3.0]), np.array([10.0, 20.0, 15.0])).rho == pytest.approx(0.5)


@pytest.mark.parametrize("pairs", [([1, 2], [2, 1]), ([1, 1, 1], [1, 2, 3]), ([1, 2, 3], [2, 2, 2])])
def test_too_few_pairs_or_a_constant_side_rank_nothing(pairs: tuple[list[int], list[int]]):
    rho, p_value, n = rank_correlation(*map(np.array, pairs))
    assert (math.isnan(rho), math.isnan(p_value), n) == (True, True, len(pairs[0]))


def test_rank_correlations_of_draws_are_those_of_each_draw():
    one, other = np.random.default_rng(0).integers(0, 5, (2, 20, 8))
    assert cosine(centred_ranks(one), centred_ranks(other)) == pytest.approx(
        [spearmanr(a, b).statistic for a, b in zip(one, other, strict=True)], abs=1e-12
    )


def test_jackknife_of_a_mean_is_students_t():
    values = np.array([1.0, 2.0, 4.0, 8.0])
    without = np.array([np.delete(values, i).mean() for i in range(4)])
    assert jackknife_interval(without, values.mean()) == pytest.approx(mean_over_seeds(values)[1:3])
    assert jackknife_interval(without, values.mean(), 0.0, 5.0) == (0.0, 5.0), "within the scale"
    assert np.isnan(jackknife_interval(without[:1], 1.0)).all()


def test_jaccard_of_each_two_sets():
    sets = np.array([[1, 1, 0], [0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=np.bool_)
    assert jaccard_matrix(sets).tolist() == [[1, 1 / 3, 0, 0], [1 / 3, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


def test_a_monte_carlo_p_counts_the_observed_among_the_draws_and_ties_against_it():
    assert monte_carlo_p(np.array([0.0, 1.0, 2.0]), 1.0) == 3 / 4
    assert monte_carlo_p(np.array([0.0, 1.0, 2.0]), 5.0) == 1 / 4
