"""What is left of a relation for fine-tuning and probing: one answer a subject, several subjects an answer.

The rules and their numbers are ours (step 1 of the protocol); whatever is dropped is said, with the reason.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd

from hc_lens.relations.config import CleaningConfig
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.split import subject_key


class TooSmallError(ValueError):
    """A relation of which nothing is left that could be generalized over."""


@dataclass(frozen=True, eq=False)
class Cleaned:
    """A relation with one answer a subject, and what was dropped.

    `dropped` has the columns `reason`, `subject` and `answer` (None where the reason is not of one) and `count`, of facts.
    """

    relation: Relation
    dropped: pd.DataFrame = field(repr=False)


def clean(relation: Relation, config: CleaningConfig | None = None) -> Cleaned:
    """Drop repeated facts, subjects with several answers, answers of few subjects, and what is beyond the caps.

    Two spellings of a subject (`hc_lens.relations.split.subject_key`) are one: the first is kept. Facts stay in their order.

    Raises:
        TooSmallError: if fewer than two answers are left, or `max_subjects` leaves an answer fewer than `min_subjects`.
    """
    config = config or CleaningConfig()
    facts, dropped = _one_answer_a_subject(relation.facts)
    counts = Counter(fact.answer for fact in facts)
    ranked = sorted(counts, key=lambda answer: (-counts[answer], answer))
    enough = [answer for answer in ranked if counts[answer] >= config.min_subjects]
    if len(enough) < 2:
        most = f"; the most subjects of an answer are {counts[ranked[0]]}" if ranked else ""
        raise TooSmallError(
            f"relation {relation.name!r} ({len(relation)} facts, {len(relation.answers)} answers): {len(enough)} of its "
            f"answers have at least {config.min_subjects} subjects without a second answer, two are needed{most}"
        )
    kept = enough[: config.max_answers]
    dropped += [("answer of too few subjects", None, answer, counts[answer]) for answer in ranked[len(enough) :]]
    dropped += [("beyond max_answers", None, answer, counts[answer]) for answer in enough[config.max_answers :]]
    cap = _cap([counts[answer] for answer in kept], config, relation.name)
    chosen = _sample([fact for fact in facts if fact.answer in kept], cap, config.seed)
    dropped += [
        ("beyond the subjects per answer", None, answer, counts[answer] - cap) for answer in kept if counts[answer] > cap
    ]
    table = pd.DataFrame(dropped, columns=["reason", "subject", "answer", "count"])
    return Cleaned(Relation(relation.name, relation.templates, tuple(chosen)), table)


_Dropped = tuple[str, str | None, str | None, int]


def _one_answer_a_subject(facts: Sequence[Fact]) -> tuple[list[Fact], list[_Dropped]]:
    """The first fact of every subject that has one answer; reasons for the others."""
    same: dict[str, list[Fact]] = {}
    for fact in facts:
        same.setdefault(subject_key(fact.subject), []).append(fact)
    kept: list[Fact] = []
    dropped: list[_Dropped] = []
    for first, *others in same.values():
        if any(other.answer != first.answer for other in others):
            dropped.append(("several answers", first.subject, None, 1 + len(others)))
        else:
            kept.append(first)
            dropped += [("repeated", first.subject, first.answer, len(others))] if others else []
    return kept, dropped


def _cap(counts: Sequence[int], config: CleaningConfig, name: str) -> int:
    """Subjects that an answer may have: the most with which there are no more than `max_subjects` in all."""
    cap = min(max(counts), config.max_subjects_per_answer or max(counts))
    while config.max_subjects is not None and sum(min(count, cap) for count in counts) > config.max_subjects:
        cap -= 1
    if cap < config.min_subjects:
        raise TooSmallError(
            f"relation {name!r} keeps {len(counts)} answers: max_subjects={config.max_subjects} leaves {cap} subjects of each, "
            f"fewer than min_subjects={config.min_subjects}; raise max_subjects, or lower max_answers"
        )
    return cap


def _sample(facts: Sequence[Fact], cap: int, seed: int) -> list[Fact]:
    """At most `cap` random facts of every answer, in their order."""
    answers = np.array([fact.answer for fact in facts])
    random = np.random.default_rng(seed)
    places = [random.permutation(np.flatnonzero(answers == answer))[:cap] for answer in sorted(set(answers.tolist()))]
    return [facts[place] for place in sorted(np.concatenate(places).tolist())]


@dataclass(frozen=True, eq=False)
class Distinct:
    """Relations of which none repeats another.

    `repeats` has a row for every relation left out: `name`, `same_as` and `overlap`, the share of the smaller one's facts that
    are in the other.
    """

    relations: tuple[Relation, ...]
    repeats: pd.DataFrame = field(repr=False)


def distinct(relations: Iterable[Relation], threshold: float = 0.5) -> Distinct:
    """Leave out every relation that shares at least `threshold` of the smaller one's facts with one before it (ours).

    LRE took many of its relations from T-REx, some without a change. To be asked of relations as they were read: cleaned, two
    of the same facts may have kept different subjects. Facts are compared by `hc_lens.relations.split.subject_key` of both
    sides.

    Raises:
        ValueError: if the threshold is not in (0, 1].
    """
    if not 0 < threshold <= 1:
        raise ValueError(f"threshold, a share of facts, must be in (0, 1], got {threshold}")
    kept: dict[str, tuple[Relation, set[tuple[str, str]]]] = {}
    repeats: list[tuple[str, str, float]] = []
    for relation in relations:
        facts = {(subject_key(fact.subject), subject_key(fact.answer)) for fact in relation.facts}
        overlaps = {name: len(facts & others) / min(len(facts), len(others)) for name, (_, others) in kept.items()}
        same = max(overlaps, key=lambda name: overlaps[name], default=None)
        if same is not None and overlaps[same] >= threshold:
            repeats.append((relation.name, same, overlaps[same]))
        else:
            kept[relation.name] = (relation, facts)
    return Distinct(
        tuple(relation for relation, _ in kept.values()), pd.DataFrame(repeats, columns=["name", "same_as", "overlap"])
    )


@dataclass(frozen=True, eq=False)
class Usable:
    """Cleaned relations that can be fine-tuned on, none of which repeats another.

    `left_out` has the columns `name` and `reason`, one row for every other relation.
    """

    cleaned: tuple[Cleaned, ...]
    left_out: pd.DataFrame = field(repr=False)


def usable(relations: Iterable[Relation], config: CleaningConfig | None = None, threshold: float = 0.5) -> Usable:
    """Clean every relation; leave out those that are too small, then those that repeat one before them (`distinct`).

    In this order: P36 of T-REx is usable, the few capitals of LRE, which are among its own, are not.

    Raises:
        ValueError: if the threshold is not in (0, 1].
    """
    cleaned: dict[str, Cleaned] = {}
    large_enough: list[Relation] = []
    left_out: list[tuple[str, str]] = []
    for relation in relations:
        try:
            cleaned[relation.name] = clean(relation, config)
        except TooSmallError as error:
            left_out.append((relation.name, str(error)))
        else:
            large_enough.append(relation)
    found = distinct(large_enough, threshold)
    repeats = zip(found.repeats["name"], found.repeats["same_as"], found.repeats["overlap"], strict=True)
    left_out += [(name, f"{overlap:.0%} of its facts, or of theirs, are those of {same!r}") for name, same, overlap in repeats]
    return Usable(
        tuple(cleaned[relation.name] for relation in found.relations), pd.DataFrame(left_out, columns=["name", "reason"])
    )
