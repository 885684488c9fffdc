"""Are values at all pairs modulo p those of h(g1(a) + g2(b)) or h(g1(a) * g2(b)) for any functions h, g1, g2 at all?"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

import torch
from jaxtyping import Int
from torch import Tensor

from hc_lens.modular.decomposition import Decomposition, Form, composed

SEARCHED = 7
"""The largest modulus at which `search` takes less than a second, whatever the values."""


def contradiction(values: Int[Tensor, "residue residue"]) -> str | None:
    """Why no functions make these values h(g1(a) + g2(b)) or h(g1(a) * g2(b)), modulo a prime; None if this test cannot tell.

    If all p columns differ, so do the p values of g2, which then takes each number once. A row is then h in another order,
    unless g1 is 0 there in a product, which makes it constant. So rows that are not constant must hold the same values equally
    often. The same holds with rows and columns exchanged.
    """
    for across, along, inner, table in (("b", "a", "g2", values), ("a", "b", "g1", values.T)):
        if len(table.T.unique(dim=0)) < len(table):
            continue
        held = table.sort(dim=1).values
        varied = (held[:, 0] != held[:, -1]).nonzero()[:, 0]
        if len(other := varied[(held[varied] != held[varied[0]]).any(1)]):
            return (
                f"each {across} gives another function of {along}, so {inner} takes every value once, and the values at "
                f"{along} = {int(varied[0])} would be those at {along} = {int(other[0])} in another order, which they are not"
            )
    return None


def search(values: Int[Tensor, "residue residue"]) -> Decomposition | None:
    """Functions g1, g2 and h that make these values h(g1(a) + g2(b)), or else h(g1(a) * g2(b)); None if there are none.

    Every assignment is tried that no smaller part of it rules out. Equal rows may be taken to have equal g1; others cannot.

    Raises:
        ValueError: if the modulus is above `SEARCHED`.
    """
    if len(values) > SEARCHED:
        raise ValueError(f"all functions can be tried modulo at most {SEARCHED}, not {len(values)}")
    rows, row_of = values.unique(dim=0, return_inverse=True)
    table, column_of = rows.unique(dim=1, return_inverse=True)
    firsts: dict[Form, int] = {"sum": 1, "product": 2}
    for form, first in firsts.items():
        placed = _Search(len(values), form, first, (table.tolist(), table.T.tolist())).found()
        if placed is not None:
            g1, g2 = (torch.tensor([numbers[i] for i in range(len(numbers))]) for numbers in placed)
            return composed(form, g1[row_of], g2[column_of], values)
    return None


@dataclass(frozen=True, eq=False)
class _Search:
    """Numbers given to the distinct rows and columns in turn, with what they say of h.

    `first`: the numbers worth trying for the first row and column: any shift (0 alone) or factor (0 and 1) is h's.
    """

    p: int
    form: Form
    first: int
    lines: tuple[Sequence[Sequence[int]], Sequence[Sequence[int]]]
    placed: tuple[dict[int, int], dict[int, int]] = field(default_factory=lambda: ({}, {}))
    h: dict[int, int] = field(default_factory=dict[int, int])

    def found(self) -> tuple[dict[int, int], dict[int, int]] | None:
        """The numbers of all rows and of all columns, if there are any that work."""
        sides = ([(side, index) for index in range(len(lines))] for side, lines in enumerate(self.lines))
        order = [each for each in chain.from_iterable(zip_longest(*sides)) if each is not None]
        return self.placed if self._place(order) else None

    def _place(self, order: Sequence[tuple[int, int]]) -> bool:
        if not order:
            return True
        (side, index), *rest = order
        mine = self.placed[side]
        for number in range(self.p if mine else self.first):
            told = None if number in mine.values() else self._told(side, index, number)
            if told is None:
                continue
            mine[index] = number
            self.h.update(told)
            if self._place(rest):
                return True
            del mine[index]
            for place in told:
                del self.h[place]
        return False

    def _told(self, side: int, index: int, number: int) -> dict[int, int] | None:
        """What h would be at further places if a row or column had this number; None if that contradicts the rest."""
        told: dict[int, int] = {}
        for other, across in self.placed[1 - side].items():
            place = (number + across if self.form == "sum" else number * across) % self.p
            value = self.lines[side][index][other]
            if self.h.get(place, told.get(place, value)) != value:
                return None
            if place not in self.h:
                told[place] = value
        return told
