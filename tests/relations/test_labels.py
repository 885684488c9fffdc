"""Labels for answers: one each, from one category, such that the tokenizer tells them apart."""

import pickle
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.relations.labels import CATEGORIES, LabelMap, assign_labels

Tokens = Callable[[str], Sequence[int]]

CONTINENTS = ("Africa", "Asia", "Europe")


def whole(text: str) -> Sequence[int]:
    """A tokenizer that has every word."""
    return [sum(ord(letter) * 256**place for place, letter in enumerate(text))]


def letters(text: str) -> Sequence[int]:
    """A tokenizer that has no word."""
    return [ord(letter) for letter in text]


def short_words(text: str) -> Sequence[int]:
    """A tokenizer that has the words of up to five letters, and cuts the others after three."""
    return whole(text) if len(text) <= 6 else [*whole(text[:4]), *whole(text[4:])]


def test_there_are_fourteen_categories_of_many_words_each_in_one() -> None:
    assert len(CATEGORIES) == 14
    assert all(len(words) >= 24 for words in CATEGORIES.values())
    times = Counter(word for words in CATEGORIES.values() for word in words)
    assert {word: n for word, n in times.items() if n > 1} == {}
    assert all(word.isalpha() and word.islower() for word in times)


@given(
    st.sampled_from(sorted(CATEGORIES)),
    st.integers(0, 1000),
    st.integers(1, 20),
    st.sampled_from([whole, letters, short_words]),
)
def test_a_label_is_read_back_as_its_answer(category: str, seed: int, n: int, tokens: Tokens) -> None:
    answers = [f"answer {i}" for i in range(n)]
    found = assign_labels(answers, category, seed, tokens)
    assert found == assign_labels(answers, category, seed, tokens)
    assert list(found.labels) == answers
    assert set(found.labels.values()) <= set(CATEGORIES[category])
    assert [found.answer(found.label(answer)) for answer in answers] == answers
    for one, other in combinations(found.labels.values(), 2):
        shared = min(len(tokens(f" {one}")), len(tokens(f" {other}")))
        assert tokens(f" {one}")[:shared] != tokens(f" {other}")[:shared]


def test_seeds_give_different_labels() -> None:
    assert len({tuple(assign_labels(CONTINENTS, "animals", seed, whole).labels.values()) for seed in range(20)}) > 15


def test_words_of_one_token_come_first() -> None:
    n_single = sum(len(word) <= 5 for word in CATEGORIES["animals"])
    for seed in range(5):
        answers = [str(i) for i in range(n_single + 3)]
        lengths = [
            len(short_words(f" {label}")) for label in assign_labels(answers, "animals", seed, short_words).labels.values()
        ]
        assert lengths == [1] * n_single + [2] * 3


def test_labels_of_which_one_begins_the_other_are_not_drawn_together() -> None:
    def first_letters(text: str) -> Sequence[int]:
        return [ord(text[1])]

    letters_of_animals = {word[0] for word in CATEGORIES["animals"]}
    answers = [str(i) for i in range(len(letters_of_animals))]
    labels = assign_labels(answers, "animals", 0, first_letters).labels.values()
    assert {label[0] for label in labels} == letters_of_animals
    with pytest.raises(ValueError, match=r"tells only \d+ of the 30 animals apart.*'\w+' and '\w+'"):
        assign_labels([*answers, "one more"], "animals", 0, first_letters)


def test_a_tokenizer_without_the_words_is_an_error() -> None:
    with pytest.raises(ValueError, match="tells only 1 of the"):
        assign_labels(CONTINENTS, "animals", 0, lambda text: [0])


def test_answers_among_the_labels_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"'colours' contain the answers \['Red', 'white'\]"):
        assign_labels(["white", "Red", "striped"], "colours", 0, whole)


def test_what_cannot_be_assigned_is_said() -> None:
    with pytest.raises(ValueError, match="did you mean 'animals'"):
        assign_labels(CONTINENTS, "animal", 0, whole)
    with pytest.raises(ValueError, match=r"\['Asia'\] are given more than once"):
        assign_labels(["Asia", "Europe", "Asia"], "animals", 0, whole)
    with pytest.raises(ValueError, match="31 answers need as many labels, 'animals' has 30 words"):
        assign_labels([str(i) for i in range(31)], "animals", 0, whole)
    with pytest.raises(ValueError, match="same label"):
        LabelMap("animals", 0, {"Asia": "crab", "Europe": "crab"})
    found = assign_labels(CONTINENTS, "animals", 0, whole)
    with pytest.raises(KeyError, match="no label for the answer 'Atlantis'"):
        found.label("Atlantis")
    with pytest.raises(KeyError, match="'unicorn' is no label"):
        found.answer("unicorn")


def test_a_label_map_goes_to_another_process() -> None:
    found = assign_labels(CONTINENTS, "fruits", 3, whole)
    assert pickle.loads(pickle.dumps(found)) == found
