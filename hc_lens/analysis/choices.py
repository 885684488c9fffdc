"""Choices of an analysis by name, apart from what computes with them: a command line needs no more."""

from typing import Literal

Semantics = Literal["as_coded", "as_written"]
Curve = Literal["raw", "monotone"]
