"""What a table must have before it is analysed."""

from collections.abc import Iterable, Sequence

import pandas as pd


def require_columns(table: pd.DataFrame, columns: Iterable[str], what: str) -> None:
    """Check that a table, which the message calls `what`, has these columns.

    Raises:
        ValueError: naming the first that is missing, and what the table has.
    """
    if missing := [name for name in columns if name not in table.columns]:
        raise ValueError(f"{what} has no column {missing[0]!r}; it has {[str(name) for name in table.columns]}")


def require_once(table: pd.DataFrame, keys: Sequence[str], what: str) -> None:
    """Check that no two rows of a table agree in all of these columns.

    Raises:
        ValueError: naming the values of the first such row.
    """
    if (twice := table.duplicated(list(keys))).any():
        row = table[twice].iloc[0]
        raise ValueError(f"{what} has several rows for {', '.join(f'{key} {row[key]}' for key in keys)}")
