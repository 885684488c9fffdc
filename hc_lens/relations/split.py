"""Which subjects are fine-tuned on and which are held out, and what would leak from one part into the other."""

import unicodedata
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from hc_lens.relations.config import MIN_HELD_OUT, MIN_TRAIN
from hc_lens.relations.relation import Relation

_NO_ALIASES: Mapping[str, Collection[str]] = MappingProxyType({})


class Split(NamedTuple):
    """Places among a relation's facts, ascending: those fine-tuned on, and the others."""

    train: tuple[int, ...]
    held_out: tuple[int, ...]


def split_facts(relation: Relation, train_share: float, seed: int) -> Split:
    """A random share of the facts of every answer for training, the others held out (step 3 of the protocol).

    The share is rounded for each answer, and moved where it would leave fewer than two of its facts in training or none held
    out: every label is learned, and every label is tested.

    Raises:
        ValueError: if the share is not in (0, 1), an answer has fewer than three facts, or a subject occurs twice.
    """
    if not 0 < train_share < 1:
        raise ValueError(f"train_share must be in (0, 1), got {train_share}")
    random = np.random.default_rng(seed)
    codes = relation.codes.numpy()
    train: list[int] = []
    for code, answer in enumerate(relation.answers):
        places = np.flatnonzero(codes == code)
        if len(places) < MIN_TRAIN + MIN_HELD_OUT:
            raise ValueError(
                f"answer {answer!r} of relation {relation.name!r} has {len(places)} subjects; a split needs "
                f"{MIN_TRAIN} to train on and {MIN_HELD_OUT} held out: clean the relation with min_subjects of 3 or more"
            )
        n_train = min(max(round(train_share * len(places)), MIN_TRAIN), len(places) - MIN_HELD_OUT)
        train += random.permutation(places)[:n_train].tolist()
    split = Split(tuple(sorted(train)), tuple(sorted(set(range(len(relation))) - set(train))))
    require_no_leak(relation, split)
    return split


def subject_key(name: str) -> str:
    """What two spellings of a subject share: letters, digits and symbols in one case, without punctuation, single spaces.

    A name of nothing but punctuation is compared as it stands.
    """
    folded = unicodedata.normalize("NFKC", name).casefold()
    spaced = "".join(" " if unicodedata.category(character).startswith("P") else character for character in folded)
    return " ".join(spaced.split()) or " ".join(folded.split())


def require_no_leak(relation: Relation, split: Split, aliases: Mapping[str, Collection[str]] = _NO_ALIASES) -> None:
    """Check that no held-out subject is fine-tuned on, under its own name or another (compared by `subject_key`).

    `aliases` are further names of subjects, by subject as the relation writes it.

    Raises:
        ValueError: naming the held-out subject and the one in training; or a place that the relation does not have.
    """
    for place in (*split.train, *split.held_out):
        if not 0 <= place < len(relation):
            raise ValueError(f"relation {relation.name!r} has the facts 0..{len(relation) - 1}, a split names {place}")
    trained: dict[str, str] = {}
    for place in split.train:
        subject = relation.facts[place].subject
        trained |= dict.fromkeys(_names(subject, aliases), subject)
    for place in split.held_out:
        subject = relation.facts[place].subject
        for name in _names(subject, aliases):
            if name in trained:
                raise ValueError(
                    f"the held-out subject {subject!r} of relation {relation.name!r} is trained on, as {trained[name]!r}"
                )


def _names(subject: str, aliases: Mapping[str, Collection[str]]) -> list[str]:
    return [subject_key(name) for name in (subject, *aliases.get(subject, ()))]
