"""The grammar of the embedded task: premises with one hypothesis they entail and one that only shares their words.

Every construction draws its persons and verbs uniformly from one list per category and gives both hypotheses the same shape, so
the entailed and the merely overlapping hypothesis have the same bag of words in distribution: only who did what tells them
apart. Words that could serve as a cue (`if`, a factive or non-factive verb) stand in the premise of both.
"""

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

PERSONS = ("anna", "boris", "clara", "david", "elena", "felix", "greta", "henry", "irene", "jacob", "laura", "martin")
TRANSITIVE = ("greeted", "followed", "warned", "helped", "praised", "blamed", "trusted", "paid")
INTRANSITIVE = ("slept", "sang", "laughed", "waited", "danced", "coughed", "prayed", "wept")
PREPOSITIONS = ("near", "behind", "beside", "above", "opposite", "facing")
NON_FACTIVE = ("hoped", "claimed", "doubted", "guessed", "imagined", "suspected")
FACTIVE = ("knew", "noticed", "realized", "remembered", "discovered", "saw")
ADVERBS = ("loudly", "slowly", "gladly", "briefly", "calmly", "rudely", "often", "proudly")
TIMES = ("yesterday", "today", "later", "once")
PLACES = ("paris", "cairo", "lima", "oslo", "tokyo", "delhi", "quito", "sydney")
FUNCTION_WORDS = ("who", "that", "if", "and", "in", "never", ",", ";")

VOCABULARY: tuple[str, ...] = (
    *FUNCTION_WORDS,
    *PERSONS,
    *TRANSITIVE,
    *INTRANSITIVE,
    *PREPOSITIONS,
    *NON_FACTIVE,
    *FACTIVE,
    *ADVERBS,
    *TIMES,
    *PLACES,
)
_CATEGORY = {word: words for words in (PERSONS, TRANSITIVE, INTRANSITIVE) for word in words}
_VERBS = frozenset(TRANSITIVE) | frozenset(INTRANSITIVE)


class Frame(NamedTuple):
    """A premise, a hypothesis it entails, and one it does not entail although all its words are in the premise."""

    premise: str
    entailed: str
    broken: str


def predicate(rng: random.Random, other: str) -> str:
    """An intransitive verb, or (three times in ten) a transitive verb with the person `other` as its object."""
    return f"{rng.choice(TRANSITIVE)} {other}" if rng.random() < 0.3 else rng.choice(INTRANSITIVE)


def adjunct(rng: random.Random) -> str:
    """A modifier that may follow a clause and be dropped from it."""
    kind = rng.randrange(3)
    if kind == 0:
        return rng.choice(ADVERBS)
    return rng.choice(TIMES) if kind == 1 else f"in {rng.choice(PLACES)}"


def subject_object_swap(rng: random.Random) -> Frame:
    """`anna greeted boris today` does not entail `boris greeted anna`."""
    a, b = rng.sample(PERSONS, 2)
    verb = rng.choice(TRANSITIVE)
    clause, extra = f"{a} {verb} {b}", adjunct(rng)
    premise = f"{extra} {clause}" if rng.random() < 0.5 else f"{clause} {extra}"
    return Frame(premise, clause, f"{b} {verb} {a}")


def preposition(rng: random.Random) -> Frame:
    """`anna near boris slept` does not entail `boris slept`; also with the preposition at the object."""
    a, b, c = rng.sample(PERSONS, 3)
    place = rng.choice(PREPOSITIONS)
    if rng.random() < 0.5:
        act = predicate(rng, c)
        return Frame(f"{a} {place} {b} {act}", f"{a} {act}", f"{b} {act}")
    act = f"{c} {rng.choice(TRANSITIVE)}"
    return Frame(f"{act} {a} {place} {b}", f"{act} {a}", f"{act} {b}")


def relative_clause(rng: random.Random) -> Frame:
    """`anna who greeted boris slept` does not entail `boris slept`; nor `anna who boris greeted slept`."""
    a, b, c = rng.sample(PERSONS, 3)
    inner, outer = rng.sample(TRANSITIVE, 2)
    act = f"{outer} {c}" if rng.random() < 0.3 else rng.choice(INTRANSITIVE)
    relative = f"{inner} {b}" if rng.random() < 0.5 else f"{b} {inner}"
    return Frame(f"{a} who {relative} {act}", f"{a} {act}", f"{b} {act}")


def conjunction(rng: random.Random) -> Frame:
    """`anna and boris paid clara` does not entail `anna paid boris`; also with `and` in the object."""
    a, b, c = rng.sample(PERSONS, 3)
    verb = rng.choice(TRANSITIVE)
    if rng.random() < 0.5:
        return Frame(f"{a} and {b} {verb} {c}", f"{rng.choice((a, b))} {verb} {c}", f"{a} {verb} {b}")
    return Frame(f"{a} {verb} {b} and {c}", f"{a} {verb} {rng.choice((b, c))}", f"{b} {verb} {c}")


def embedded_if(rng: random.Random) -> Frame:
    """`if anna slept , boris sang ; clara wept` entails `clara wept` and neither of the other two."""
    verbs = rng.sample(INTRANSITIVE, 3)
    condition, consequence, fact = (f"{a} {verb}" for a, verb in zip(rng.sample(PERSONS, 3), verbs, strict=True))
    parts = [f"if {condition} , {consequence}", fact]
    rng.shuffle(parts)
    return Frame(" ; ".join(parts), fact, rng.choice((condition, consequence)))


def embedded_verb(rng: random.Random) -> Frame:
    """`anna hoped that boris slept ; clara knew that david sang` entails only `david sang`."""
    a, b, c, d = rng.sample(PERSONS, 4)
    verb, other = rng.sample(INTRANSITIVE, 2)
    hoped, known = f"{c} {verb}", f"{d} {other}"
    parts = [f"{a} {rng.choice(NON_FACTIVE)} that {hoped}", f"{b} {rng.choice(FACTIVE)} that {known}"]
    rng.shuffle(parts)
    return Frame(" ; ".join(parts), known, hoped)


CONSTRUCTIONS: Mapping[str, Callable[[random.Random], Frame]] = {
    "subject_object_swap": subject_object_swap,
    "preposition": preposition,
    "relative_clause": relative_clause,
    "conjunction": conjunction,
    "embedded_if": embedded_if,
    "embedded_verb": embedded_verb,
}


def plain_pair(rng: random.Random) -> tuple[str, str]:
    """An entailed pair of the ordinary kind: a clause loses modifiers, or one of two joined clauses is kept whole."""
    a, b, c, d = rng.sample(PERSONS, 4)
    if rng.random() < 0.3:
        clauses = [f"{who} {'never ' if rng.random() < 0.2 else ''}{predicate(rng, other)}" for who, other in ((a, c), (b, d))]
        return " ; ".join(clauses), rng.choice(clauses)
    clause, before, after = f"{a} {predicate(rng, b)}", adjunct(rng), adjunct(rng)
    return rng.choice(
        (
            (f"{before} {clause}", clause),
            (f"{clause} {after}", clause),
            (f"{before} {clause} {after}", f"{clause} {after}"),
        )
    )


def estrange(rng: random.Random, premise: str, hypothesis: str) -> str:
    """A hypothesis that the premise does not entail, recognisable by words that the premise lacks.

    One or more persons and verbs are replaced by others, or (one time in eight) the verb is negated by a `never` that the
    premise does not contain.
    """
    words, known = hypothesis.split(), premise.split()
    places = [i for i, word in enumerate(words) if word in _CATEGORY]
    if "never" not in known and rng.random() < 0.125:
        verb = next(i for i in places if words[i] in _VERBS)
        return " ".join((*words[:verb], "never", *words[verb:]))
    for i in places:
        words[i] = rng.choice([word for word in _CATEGORY[words[i]] if word not in known])
    return " ".join(words)
