"""What commands print: tables, one headline, and where the results are. Results go to stdout, the rest to stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.runs import atomic_path

if TYPE_CHECKING:
    import pandas as pd


def say(text: str) -> None:
    """One line about what is going on."""
    print(text, file=sys.stderr, flush=True)


def table(rows: pd.DataFrame, title: str) -> None:
    """A table with its title."""
    print(f"\n{title}\n{rows.to_string(index=False, float_format=lambda value: f'{value:.3f}')}")


def keep(rows: pd.DataFrame, directory: Path | None, name: str) -> None:
    """Write a table as `directory/name.csv`, atomically, if a directory was asked for; where it is goes to stderr."""
    if directory is None:
        return
    file = directory / f"{name}.csv"
    with atomic_path(file) as temporary:
        rows.to_csv(temporary, index=False)
    say(f"also in {file}")


def headline(place: Path, text: str) -> None:
    """The result in one line, and where the rest is."""
    print(f"\n{text}\nin {place}")


def last_checkpoint(evaluations: pd.DataFrame) -> pd.DataFrame:
    """The evaluation at the last checkpoint, with the columns worth reading."""
    last = evaluations[evaluations["step"] == evaluations["step"].max()]
    return last[["case", "group", "n", "accuracy", "low", "high"]]


def training_headline(evaluations: pd.DataFrame) -> str:
    """In-domain and out-of-domain accuracy at the last checkpoint."""
    last = evaluations[evaluations["step"] == evaluations["step"].max()]
    return f"after {int(last['step'].iloc[0])} steps: {groups(last)}"


def groups(evaluation: pd.DataFrame) -> str:
    """Mean accuracy in-domain and out of domain, as text."""
    named = {"ID": "in-domain", "OOD": "out-of-domain"}
    means = evaluation.groupby("group")["accuracy"].mean()
    return ", ".join(f"{name} accuracy {means[group]:.3f}" for group, name in named.items() if group in means.index)


def by_case(evaluation: pd.DataFrame) -> pd.DataFrame:
    """One row per case: the full model's accuracy, and least, mean and most over the subnetworks."""
    full = evaluation[evaluation["subnetwork"] == "full"].set_index("case")
    rows = full[["group", "n", "accuracy"]].rename(columns={"accuracy": "full"})
    pruned = evaluation[evaluation["subnetwork"] != "full"].groupby("case")["accuracy"]
    if len(pruned):
        rows = rows.assign(min=pruned.min(), mean=pruned.mean(), max=pruned.max())
    return rows.reset_index()
