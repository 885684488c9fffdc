"""Which heads a question is about: those that are named, else the core of the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, cast

from tyro.constructors import PrimitiveConstructorSpec

from hc_lens.units import Head, parse, require_in_model

if TYPE_CHECKING:
    from hc_lens.questions.subject import Subject


def _are_heads(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(each, str | Head) for each in cast("tuple[object, ...]", value))


Heads = Annotated[
    tuple[str | Head, ...],
    PrimitiveConstructorSpec(
        nargs="*",
        metavar="L4.H0",
        instance_from_str=tuple,
        is_instance=_are_heads,
        str_from_instance=lambda heads: [str(head) for head in heads],
    ),
]
"""Heads, or their names; on the command line names."""


def heads_of(run: Subject, named: Sequence[str | Head]) -> tuple[Head, ...]:
    """The heads named, each once; where none is named, the core kept in the run.

    Raises:
        RunError: without names, if the run has no core yet.
        ValueError: for a unit that is no head or not in the model, or an empty core.
    """
    units = [parse(str(name)) for name in named]
    if other := [unit for unit in units if not isinstance(unit, Head)]:
        raise ValueError(f"--heads {other[0]}: only heads can be given, as L4.H0")
    chosen = tuple(dict.fromkeys(unit for unit in units if isinstance(unit, Head)))
    heads = chosen or run.core.heads
    require_in_model(heads, run.means.n_layers, run.means.n_heads)
    if not heads:
        raise ValueError(f"{run.home.path}: the core is empty; find one with a smaller --k, or give --heads")
    return heads


def sorted_names(run: Subject, named: Sequence[str | Head]) -> list[str]:
    """The heads asked about, as text: what an answer is kept under."""
    return [str(head) for head in sorted(heads_of(run, named))]
