"""Overlap by chance, against hand counts and against permutations that are really drawn."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.analysis.chance import chance_of_hits, chance_of_sharing


def counts(*rows: list[int]) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def test_hits_of_one_random_set_are_hypergeometric():
    """2 of 4 heads, a fixed set of 2: both, one or none with probability 1/6, 4/6, 1/6."""
    chance = chance_of_hits(np.array([2]), counts([2]), 4)
    assert np.allclose(chance.probability, [1 / 6, 4 / 6, 1 / 6])
    assert chance.mean == pytest.approx(1)
    assert chance.p_value(2) == pytest.approx(1 / 6)
    assert chance.p_value(0) == pytest.approx(1)
    assert chance.interval == (0, 2)


def test_layers_and_sets_add_up():
    """A layer that is kept whole gives its hits for sure; a layer without target heads gives none."""
    chance = chance_of_hits(np.array([1, 0, 2]), counts([3, 2, 1], [0, 3, 3]), 3)
    # set 1: 1 of layer 0, and of layer 2 one head, in the target with 2/3; set 2: none of layer 0, both of layer 2
    assert np.allclose(chance.probability[[3, 4]], [1 / 3, 2 / 3])
    assert chance.mean == pytest.approx(1 + 2 / 3 + 2)


def test_sharing_of_two_and_three_sets():
    """Two sets of 2 in 4: 1/6, 4/6, 1/6. A third set of 1: it shares one that two share with probability 1/4 or 2/4."""
    assert np.allclose(chance_of_sharing(counts([2], [2]), 4).probability, [1 / 6, 4 / 6, 1 / 6])
    three = chance_of_sharing(counts([2], [2], [1]), 4).probability
    assert three[1] == pytest.approx(4 / 6 * 1 / 4 + 1 / 6 * 2 / 4)
    assert three[2] == 0
    assert np.allclose(chance_of_sharing(counts([2, 1]), 4).probability, [0, 0, 0, 1]), "a set shares all with itself"


sizes = st.integers(1, 4).flatmap(
    lambda layers: st.lists(st.lists(st.integers(0, 5), min_size=layers, max_size=layers), min_size=2, max_size=4)
)


@given(sizes)
@settings(max_examples=60)
def test_distributions_sum_to_one_and_have_the_expected_mean(rows: list[list[int]]):
    sets = np.array(rows, dtype=np.int64)
    hits, shared = chance_of_hits(sets[0], sets[1:], 5), chance_of_sharing(sets, 5)
    assert hits.probability.sum() == pytest.approx(1)
    assert hits.mean == pytest.approx(float((sets[0] * sets[1:] / 5).sum()))
    assert shared.probability.sum() == pytest.approx(1)
    assert shared.mean == pytest.approx(float((5 * np.prod(sets / 5, axis=0)).sum()))


def test_they_are_what_permutations_within_layers_give():
    generator = np.random.default_rng(0)
    sets = counts([3, 1, 4], [2, 2, 5], [4, 0, 1])
    drawn = np.zeros((20_000, *sets.shape, 6), dtype=bool)
    drawn[...] = np.arange(6) < sets[..., None]
    drawn = generator.permuted(drawn, axis=-1)
    shared = drawn.all(1).sum((1, 2))
    exact = chance_of_sharing(sets, 6).probability
    assert np.allclose(np.bincount(shared, minlength=len(exact))[: len(exact)] / len(shared), exact, atol=0.012)
    hits = (drawn[:, 1:] & (np.arange(6) < sets[0, :, None])).sum((1, 2, 3))
    exact = chance_of_hits(sets[0], sets[1:], 6).probability
    assert np.allclose(np.bincount(hits, minlength=len(exact)) / len(hits), exact, atol=0.012)


def test_p_values_of_random_sets_are_uniform():
    """Under the null, p <= a happens with probability at most a, and nearly a where counts are many."""
    generator = np.random.default_rng(1)
    target = np.array([5] * 12)
    chance = chance_of_hits(target, counts([6] * 12), 12)
    mask = np.arange(12) < target[:, None]
    kept = generator.permuted(np.broadcast_to(np.arange(12) < 6, (4_000, 12, 12)).copy(), axis=-1)
    values = np.array([chance.p_value(int(hits)) for hits in (kept & mask).sum((1, 2))])
    for level in (0.05, 0.25, 0.5, 0.75):
        assert (values <= level).mean() <= level + 0.02
        assert (values <= level).mean() > level - 0.12, "only the steps of a count keep it below"


def test_bad_input_names_the_value():
    with pytest.raises(ValueError, match=r"must have 0\.\.4 heads of each layer, got 5\.\.5"):
        chance_of_hits(np.array([2]), counts([5]), 4)
    with pytest.raises(ValueError, match="no sets of heads to intersect"):
        chance_of_sharing(np.zeros((0, 3), dtype=np.int64), 4)
    with pytest.raises(ValueError, match=r"the count must be in 0\.\.2, got 3"):
        chance_of_hits(np.array([2]), counts([2]), 4).p_value(3)
