"""The places that ablations are told of besides the cases: means over a group's, and their difference."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

PLACES = ("ID mean", "OOD mean", "OOD - ID")
"""Means over cases, and their difference, in tables by place."""


def main_place(table: pd.DataFrame) -> str:
    """The place that a sentence is about: the mean over out-of-domain cases if the table has one, else the in-domain mean."""
    return "OOD mean" if (table["case"] == "OOD mean").any() else "ID mean"
