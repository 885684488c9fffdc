"""What a table must have before it is analysed or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


def require_columns(table: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Check that a table, which the message calls `what`, has these columns.

    Raises:
        ValueError: naming what it is needed for, those that are missing, and what the table has.
    """
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(f"{what} needs the columns {list(columns)}; {missing} missing from {[str(c) for c in table.columns]}")


def require(table: pd.DataFrame, columns: Sequence[str], what: str) -> None:
    """Check that a table, which the message calls `what`, has these columns, and a row at least.

    Raises:
        ValueError: as `require_columns`, or if there is no row.
    """
    require_columns(table, columns, what)
    if table.empty:
        raise ValueError(f"{what} needs at least one row; the table is empty")


def require_once(table: pd.DataFrame, keys: Sequence[str], what: str, remedy: str = "") -> None:
    """Check that no two rows of a table agree in all of these columns; `remedy` ends the message.

    Raises:
        ValueError: naming the values of the first such row.
    """
    if (twice := table.duplicated(list(keys))).any():
        row = table[twice].iloc[0]
        found = f"{what} has several rows for {', '.join(f'{key} {row[key]}' for key in keys)}"
        raise ValueError(f"{found}: {remedy}" if remedy else found)
