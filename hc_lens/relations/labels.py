"""Arbitrary new labels for the answers of a relation: words of one category, drawn by seed (step 2 of the protocol).

The protocol's labels are animals; those of thirteen other categories serve to show that the animals do not matter. The words of
each are ours.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from types import MappingProxyType

import numpy as np

_WORDS = {
    "animals": """crab zebra horse tiger rabbit monkey snake whale eagle wolf sheep goat lion bear deer mouse frog shark
        camel spider duck pig donkey fox turtle owl elephant kangaroo squirrel penguin""",
    "fruits": """apple pear grape lemon melon cherry banana mango peach plum lime coconut berry papaya apricot fig
        strawberry blueberry raspberry pineapple tangerine kiwi guava watermelon""",
    "colours": """red blue green yellow purple pink brown black white gray violet scarlet crimson beige magenta cyan maroon
        turquoise ivory lavender indigo teal navy tan""",
    "tools": """hammer saw drill wrench screwdriver shovel axe chisel pliers rake ladder knife scissors needle broom bucket
        spade lever wheelbarrow clamp file mallet sickle trowel""",
    "buildings": """house church school hotel castle tower bridge hospital library museum temple barn palace theater factory
        prison station stadium warehouse cottage garage restaurant monastery cathedral""",
    "vehicles": """car bus train truck bicycle boat ship plane taxi van tractor motorcycle helicopter tram ferry wagon canoe
        rocket yacht scooter submarine ambulance jeep sled""",
    "clothes": """shirt hat coat shoe dress jacket sock glove skirt scarf belt boot sweater suit vest apron jeans cap blouse
        cloak sandal pajamas gown mitten""",
    "furniture": """table chair bed sofa desk shelf lamp couch cabinet bench stool drawer wardrobe mirror mattress carpet
        cupboard curtain crib bookcase dresser armchair hammock rug""",
    "professions": """doctor teacher lawyer nurse farmer baker pilot judge engineer soldier artist chef writer butcher
        carpenter dentist plumber tailor fisherman miner librarian barber sailor waiter""",
    "sports": """football tennis golf hockey baseball basketball rugby cricket boxing swimming wrestling volleyball skiing
        cycling karate badminton rowing surfing softball fencing archery skating judo bowling""",
    "materials": """gold silver iron copper steel wood glass paper plastic rubber leather cotton stone brick clay wool silk
        marble bronze lead aluminum concrete diamond cement""",
    "weather": """rain snow wind storm thunder fog cloud lightning hail frost sunshine ice tornado hurricane mist breeze
        blizzard drizzle drought flood heat humidity rainbow typhoon dew""",
    "body": """hand foot arm leg head eye nose mouth ear neck finger knee shoulder back heart stomach tongue elbow skin
        chest ankle thumb chin wrist""",
    "foods": """bread cheese rice soup pasta butter egg salad pizza sugar salt cake honey chocolate meat potato onion carrot
        cookie sandwich sausage tomato bacon garlic""",
}

CATEGORIES: Mapping[str, tuple[str, ...]] = MappingProxyType({name: tuple(words.split()) for name, words in _WORDS.items()})
"""The words of each category of labels: common nouns of one word, none in two categories."""


@dataclass(frozen=True)
class LabelMap:
    """Which label stands for which answer.

    Attributes:
        category: of the labels, one of `CATEGORIES`.
        seed: with which they were drawn.
        labels: by answer, in the order in which the answers were given: that of `Relation.answers`, so that an answer's code is
            the code of its label.

    Raises:
        ValueError: if two answers have the same label.
    """

    category: str
    seed: int
    labels: Mapping[str, str]

    def __post_init__(self) -> None:
        if len(set(self.labels.values())) < len(self.labels):
            raise ValueError(f"two answers have the same label: {dict(self.labels)}")

    @cached_property
    def _answers(self) -> dict[str, str]:
        return {label: answer for answer, label in self.labels.items()}

    def label(self, answer: str) -> str:
        """The label of an answer.

        Raises:
            KeyError: naming the answers, if it is none of them.
        """
        if answer not in self.labels:
            raise KeyError(f"no label for the answer {answer!r}; there are labels for {list(self.labels)}")
        return self.labels[answer]

    def answer(self, label: str) -> str:
        """The answer that a label stands for.

        Raises:
            KeyError: naming the labels, if it is none of them.
        """
        if label not in self._answers:
            raise KeyError(f"{label!r} is no label; the labels are {list(self._answers)}")
        return self._answers[label]


def assign_labels(answers: Sequence[str], category: str, seed: int, tokens: Callable[[str], Sequence[int]]) -> LabelMap:
    """Draw a label for every answer, without replacement.

    Words that are one token after a space are drawn first: `tokens` gives the tokens of a text, and is asked for `" crab"`.
    The others are drawn only where those run out. No label's tokens begin another's, since the score of a longer label (a sum
    of log-probabilities) could then never be above that of the shorter one.

    Raises:
        ValueError: if there is no such category, it contains an answer (upper and lower case alike), an answer is given twice,
            or the category has too few words, or too few that the tokenizer tells apart: these are named.
    """
    words = _words_without(answers, category)
    drawn = np.random.default_rng(seed).permutation(words).tolist()
    tokens_of = {word: tuple(tokens(f" {word}")) for word in drawn}
    chosen: list[str] = []
    colliding: list[tuple[str, str]] = []
    for word in sorted(drawn, key=lambda word: len(tokens_of[word]) != 1):  # stable: a random order among each
        other = next((other for other in chosen if _collide(tokens_of[word], tokens_of[other])), None)
        if other is None:
            chosen.append(word)
        else:
            colliding.append((other, word))
    if len(chosen) < len(answers):
        named = ", ".join(f"{one!r} and {other!r}" for one, other in colliding[:5])
        raise ValueError(
            f"the tokenizer tells only {len(chosen)} of the {len(words)} {category} apart, {len(answers)} labels are needed: "
            f"the tokens of one begin the other's for {named}{', ...' if len(colliding) > 5 else ''}"
        )
    return LabelMap(category, seed, dict(zip(answers, chosen, strict=False)))


def answers_among(answers: Sequence[str], category: str) -> list[str]:
    """The answers that are words of a category themselves (upper and lower case alike), so that it cannot label them."""
    return sorted(answer for answer in answers if answer.casefold() in CATEGORIES[category])


def _words_without(answers: Sequence[str], category: str) -> tuple[str, ...]:
    """The words of a category, of which there are enough and no answer is one."""
    if category not in CATEGORIES:
        near = get_close_matches(category, CATEGORIES, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ";"
        raise ValueError(f"no category {category!r}{meant} There are {', '.join(CATEGORIES)}")
    words = CATEGORIES[category]
    if repeated := sorted({answer for answer in answers if answers.count(answer) > 1}):
        raise ValueError(f"an answer gets one label; {repeated} are given more than once")
    if same := answers_among(answers, category):
        raise ValueError(f"the labels {category!r} contain the answers {same}: choose another category")
    if len(words) < len(answers):
        raise ValueError(f"{len(answers)} answers need as many labels, {category!r} has {len(words)} words")
    return words


def _collide(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    shared = min(len(one), len(other))
    return one[:shared] == other[:shared]
