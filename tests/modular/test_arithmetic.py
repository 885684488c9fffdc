"""Pairs, splits and corrupted labels: what holds for every prime, share and seed."""

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.modular.arithmetic import all_pairs, corrupt, split_pairs
from hc_lens.modular.limits import require_prime

PRIMES = (2, 3, 5, 7, 11, 13)
seeds = st.integers(0, 2**32)


def test_all_pairs_of_3_by_hand():
    pairs = all_pairs(3)
    assert pairs.numbers.tolist() == [[0, 0], [0, 1], [0, 2], [1, 0], [1, 1], [1, 2], [2, 0], [2, 1], [2, 2]]
    assert pairs.target.tolist() == [0, 1, 2, 1, 2, 0, 2, 0, 1]
    assert all_pairs(3, operator.mul).target.tolist() == [0, 0, 0, 0, 1, 2, 0, 2, 1]
    assert len(pairs) == 9


@given(st.sampled_from(PRIMES), st.floats(0.05, 0.95), seeds)
@settings(max_examples=50)
def test_a_split_has_every_pair_once_and_the_share_asked_for(p, alpha, seed):
    pairs = all_pairs(p)
    if not 0 < int(alpha * p * p) < p * p:
        with pytest.raises(ValueError, match="alpha"):
            split_pairs(pairs, alpha, seed)
        return
    split = split_pairs(pairs, alpha, seed)
    assert sorted(torch.cat(split).tolist()) == list(range(p * p))
    assert len(split.train) == int(alpha * p * p)
    again = split_pairs(pairs, alpha, seed)
    assert torch.equal(split.train, again.train)


@given(st.sampled_from(PRIMES), st.floats(0, 1), seeds)
@settings(max_examples=50)
def test_corruption_touches_the_chosen_labels_only(p, xi, seed):
    labels = all_pairs(p).target
    given_labels, corrupted = corrupt(labels, p, xi, seed)
    assert int(corrupted.sum()) == int(xi * len(labels))
    assert torch.equal(given_labels[~corrupted], labels[~corrupted])
    assert given_labels.min() >= 0
    assert given_labels.max() < p
    assert torch.equal(corrupt(labels, p, xi, seed).labels, given_labels)


def test_corrupted_labels_are_uniform_and_true_once_in_p_times():
    labels = torch.zeros(70_000, dtype=torch.long)
    drawn = corrupt(labels, 7, 1.0, seed=0).labels
    counts = torch.bincount(drawn, minlength=7)
    assert (counts.double() / 10_000 - 1).abs().max() < 0.05


def test_seeds_differ():
    pairs = all_pairs(13)
    assert not torch.equal(split_pairs(pairs, 0.5, 0).train, split_pairs(pairs, 0.5, 1).train)
    assert not torch.equal(corrupt(pairs.target, 13, 0.5, 0).labels, corrupt(pairs.target, 13, 0.5, 1).labels)


@pytest.mark.parametrize(
    ("p", "near"),
    [(-7, "2"), (0, "2"), (1, "2"), (4, "3 and 5"), (9, "7 and 11"), (91, "89 and 97"), (31 * 29, "887 and 907")],
)
def test_what_is_no_prime_is_refused_with_the_nearest(p, near):
    with pytest.raises(ValueError, match=f"p must be a prime, got {p}; the nearest: {near}"):
        require_prime(p)


@pytest.mark.parametrize("alpha", [-0.1, 0.0, 1.0, 1.5, 0.01, float("nan")])
def test_a_share_that_leaves_no_split_is_refused(alpha):
    with pytest.raises(ValueError, match=f"alpha, the share of 25 pairs trained on, must be in .* got {alpha}"):
        split_pairs(all_pairs(5), alpha, 0)


@pytest.mark.parametrize("xi", [-0.1, 1.1, float("nan")])
def test_a_share_of_corrupted_labels_out_of_range_is_refused(xi):
    with pytest.raises(ValueError, match=f"xi, .* must be in .0, 1., got {xi}"):
        corrupt(all_pairs(5).target, 5, xi, 0)
