"""What cleaning keeps, what it says of the rest, and which relations repeat another."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.relations.cleaning import TooSmallError, clean, distinct, usable
from hc_lens.relations.config import CleaningConfig
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.split import split_facts, subject_key


def relation_of(facts: list[Fact], name: str = "made up") -> Relation:
    return Relation(name, ("{} is",), tuple(facts))


def counted(counts: dict[str, int], prefix: str = "") -> list[Fact]:
    return [Fact(f"{prefix}{answer} {number}", answer) for answer, n in counts.items() for number in range(n)]


FACTS = st.lists(
    st.builds(Fact, st.sampled_from([f"s{i}" for i in range(60)] + ["S1", "s-2"]), st.sampled_from("abcd")), min_size=1
)


@given(FACTS, st.integers(3, 5), st.integers(2, 3), st.sampled_from([None, 5, 7]), st.sampled_from([None, 12, 20]))
def test_what_is_left_can_be_split_and_the_rest_is_accounted_for(
    facts: list[Fact], min_subjects: int, max_answers: int, per_answer: int | None, max_subjects: int | None
) -> None:
    config = CleaningConfig(min_subjects, max_answers, per_answer, max_subjects)
    relation = relation_of(facts)
    try:
        found = clean(relation, config)
    except TooSmallError:
        return
    kept = found.relation
    counts = Counter(fact.answer for fact in kept.facts)
    assert 2 <= len(counts) <= max_answers
    assert min(counts.values()) >= min_subjects
    assert per_answer is None or max(counts.values()) <= per_answer
    assert max_subjects is None or len(kept) <= max_subjects
    assert len({subject_key(subject) for subject in kept.subjects}) == len(kept)
    assert len(kept) + found.dropped["count"].sum() == len(relation)
    places = [facts.index(fact) for fact in kept.facts]
    assert places == sorted(places)
    split_facts(kept, 0.5, 0)


def test_every_reason_names_what_it_dropped() -> None:
    facts = [
        *counted({"a": 6, "b": 5, "c": 4, "d": 3, "e": 1}),
        Fact("A 0", "a"),  # a 0 again
        Fact("both", "a"),
        Fact("both!", "b"),
    ]
    found = clean(relation_of(facts), CleaningConfig(min_subjects=3, max_answers=3, max_subjects_per_answer=5))
    rows = [tuple(None if value != value else value for value in row) for row in found.dropped.itertuples(index=False)]
    assert rows == [
        ("repeated", "a 0", "a", 1),
        ("several answers", "both", None, 2),
        ("answer of too few subjects", None, "e", 1),
        ("beyond max_answers", None, "d", 3),
        ("beyond the subjects per answer", None, "a", 1),
    ]
    assert Counter(fact.answer for fact in found.relation.facts) == {"a": 5, "b": 5, "c": 4}


def test_a_clean_relation_stays_as_it_is() -> None:
    relation = relation_of(counted({"a": 6, "b": 5}))
    found = clean(relation)
    assert found.relation == relation
    assert found.dropped.empty


def test_fewer_subjects_in_all_come_from_the_answers_that_have_the_most() -> None:
    found = clean(relation_of(counted({"a": 40, "b": 20, "c": 6})), CleaningConfig(max_subjects=30))
    assert Counter(fact.answer for fact in found.relation.facts) == {"a": 12, "b": 12, "c": 6}


def test_seeds_keep_different_subjects() -> None:
    relation = relation_of(counted({"a": 40, "b": 40}))
    subjects = {clean(relation, CleaningConfig(max_subjects_per_answer=10, seed=seed)).relation.subjects for seed in (0, 0, 1)}
    assert len(subjects) == 2


def test_a_relation_with_one_answer_left_is_said_to_be_too_small() -> None:
    with pytest.raises(TooSmallError, match=r"relation 'made up' \(9 facts, 2 answers\): 1 of its answers have at least 5"):
        clean(relation_of(counted({"a": 6, "b": 3})))
    with pytest.raises(TooSmallError, match=": 0 of its"):
        clean(relation_of([Fact("x", "a"), Fact("x", "b")]))
    with pytest.raises(TooSmallError, match="max_subjects=10 leaves 3 subjects of each, fewer than min_subjects=5"):
        clean(relation_of(counted({"a": 6, "b": 6, "c": 6})), CleaningConfig(max_subjects=10))


@pytest.mark.parametrize(
    ("field", "value"),
    [("min_subjects", 2), ("max_answers", 1), ("max_subjects_per_answer", 4), ("max_subjects", 9)],
)
def test_a_field_out_of_its_range_is_named(field: str, value: int) -> None:
    with pytest.raises(ValueError, match=rf"{field} must be at least .* got {value}"):
        CleaningConfig(**{field: value})


def test_a_relation_of_the_same_facts_is_a_repeat_of_the_first() -> None:
    facts = counted({"a": 10, "b": 10})
    part = relation_of([*facts[:6], *counted({"a": 4}, "other ")], "part")
    spelled = relation_of([Fact(fact.subject.upper(), f"{fact.answer}.") for fact in facts], "spelled")
    swapped = relation_of([Fact(fact.subject, "ab"[fact.answer == "a"]) for fact in facts], "swapped")
    found = distinct([relation_of(facts, "first"), part, spelled, swapped])
    assert [relation.name for relation in found.relations] == ["first", "swapped"]
    assert found.repeats.to_dict("records") == [
        {"name": "part", "same_as": "first", "overlap": 0.6},
        {"name": "spelled", "same_as": "first", "overlap": 1.0},
    ]
    assert [relation.name for relation in distinct([relation_of(facts, "first"), part], 0.7).relations] == ["first", "part"]
    with pytest.raises(ValueError, match="threshold"):
        distinct([], 0.0)


def test_a_relation_too_small_to_use_leaves_no_other_out() -> None:
    facts = counted({"a": 6, "b": 6})
    found = usable([relation_of(facts[:3], "few"), relation_of(facts, "all"), relation_of(facts, "again")])
    assert [cleaned.relation.name for cleaned in found.cleaned] == ["all"]
    assert found.left_out["name"].tolist() == ["few", "again"]
    assert "at least 5 subjects" in found.left_out["reason"][0]
    assert found.left_out["reason"][1] == "100% of its facts, or of theirs, are those of 'all'"
