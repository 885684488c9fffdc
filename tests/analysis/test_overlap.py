"""What subnetworks share, on masks small enough to count by hand."""

import math
from fractions import Fraction
from functools import partial
from itertools import pairwise, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.analysis import (
    head_frequency,
    heuristic_core,
    independent_size,
    jaccard,
    joint_histogram,
    mlp_frequency,
    spearman,
)
from hc_lens.analysis.null import permuted_sizes
from hc_lens.units import Head
from tests.analysis.masks import of_mask
from tests.analysis.masks import sub as any_sub

sub = partial(any_sub, seed=0)

THREE = [sub("110.1", "011.1", seed=42), sub("100.1", "111.0", seed=43), sub("101.1", "011.1", seed=44)]
TWO = [sub("111.1", "010.1"), sub("100.1", "011.1")]


def test_frequency_counts_the_runs_that_keep_each_head():
    table = head_frequency(THREE)
    assert list(table["count"]) == [3, 1, 1, 1, 3, 3]
    assert list(table["layer"]) == [0, 0, 0, 1, 1, 1]
    assert list(table["head"]) == [0, 1, 2, 0, 1, 2]
    assert set(table["of"]) == {3}
    assert list(mlp_frequency(THREE)["count"]) == [3, 2]


def test_joint_histogram_places_every_head_once():
    """Counts of 3 and of 2 runs: (3,2) (1,1) (1,1) (1,0) (3,2) (3,1)."""
    table = joint_histogram(THREE, TWO)
    filled = {(r.i, r.j): r.heads for r in table.itertuples(index=False) if r.heads}
    assert filled == {(3, 2): 2, (1, 1): 2, (1, 0): 1, (3, 1): 1}
    assert len(table) == 4 * 3
    assert table["heads"].sum() == 6


def test_spearman_over_all_heads_with_average_ranks():
    """Ranks by hand. Counts 3 1 1 1 3 3: ranks 5 2 2 2 5 5. Counts 2 1 1 0 2 1: ranks 5.5 3 3 1 5.5 3."""
    ranks = [(Fraction(5), Fraction(11, 2)), (2, 3), (2, 3), (2, 1), (5, Fraction(11, 2)), (5, 3)]
    mean = Fraction(7, 2)
    cov = sum((a - mean) * (b - mean) for a, b in ranks)
    var = [sum((pair[side] - mean) ** 2 for pair in ranks) for side in (0, 1)]
    found = spearman(THREE, TWO)
    assert found.rho == pytest.approx(float(cov) / math.sqrt(float(var[0] * var[1])))
    assert (cov, var) == (Fraction(21, 2), [Fraction(27, 2), 15])
    assert found.n == 6
    assert 0 < found.p_value < 0.1


def test_spearman_is_one_with_itself_and_undefined_where_every_head_is_kept_alike():
    assert spearman(THREE, THREE).rho == pytest.approx(1)
    everything = [sub("111.1", "111.1")]
    assert math.isnan(spearman(THREE, everything).rho)


def test_jaccard_of_pairs():
    """Heads of the three: {00 01 11 12}, {00 10 11 12}, {00 02 11 12}: each pair shares 3 of 5."""
    table = jaccard(THREE)
    assert list(table.index) == list(table.columns) == ["seed 42", "seed 43", "seed 44"]
    assert np.allclose(table, [[1, 0.6, 0.6], [0.6, 1, 0.6], [0.6, 0.6, 1]])
    nothing = [sub("000.1", "000.1", seed=None), sub("000.0", "000.0", seed=1), THREE[0]]
    assert list(jaccard(nothing).index) == ["subnetwork 0", "seed 1", "seed 42"], "as the evaluation calls them"
    assert np.allclose(jaccard(nothing), [[1, 1, 0], [1, 1, 0], [0, 0, 1]])


def test_core_is_the_heads_in_k_of_n():
    core = heuristic_core(THREE)
    assert core.heads == (Head(0, 0), Head(1, 1), Head(1, 2))
    assert (core.k, core.n) == (3, 3)
    assert len(heuristic_core(THREE, k=1).heads) == 6
    assert core.frequency["core"].sum() == 3
    assert list(core.mlps["count"]) == [3, 2]


masks = st.lists(st.lists(st.booleans(), min_size=8, max_size=8), min_size=1, max_size=5)


@given(masks)
@settings(max_examples=50)
def test_the_core_of_all_runs_is_their_intersection_and_shrinks_with_k(bits):
    subs = [of_mask(torch.tensor(row).view(2, 4), i) for i, row in enumerate(bits)]
    kept = [{Head(layer, h) for layer, h in product(range(2), range(3)) if s.mask[layer, h]} for s in subs]
    cores = [set(heuristic_core(subs, k).heads) for k in range(1, len(subs) + 1)]
    assert cores[0] == set.union(*kept)
    assert cores[-1] == set.intersection(*kept)
    assert all(small <= large for large, small in pairwise(cores))


def test_expected_size_of_independent_subnetworks_by_hand():
    """Rates 1/2 and 1/4: both 1/8; at least one 1 - 3/8."""
    assert independent_size(8, [0.5, 0.25]) == pytest.approx(1.0)
    assert independent_size(8, [0.5, 0.25], k=1) == pytest.approx(5.0)


def test_the_published_independent_null():
    """Section 5: 12 subnetworks that keep 30 %; with the heads' own rate, 34.8 of 144 as all 12 MLPs stay, it is smaller."""
    assert independent_size(144, [0.3] * 12) == pytest.approx(7.65e-5, rel=1e-3)
    assert independent_size(144, [34.8 / 144] * 12) == pytest.approx(5.7e-6, rel=0.01)


def test_permutation_null_has_the_hypergeometric_distribution():
    """Two runs keep 2 of 4 heads of a layer: they share 0, 1 or 2 with probability 1/6, 4/6, 1/6."""
    heads = np.zeros((2, 1, 4), dtype=bool)
    heads[:, :, :2] = True
    sizes = permuted_sizes(heads, 2, 20_000, seed=0)
    shares = np.bincount(sizes, minlength=3) / len(sizes)
    assert np.allclose(shares, [1 / 6, 4 / 6, 1 / 6], atol=0.015)


def test_permutation_stays_within_layers():
    """Both runs keep all of layer 0 and nothing of layer 1: no permutation can change what they share."""
    null = heuristic_core([sub("111.1", "000.1")] * 2).null(n=200)
    assert (null.observed, null.permutation_mean, null.most, null.p_value) == (3, 3.0, 3, 1.0)
    assert null.expected_size == pytest.approx(6 * 0.25)
    assert null.published_size == pytest.approx(6 * (5 / 8) ** 2)


def test_two_runs_of_one_seed_are_no_evidence_of_a_core():
    """The same mask twice: shared by chance only, if the runs are one seed's; surprising, if they are of two."""
    twice = [sub("11000000.1", seed=42)] * 2
    assert heuristic_core(twice).null(n=500).p_value == 1.0
    apart = heuristic_core([sub("11000000.1", seed=42), sub("11000000.1", seed=43)]).null(n=20_000)
    assert apart.p_value == pytest.approx(1 / 28, abs=0.006)  # both of 2 in 8 heads


def test_heads_shared_beyond_chance_get_the_smallest_p_value():
    rows = np.zeros((6, 4, 9), dtype=bool)
    rows[:, :, 8] = True
    rows[:, :, 0] = True  # every run keeps head 0 of each layer and one other
    for run in range(6):
        rows[run, :, 1 + run] = True
    core = heuristic_core([of_mask(torch.from_numpy(row), i) for i, row in enumerate(rows)])
    null = core.null(n=999, seed=3)
    assert null.observed == 4
    assert null.p_value == pytest.approx(1 / 1000)
    assert null.expected_size == pytest.approx(32 * 0.25**6)
    assert null == core.null(n=999, seed=3)


def test_bad_input_names_what_is_wrong():
    with pytest.raises(ValueError, match="no subnetworks"):
        head_frequency([])
    with pytest.raises(ValueError, match=r"subnetwork 1 has a mask of shape \(1, 4\)"):
        jaccard([THREE[0], sub("110.1")])
    with pytest.raises(ValueError, match=r"k must be in 1\.\.3, the number of subnetworks, got 4"):
        heuristic_core(THREE, k=4)
    with pytest.raises(ValueError, match="each needs at least one"):
        spearman(THREE, [])
    with pytest.raises(ValueError, match=r"keep rates must be in \[0, 1\]"):
        independent_size(8, [1.5])
    with pytest.raises(ValueError, match="permutations must be positive"):
        heuristic_core(THREE).null(n=0)
