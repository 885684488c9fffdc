"""Tables that a run keeps with the options they were computed under, and computes anew only under others.

Tables that belong together are named together; the first one's name is that of their options. They are computed and written
under their locks, so that of two processes that ask at once one waits, and finds what the other has computed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from hc_lens.atomic import RunError, read_json

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.runs import Run


def options_of(run: Run, *names: str) -> object:
    """The options that the kept tables were computed with; None if one of them, or the options, are not there."""
    file = run.file(f"{names[0]}.options", "json")
    if not file.exists() or not all(run.file(name, "parquet").exists() for name in names):
        return None
    try:
        return read_json(file)
    except RunError:
        if file.exists():
            raise
        return None  # another process has just begun to compute them anew


def forget(run: Run, name: str) -> None:
    """A kill between a new table and its options must not leave the old options beside the new table."""
    run.file(f"{name}.options", "json").unlink(missing_ok=True)


def store(run: Run, options: Mapping[str, object], tables: Mapping[str, pd.DataFrame]) -> None:
    """Keep tables that belong together, in the place of those of other options; their locks must be held."""
    first = next(iter(tables))
    forget(run, first)
    for name, table in tables.items():
        run.write_table(name, table)
    run.write_json(f"{first}.options", dict(options))


def read(run: Run, *names: str) -> tuple[object, list[pd.DataFrame]] | None:
    """Tables that were written together, with their options, while others may write them anew; None if they are not there."""
    while (options := options_of(run, *names)) is not None:
        tables = [run.read_table(name) for name in names]
        if options_of(run, *names) == options:
            return options, tables
    return None


def remembered(run: Run, name: str, options: Mapping[str, object], compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The stored table if it was computed with these options, else computed and stored in its place."""
    (table,) = remembered_tables(run, (name,), options, lambda: {name: compute()})
    return table


def remembered_tables(
    run: Run, names: Sequence[str], options: Mapping[str, object], compute: Callable[[], Mapping[str, pd.DataFrame]]
) -> list[pd.DataFrame]:
    """The stored tables if all are there and were computed with these options, else computed and stored in their place."""
    found = read(run, *names)
    if found is not None and found[0] == options:
        return found[1]
    with run.locked(*names, wait=True):
        if options_of(run, *names) != options:
            tables = compute()
            store(run, options, {name: tables[name] for name in names})
        return [run.read_table(name) for name in names]
