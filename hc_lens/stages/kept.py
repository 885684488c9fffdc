"""Tables that a run keeps with the options they were computed under, and computes anew only under others."""

from collections.abc import Callable, Mapping

import pandas as pd

from hc_lens.runs import Run


def options_of(run: Run, name: str) -> object:
    """The options that the kept table was computed with; None if there is no such table."""
    known = run.file(f"{name}.options", "json").exists() and run.file(name, "parquet").exists()
    return run.read_json(f"{name}.options") if known else None


def forget(run: Run, name: str) -> None:
    """A kill between a new table and its options must not leave the old options beside the new table."""
    run.file(f"{name}.options", "json").unlink(missing_ok=True)


def remembered(run: Run, name: str, options: Mapping[str, object], compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The stored table if it was computed with these options, else computed and stored in its place."""
    if options_of(run, name) != options:
        forget(run, name)
        run.write_table(name, compute())
        run.write_json(f"{name}.options", dict(options))
    return run.read_table(name)
