"""Training and held-out subjects: stratified by answer, by seed, and apart."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.split import Split, require_no_leak, split_facts, subject_key


def relation_of(counts: list[int]) -> Relation:
    facts = [Fact(f"subject {answer} {number}", f"answer {answer}") for answer, n in enumerate(counts) for number in range(n)]
    return Relation("made up", ("{} is",), tuple(facts))


@given(st.lists(st.integers(3, 20), min_size=1, max_size=6), st.floats(0.01, 0.99), st.integers(0, 5))
def test_every_answer_is_learned_and_tested_in_the_share_asked_for(counts: list[int], share: float, seed: int) -> None:
    relation = relation_of(counts)
    split = split_facts(relation, share, seed)
    assert sorted(split.train + split.held_out) == list(range(len(relation)))
    assert split == split_facts(relation, share, seed)
    trained = Counter(relation.facts[place].answer for place in split.train)
    for answer, n in enumerate(counts):
        n_train = trained[f"answer {answer}"]
        assert 2 <= n_train <= n - 1
        assert abs(n_train - share * n) <= 0.5 or n_train in (2, n - 1)


def test_seeds_train_on_different_subjects() -> None:
    relation = relation_of([20, 20])
    assert split_facts(relation, 0.5, 0) != split_facts(relation, 0.5, 1)


def test_an_answer_of_two_subjects_cannot_be_split() -> None:
    with pytest.raises(ValueError, match=r"'answer 1' of relation 'made up' has 2 subjects.*min_subjects"):
        split_facts(relation_of([5, 2]), 0.5, 0)


@pytest.mark.parametrize("share", [0.0, 1.0, -1.0, float("nan")])
def test_the_share_leaves_both_parts(share: float) -> None:
    with pytest.raises(ValueError, match="train_share"):
        split_facts(relation_of([5]), share, 0)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("U.S.A.", "u s a"),
        ("  New-York ", "new york"),
        ("\uff2eew York", "new york"),
        ("C++", "c++"),
        ("?!", "?!"),
        ("Straße", "strasse"),
    ],
)
def test_spellings_of_a_subject_share_a_key(name: str, key: str) -> None:
    assert subject_key(name) == key


def test_a_held_out_subject_that_is_trained_on_is_named_with_its_other_name() -> None:
    facts = (Fact("New York", "US"), Fact("Paris", "France"), Fact("new-york", "US"), Fact("Big Apple", "US"))
    relation = Relation("city", ("{} is in",), facts)
    with pytest.raises(ValueError, match=r"'new-york' of relation 'city' is trained on, as 'New York'"):
        require_no_leak(relation, Split((0, 1), (2, 3)))
    apart = Split((0, 2), (1, 3))
    require_no_leak(relation, apart)
    with pytest.raises(ValueError, match=r"'Big Apple' .* as 'New York'"):
        require_no_leak(relation, apart, {"New York": ["The Big Apple", "big apple"]})
    with pytest.raises(ValueError, match=r"'Big Apple' .* as 'new-york'"):
        require_no_leak(relation, apart, {"Big Apple": ["New York!"]})


def test_a_relation_that_names_a_subject_twice_is_not_split() -> None:
    facts = tuple(Fact("Paris" if n % 2 else "PARIS", "France") for n in range(8))
    with pytest.raises(ValueError, match="is trained on"):
        split_facts(Relation("city", ("{} is in",), facts), 0.5, 0)


def test_a_place_in_both_parts_is_a_leak() -> None:
    with pytest.raises(ValueError, match=r"'subject 0 1' .* is trained on"):
        require_no_leak(relation_of([3]), Split((0, 1), (1, 2)))


def test_a_split_is_of_its_relation() -> None:
    with pytest.raises(ValueError, match=r"facts 0\.\.2, a split names 3"):
        require_no_leak(relation_of([3]), Split((0, 1), (2, 3)))
