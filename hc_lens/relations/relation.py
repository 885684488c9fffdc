"""A relation: what a model may know of many subjects, each with one answer, and the templates that ask for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from jaxtyping import Int
    from torch import Tensor

SLOT = "{}"
"""Stands for the subject in a template."""


class Fact(NamedTuple):
    """A subject and what the relation says of it: Paris, France."""

    subject: str
    answer: str


@dataclass(frozen=True)
class Relation:
    """Facts of one kind.

    Attributes:
        name: as its source calls it: "landmark in country", or the T-REx identifier "P30".
        templates: texts with one slot `{}` for the subject, without the answer: "{} is in the country of". Text after the slot
            is allowed.
        facts: in the order of the source. As read from a source a subject may have several answers; once cleaned
            (`hc_lens.relations.cleaning`) it has one.

    Raises:
        ValueError: if there is no name, no template, no fact, or a template without exactly one slot.
    """

    name: str
    templates: tuple[str, ...]
    facts: tuple[Fact, ...] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.name.strip():
            raise ValueError("a relation needs a name")
        if not self.templates or not self.facts:
            raise ValueError(f"relation {self.name!r} has no {'facts' if self.templates else 'template'}")
        for template in self.templates:
            _require_slot(template, f" of relation {self.name!r}")

    @cached_property
    def answers(self) -> tuple[str, ...]:
        """The different answers, sorted."""
        return tuple(sorted({fact.answer for fact in self.facts}))

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subject of each fact."""
        return tuple(fact.subject for fact in self.facts)

    @cached_property
    def codes(self) -> Int[Tensor, " fact"]:
        """Each fact's answer, as a place among `answers`."""
        import torch

        place = {answer: code for code, answer in enumerate(self.answers)}
        return torch.tensor([place[fact.answer] for fact in self.facts])

    def __len__(self) -> int:
        return len(self.facts)

    def only(self, places: Sequence[int]) -> "Relation":
        """The same relation, with the facts at these places, in this order."""
        return Relation(self.name, self.templates, tuple(self.facts[place] for place in places))


def prompt(template: str, subject: str) -> str:
    """The template with the subject in its slot.

    Raises:
        ValueError: if the template has not exactly one slot.
    """
    _require_slot(template)
    return template.replace(SLOT, subject)


def _require_slot(template: str, whose: str = "") -> None:
    if (n_slots := template.count(SLOT)) != 1:
        raise ValueError(f"a template has one slot {SLOT} for the subject; {template!r}{whose} has {n_slots}")
