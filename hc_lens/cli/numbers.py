"""Numbers on the command line: checked once all are read, so that a refusal names the option and nothing has begun."""

import math
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Annotated, Any, cast, get_args, get_origin, get_type_hints

import tyro

from hc_lens.limits import Least


def require_numbers(arguments: object, prefix: str = "--") -> None:
    """Check the numbers of a command's arguments: marked whole numbers by their least value, others to be finite.

    Raises:
        ValueError: naming the option, its value and what is allowed.
    """
    hints = get_type_hints(type(arguments), include_extras=True)
    for field in fields(cast(Any, arguments)):
        hint, value = hints[field.name], getattr(arguments, field.name)
        option = prefix + field.name.replace("_", "-")
        if is_dataclass(value):
            flat = tyro.conf.OmitArgPrefixes in _marks(hint)
            require_numbers(value, prefix if flat else f"{option}.")
            continue
        # Configurations of the library carry no marks; torch takes a negative seed, NumPy and the names of runs do not.
        least = next((mark.value for mark in _marks(hint) if isinstance(mark, Least)), 0 if field.name == "seed" else None)
        for number in cast("tuple[object, ...]", value) if isinstance(value, tuple) else (value,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{option} must be a finite number, got {number}")
            if least is not None and isinstance(number, int) and number < least:
                raise ValueError(f"{option} must be at least {least}, got {number}")


def _marks(hint: object) -> Iterator[object]:
    """What `Annotated` says of a type or of the types in it."""
    if get_origin(hint) is Annotated:
        yield from get_args(hint)[1:]
    for inner in get_args(hint):
        yield from _marks(inner)
