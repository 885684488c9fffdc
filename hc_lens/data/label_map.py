"""Which class a label in a file is, by one rule for text, whole numbers and floating-point numbers alike."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal

from hc_lens.limits import require_different

UNLABELLED = (None, "", "-", -1, "-1")
"""How the usual corpora mark a pair without a gold label: SNLI and MNLI files write `-`, the hub's versions -1; NaN as well."""

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")
_LONGEST = 40  # characters of a number that can be a label


@dataclass(frozen=True)
class LabelMap:
    """The classes by name and by number: numbers are names or, if no name is a number, codes in the order of the names.

    A number is the same in every format: 1 in JSON, 1.0 where a table of numbers has gaps, `1` and `1.0` in text.
    """

    names: tuple[str, ...]
    numbers: Mapping[Decimal, int]
    numeric: bool

    @staticmethod
    def of(names: Sequence[str]) -> "LabelMap":
        """The rule for these names.

        Raises:
            ValueError: for names that are blank, or not all different as text or as numbers.
        """
        require_different("label names", names)
        if not names or any(not name.strip() for name in names):
            raise ValueError(f"label names must be at least one, none of them blank, got {list(names)}")
        as_numbers = [_number(name) for name in names]
        named = [number for number in as_numbers if number is not None]
        if len(set(named)) < len(named):
            raise ValueError(f"label names must be all different as numbers, too, got {list(names)}")
        if named:
            by_name = {number: code for code, number in enumerate(as_numbers) if number is not None}
            return LabelMap(tuple(names), by_name, True)
        return LabelMap(tuple(names), {Decimal(code): code for code in range(len(names))}, False)

    @property
    def allowed(self) -> str:
        """What a label may be, as text."""
        codes = "" if self.numeric else f" or their codes 0..{len(self.names) - 1}"
        return f"{list(self.names)}{codes}"

    def index(self, label: object) -> int | None:
        """The class of a label as a file holds it; None if it says that there is no gold label.

        Raises:
            ValueError: for anything else, naming the label.
        """
        if isinstance(label, str) and label in self.names:
            return self.names.index(label)
        number = _number(label)
        if number is not None and number in self.numbers:
            return self.numbers[number]
        if _is_unlabelled(label, number):
            return None
        raise ValueError(f"unknown label {label!r:.80}")


def _is_unlabelled(label: object, number: Decimal | None) -> bool:
    if isinstance(label, float) and math.isnan(label):
        return True
    return label is None or number == -1 or (isinstance(label, str) and label in UNLABELLED)


def _number(label: object) -> Decimal | None:
    """The number that a label is, or that its text says; bool is an int, but True must not pass for class 1."""
    if isinstance(label, str):
        return Decimal(label) if len(label) <= _LONGEST and label.isascii() and _NUMBER.fullmatch(label) else None
    if isinstance(label, Decimal) or (isinstance(label, float) and math.isfinite(label)):
        return Decimal(str(label))
    return Decimal(label) if isinstance(label, int) and not isinstance(label, bool) else None
