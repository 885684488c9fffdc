"""Random head sets: same size, same layers, never the heads they are compared with."""

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.analysis import layer_matched_sets
from hc_lens.units import Head

heads = st.sets(st.builds(Head, st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=10)


@given(heads, heads, st.integers(0, 5), st.integers(0, 100))
@settings(max_examples=100)
def test_sets_are_of_the_same_size_disjoint_from_what_is_excluded_and_different(chosen, exclude, n_sets, seed):
    if 24 - len(chosen | exclude) < len(chosen):
        return
    found = layer_matched_sets(chosen, n_sets, n_layers=4, n_heads=6, exclude=exclude, seed=seed)
    assert len(found) == len(set(found)) <= n_sets
    for one in found:
        assert len(set(one)) == len(chosen)
        assert not set(one) & (chosen | exclude)
    assert found == layer_matched_sets(chosen, n_sets, n_layers=4, n_heads=6, exclude=exclude, seed=seed)


def test_layers_are_matched_where_they_have_enough_other_heads():
    core = [Head(0, 0), Head(0, 1), Head(2, 3)]
    for one in layer_matched_sets(core, 30, n_layers=3, n_heads=8):
        assert Counter(head.layer for head in one) == {0: 2, 2: 1}


def test_a_full_layer_is_made_up_for_from_the_nearest_one_the_earlier_first():
    """Layer 1 has no other head: its stand-ins come from layer 0, then, that being used up by its own, from layer 2."""
    core = [Head(1, 0), Head(1, 1), Head(0, 0)]
    found = layer_matched_sets(core, 10, n_layers=4, n_heads=2)
    assert {Counter(head.layer for head in one)[0] for one in found} == {1}
    assert {Counter(head.layer for head in one)[2] for one in found} == {2}
    assert layer_matched_sets([Head(1, 0), Head(1, 1)], 5, n_layers=4, n_heads=2)[0] == (Head(0, 0), Head(0, 1))


def test_fewer_sets_when_the_model_holds_no_more():
    assert layer_matched_sets([Head(0, 0)], 10, n_layers=1, n_heads=4) != []
    assert len(layer_matched_sets([Head(0, 0)], 10, n_layers=1, n_heads=4)) == 3


def test_bad_input_names_what_is_wrong():
    with pytest.raises(ValueError, match="at least one head"):
        layer_matched_sets([], 1, n_layers=1, n_heads=4)
    with pytest.raises(ValueError, match="3 heads to match, but only 1"):
        layer_matched_sets([Head(0, i) for i in range(3)], 1, n_layers=1, n_heads=4)
    with pytest.raises(ValueError, match=r"L5\.H0 is not in this model"):
        layer_matched_sets([Head(5, 0)], 1, n_layers=1, n_heads=4)
    with pytest.raises(ValueError, match="must not be negative, got -1"):
        layer_matched_sets([Head(0, 0)], -1, n_layers=1, n_heads=4)
