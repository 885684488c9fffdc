"""What a number or a list of names may be, said in one sentence that names the parameter, the value and what is allowed."""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, NamedTuple


class Least(NamedTuple):
    """The least value of a whole number, as a mark on its type."""

    value: int


Count = Annotated[int, Least(1)]
"""A number of rows, steps, workers and the like."""

Natural = Annotated[int, Least(0)]
"""A seed, or a number of things that may be none."""


def require_at_least_one(name: str, value: int | None) -> None:
    """None passes: it stands for no limit.

    Raises:
        ValueError: naming the parameter, if the value is below 1.
    """
    if value is not None and not value >= 1:
        raise ValueError(f"{name} must be at least 1, got {value}")


def require_positive(name: str, value: int | float | None) -> None:
    """None passes: it stands for no limit.

    Raises:
        ValueError: naming the parameter, if the value is 0 or below, infinite or not a number.
    """
    if value is not None and not (value > 0 and math.isfinite(value)):
        raise ValueError(f"{name} must be positive{'' if value <= 0 else ' and finite'}, got {value}")


def require_not_negative(name: str, value: int | float) -> None:
    """0 passes.

    Raises:
        ValueError: naming the parameter, if the value is below 0, infinite or not a number.
    """
    if not (value >= 0 and math.isfinite(value)):
        raise ValueError(f"{name} must {'not be negative' if value < 0 else 'be finite'}, got {value}")


def require_different(name: str, values: Sequence[object]) -> None:
    """Equal values would count one thing twice, or hide one behind the other.

    Raises:
        ValueError: naming the parameter and the values that come more than once.
    """
    if repeated := [value for value, n in Counter(values).items() if n > 1]:
        raise ValueError(f"{name} must be all different, {', '.join(map(repr, repeated))} comes more than once")
