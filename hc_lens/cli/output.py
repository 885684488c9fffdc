"""What commands print: tables, one headline, and where the results are. Results go to stdout, the rest to stderr."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.questions.accuracy import group_means
from hc_lens.runs import atomic_path

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

    from hc_lens.questions.question import Answer
    from hc_lens.report import TextTable


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
    return f"after {int(last['step'].iloc[0])} steps: {group_means(last)}"


def answer(found: Answer, directory: Path | None) -> None:
    """The open tables of an answer and its sentence; all its tables and figures as files, if a directory was asked for."""
    for section in found.sections:
        for shown in section.shown:
            _text_table(shown)
        if directory is not None and section.figure is not None:
            keep_figure(section.figure, directory, section.anchor)
    for name, rows in found.tables.items():
        keep(rows, directory, name)
    if found.sentence:
        print(f"\n{found.sentence}")


def _text_table(shown: TextTable) -> None:
    widths = [max(map(len, column)) for column in zip(shown.columns, *shown.rows, strict=True)]
    print(f"\n{shown.title}")
    for row in (shown.columns, *shown.rows):
        cells = [
            f"{cell:{'<' if i < shown.labels else '>'}{width}}" for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        print("  ".join(cells).rstrip())


def keep_figure(drawn: go.Figure, directory: Path, name: str) -> None:
    """Write a figure as `directory/name.html`, which needs no network to open."""
    file = directory / f"{name}.html"
    with atomic_path(file) as temporary:
        drawn.write_html(temporary, include_plotlyjs=True)
    say(f"figure in {file}")
