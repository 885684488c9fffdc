"""Active and inert facts over repeated splits, and how their margins compare, worked by hand."""

import pandas as pd
import pytest
import torch

from hc_lens.relations.facts import ACTIVE, INERT, NOT_RECALLED, fact_states, margin_gap, observations
from hc_lens.relations.split import Split

SUBJECTS = ("Paris", "Rome", "Oslo", "Lima")


def observed():
    """Paris is held out twice, right when it is recalled; Rome is recalled and wrong; Oslo is right but never recalled."""
    first = observations(
        "city",
        SUBJECTS,
        Split((3,), (0, 1, 2)),
        torch.tensor([True, False, True]),
        torch.tensor([True, True, False]),
        torch.tensor([3.0, -1.0, 2.0]),
    )
    second = observations(
        "city", SUBJECTS, Split((1, 2, 3), (0,)), torch.tensor([False]), torch.tensor([False]), torch.tensor([1.0])
    )
    return pd.concat([first, second], ignore_index=True)


def test_states_are_those_of_the_times_with_recall():
    facts = fact_states(observed()).set_index("subject")
    assert facts.loc["Paris", ["times", "recalled", "right", "margin", "state"]].tolist() == [2, 0.5, 1, 2, ACTIVE]
    assert facts.loc["Rome", "state"] == INERT
    assert facts.loc["Oslo", "state"] == NOT_RECALLED
    assert pd.isna(facts.loc["Oslo", "right"])
    assert "Lima" not in facts.index


def test_the_threshold_is_a_share_of_times():
    twice = pd.concat([observed(), observed().assign(right=False, recalled=True)])
    assert fact_states(twice).set_index("subject").loc["Paris", "state"] == INERT  # right in one of three
    assert fact_states(twice, threshold=0.3).set_index("subject").loc["Paris", "state"] == ACTIVE
    with pytest.raises(ValueError, match="got 1"):
        fact_states(twice, threshold=1.0)


def facts(rows):
    return pd.DataFrame(rows, columns=["relation", "state", "margin"])


def test_margins_are_compared_within_relations():
    told = [("a", ACTIVE, 5.0), ("a", ACTIVE, 3.0), ("a", INERT, 2.0)]
    told += [("b", ACTIVE, -6.0), ("b", INERT, -7.0), ("b", INERT, -5.0)]
    table = facts([*told, ("b", NOT_RECALLED, 99.0), ("c", ACTIVE, 50.0)])
    gap = margin_gap(table)
    assert (gap.active, gap.inert, gap.relations) == (3, 3, 2)
    assert gap.difference.value == pytest.approx((2 + 0) / 2)  # both relations weigh 2/3
    assert gap.larger.value == pytest.approx((2 + 1) / 4)
    assert gap.difference.low <= 1 <= gap.difference.high
    with pytest.raises(ValueError, match="no relation has both"):
        margin_gap(table[table["relation"] == "c"])


def test_relations_that_differ_do_not_make_a_gap():
    """Relation a has large margins and mostly active facts, b small ones and mostly inert ones; within each nothing differs."""
    rows = [("a", state, 10.0 + step) for state, n in ((ACTIVE, 8), (INERT, 2)) for step in range(2) for _ in range(n)]
    rows += [("b", state, float(step)) for state, n in ((ACTIVE, 2), (INERT, 8)) for step in range(2) for _ in range(n)]
    gap = margin_gap(facts(rows))
    assert gap.difference.value == pytest.approx(0)
    assert gap.larger.value == pytest.approx(0.5)
