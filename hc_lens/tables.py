"""What a table must have before it is analysed, drawn or reported."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def require_columns(table: pd.DataFrame, columns: Iterable[str], what: str) -> None:
    """Check that a table, which the message calls `what`, has these columns.

    Raises:
        ValueError: naming those that are missing, and what the table has.
    """
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(
            f"{what} has no column {', '.join(map(repr, missing))}; it has {[str(name) for name in table.columns]}"
        )


def require_rows(table: pd.DataFrame, columns: Iterable[str], what: str) -> None:
    """Check that a table has these columns and at least one row.

    Raises:
        ValueError: as `require_columns`, or if there is no row.
    """
    require_columns(table, columns, what)
    if table.empty:
        raise ValueError(f"{what} has no rows")


def require_once(table: pd.DataFrame, keys: Sequence[str], what: str, remedy: str = "") -> None:
    """Check that no two rows of a table agree in all of these columns; `remedy` ends the message.

    Raises:
        ValueError: naming the values of the first such row.
    """
    if (twice := table.duplicated(list(keys))).any():
        row = table[twice].iloc[0]
        found = f"{what} has several rows for {', '.join(f'{key} {row[key]}' for key in keys)}"
        raise ValueError(f"{found}: {remedy}" if remedy else found)
