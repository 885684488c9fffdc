"""The embedded task: labels that an independent reading of the grammar confirms, cases no bag of words tells apart."""

import math
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import hstack
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GroupKFold, cross_val_predict
from transformers import AutoTokenizer

from hc_lens.data import grammar
from hc_lens.data.synthetic import MAX_LENGTH, TWIN_SUFFIX, synthetic_config, synthetic_nli, synthetic_tokenizer
from hc_lens.data.task import Split, Task

CASES = ("subject_object_swap", "preposition", "relative_clause", "conjunction", "embedded_if", "embedded_verb")
SMALL = {"n_train": 1_200, "n_id": 120, "n_ood_per_case": 40}


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=6_000, n_id=500, n_ood_per_case=300)


class Fact(NamedTuple):
    subject: str
    verb: str
    object: str | None
    negated: bool


def facts(sentence: str) -> set[Fact]:
    """What a sentence of the grammar says happened: a reader written apart from the templates, from the words alone."""
    found: set[Fact] = set()
    for part in sentence.split(" ; "):
        if part.startswith("if "):
            continue
        if " that " in part:
            attitude, complement = part.split(" that ")
            if attitude.split()[-1] in grammar.FACTIVE:
                found |= facts(complement)
            continue
        found |= clause_facts(part)
    return found


def clause_facts(clause: str) -> set[Fact]:
    for place in grammar.PLACES:
        clause = clause.replace(f"in {place}", "")
    ignored = {*grammar.ADVERBS, *grammar.TIMES}
    words = [word for word in clause.split() if word not in ignored]
    found: set[Fact] = set()
    subjects, rest = noun_phrase(words, found)
    negated = rest[0] == "never"
    verb, *rest = rest[negated:]
    objects: list[str | None] = [None]
    if verb in grammar.TRANSITIVE:
        objects, rest = noun_phrase(rest, found)
    assert verb in grammar.TRANSITIVE + grammar.INTRANSITIVE, f"no verb where one should be: {clause}"
    assert not rest, f"{rest} left over in {clause}"
    return found | {Fact(s, verb, o, negated) for s in subjects for o in objects}


def noun_phrase(words: list[str], found: set[Fact]) -> tuple[list[str], list[str]]:
    person, *rest = words
    assert person in grammar.PERSONS
    if rest and rest[0] in grammar.PREPOSITIONS:
        rest = rest[2:]
    if rest and rest[0] == "who":
        left, right, *rest = rest[1:]
        found.add(Fact(person, left, right, False) if left in grammar.TRANSITIVE else Fact(left, right, person, False))
    if rest and rest[0] == "and":
        return [person, rest[1]], rest[2:]
    return [person], rest


def adjuncts(sentence: str) -> set[str]:
    return set(sentence.split()) & {*grammar.ADVERBS, *grammar.TIMES, *grammar.PLACES}


def entails(premise: str, hypothesis: str) -> bool:
    """Only single clauses have adjuncts in this grammar, so those of the hypothesis need only be among the premise's."""
    return adjuncts(hypothesis) <= adjuncts(premise) and facts(hypothesis) <= facts(premise)


def overlaps(premise: str, hypothesis: str) -> bool:
    return set(hypothesis.split()) <= set(premise.split())


@settings(max_examples=8)
@given(seed=st.integers(0, 2**31), minority=st.floats(0, 0.5))
def test_every_label_is_what_the_sentences_mean(seed: int, minority: float) -> None:
    task = synthetic_nli(minority, seed, **SMALL)
    for split in (task.train, *task.cases.values()):
        for premise, hypothesis, label in zip(split.first, split.second, split.labels, strict=True):
            assert (label == 0) == entails(premise, hypothesis), f"{premise!r} -> {hypothesis!r} is labelled {label}"


def test_the_reader_of_this_test_knows_what_follows() -> None:
    assert entails("anna near boris slept", "anna slept")
    assert not entails("anna near boris slept", "boris slept")
    assert entails("anna who boris paid slept", "boris paid anna")
    assert not entails("if anna slept , boris sang ; clara wept", "boris sang")
    assert not entails("anna hoped that boris slept ; clara knew that david sang", "boris slept")
    assert not entails("anna and boris paid clara", "anna paid boris")


@settings(max_examples=8)
@given(minority=st.floats(0, 0.5), n_train=st.integers(1, 400))
def test_minority_is_the_share_of_training_pairs_that_overlap_mispredicts(minority: float, n_train: int) -> None:
    train = synthetic_nli(minority, n_train=n_train, n_id=1, n_ood_per_case=1).train
    guesses = [0 if overlaps(*pair) else 1 for pair in zip(train.first, train.second, strict=True)]
    assert sum(guess != label for guess, label in zip(guesses, train.labels, strict=True)) == round(minority * n_train)
    assert len(train) == n_train
    assert abs(sum(train.labels) - n_train / 2) <= 0.5


def test_overlap_is_right_in_domain_and_always_wrong_on_the_cases(task: Task) -> None:
    id_split = task.in_domain["in_domain"]
    hits = [overlaps(p, h) == (y == 0) for p, h, y in zip(id_split.first, id_split.second, id_split.labels, strict=True)]
    assert np.mean(hits) == 0.97
    for case, split in task.ood.items():
        assert all(map(overlaps, split.first, split.second)), case
        assert set(split.labels) == ({0} if case.endswith(TWIN_SUFFIX) else {1})


def test_twins_share_their_premises_row_for_row(task: Task) -> None:
    assert tuple(task.ood) == tuple(name for case in CASES for name in (case, case + TWIN_SUFFIX))
    for case in CASES:
        assert task.ood[case].first == task.ood[case + TWIN_SUFFIX].first


def test_no_evaluation_premise_occurs_in_training_or_twice(task: Task) -> None:
    seen = set(task.train.first)
    for case, split in task.cases.items():
        assert not seen & set(split.first), case
        assert len(set(split.first)) == len(split)


def test_every_construction_breaks_the_heuristic_in_training_and_also_keeps_it(task: Task) -> None:
    kinds = {0: Counter[str](), 1: Counter[str]()}
    for premise, hypothesis, label in zip(task.train.first, task.train.second, task.train.labels, strict=True):
        if overlaps(premise, hypothesis):
            kinds[label][_kind(premise)] += 1
    assert set(kinds[1].values()) == {30}
    assert all(kinds[0][kind] > 2 * 30 for kind in kinds[1])


def _kind(premise: str) -> str:
    words = premise.split()
    return next((cue for cue in ("if", "that", "who", "and", *grammar.PREPOSITIONS[:1]) if cue in words), _rest(words))


def _rest(words: list[str]) -> str:
    return "near" if set(words) & set(grammar.PREPOSITIONS) else "plain"


class Words:
    """Unigram counts of the premise and of the hypothesis, and how many of the hypothesis's words the premise has."""

    def __init__(self, train: Split, premise: bool) -> None:
        self.first = CountVectorizer(token_pattern=r"\S+").fit(train.first) if premise else None
        self.second = CountVectorizer(token_pattern=r"\S+").fit(train.second)

    def __call__(self, split: Split) -> object:
        blocks = [self.second.transform(split.second)]
        if self.first is not None:
            overlap = [[len(set(p.split()) & set(h.split()))] for p, h in zip(split.first, split.second, strict=True)]
            blocks += [self.first.transform(split.first), overlap]
        return hstack(blocks).tocsr()


def _twins(task: Task, case: str) -> Split:
    broken, twin = task.ood[case], task.ood[case + TWIN_SUFFIX]
    return Split(
        case,
        broken.first + twin.first,
        broken.second + twin.second,
        broken.labels + twin.labels,
        broken.label_names,
        broken.collapse,
    )


@pytest.mark.parametrize("premise", [True, False], ids=["bag of words", "hypothesis only"])
def test_baselines_are_at_chance_on_the_twins(task: Task, premise: bool) -> None:
    """Trained on the corpus, and even when trained on twins of other premises."""
    words = Words(task.train, premise)
    classifier = LogisticRegression(max_iter=300)
    on_corpus = classifier.fit(words(task.train), task.train.labels)
    hits, cross_hits = [], []
    for case in CASES:
        twins = _twins(task, case)
        rows, labels = words(twins), np.array(twins.labels)
        groups = np.tile(np.arange(len(twins) // 2), 2)
        hits.append(np.mean(on_corpus.predict(rows) == labels))
        guesses = cross_val_predict(LogisticRegression(max_iter=300), rows, labels, groups=groups, cv=GroupKFold(5))
        cross_hits.append(np.mean(guesses == labels))
    spread = 4 * math.sqrt(0.25 / 600)
    assert hits == pytest.approx([0.5] * 6, abs=spread)
    assert cross_hits == pytest.approx([0.5] * 6, abs=spread)


def test_the_same_arguments_give_the_same_task_in_another_process() -> None:
    code = f"from hc_lens.data.synthetic import synthetic_nli; print(synthetic_nli(0.1, 7, **{SMALL}).fingerprint)"
    other = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": "1"}, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == synthetic_nli(0.1, 7, **SMALL).fingerprint
    assert synthetic_nli(0.1, 8, **SMALL).fingerprint != synthetic_nli(0.1, 7, **SMALL).fingerprint


@pytest.mark.parametrize("minority", [-0.01, 0.51, math.nan])
def test_a_minority_outside_its_range_is_refused(minority: float) -> None:
    with pytest.raises(ValueError, match=rf"minority .* in \[0, 0.5\], got {minority}"):
        synthetic_nli(minority)


@pytest.mark.parametrize("size", ["n_train", "n_id", "n_ood_per_case"])
def test_a_size_below_one_is_refused(size: str) -> None:
    with pytest.raises(ValueError, match=f"{size} must be at least 1, got 0"):
        synthetic_nli(**{size: 0})


def test_a_corpus_larger_than_the_grammar_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grammar, "PERSONS", grammar.PERSONS[:4])
    monkeypatch.setattr(grammar, "TRANSITIVE", grammar.TRANSITIVE[:2])
    with pytest.raises(ValueError, match="the grammar has no new premise left after 60"):
        synthetic_nli(0.5, n_train=6_000)


def test_the_tokenizer_knows_every_word_and_every_pair_fits(task: Task) -> None:
    tokenizer = synthetic_tokenizer()
    for split in (task.train, *task.cases.values()):
        ids = tokenizer(list(split.first), list(split.second))["input_ids"]
        assert max(map(len, ids)) <= MAX_LENGTH
        assert not any(tokenizer.unk_token_id in row for row in ids)


def test_pairs_are_laid_out_as_in_bert() -> None:
    tokenizer = synthetic_tokenizer()
    pair = tokenizer("Anna slept", "zebra slept")
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == (
        ["[CLS]", "anna", "slept", "[SEP]", "[UNK]", "slept", "[SEP]"]
    )
    assert pair["token_type_ids"] == [0] * 4 + [1] * 3
    assert tokenizer.pad_token_id == 0


def test_the_tokenizer_survives_saving(tmp_path: Path) -> None:
    tokenizer = synthetic_tokenizer()
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    text = (["anna near boris slept", "david sang"], ["boris slept", "david never sang"])
    assert again(*text, padding=True) == tokenizer(*text, padding=True)
    assert again.model_max_length == MAX_LENGTH


def test_the_config_fits_the_tokenizer_and_carries_the_labels() -> None:
    config = synthetic_config(("no", "yes"))
    assert config.vocab_size == len(synthetic_tokenizer())
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (4, 8, 128)
    assert config.id2label == {0: "no", 1: "yes"}
    assert config.label2id == {"no": 0, "yes": 1}
