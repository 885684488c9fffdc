"""Tables as text, for the page and for Markdown alike: a DataFrame, an interval or nested settings in, finished cells out."""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import pandas as pd

from hc_lens.prose import MINUS
from hc_lens.tables import require_columns

_DIGEST = re.compile(r"\b([0-9a-f]{12})[0-9a-f]{28,}\b")


@dataclass(frozen=True)
class TextTable:
    """A table of texts. The first `labels` columns name the row; the others are numbers, set flush right.

    Raises:
        ValueError: if a row has not one cell per column, or `labels` is not among 0..columns, naming the table.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    labels: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.labels <= len(self.columns):
            raise ValueError(
                f"table {self.title!r}: labels is {self.labels}; allowed are 0 to {len(self.columns)}, its number of columns"
            )
        for place, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(f"table {self.title!r}: row {place} has {len(row)} cells for {len(self.columns)} columns")


def text_table(
    frame: pd.DataFrame,
    title: str,
    *,
    labels: int = 1,
    percent: Sequence[str] = (),
    digits: Mapping[str, int] | int = 3,
    missing: str = "",
) -> TextTable:
    """A DataFrame as a table of a report: its columns in their order, its index left out (`reset_index()` shows it).

    Whole numbers (also a float column that holds nothing else, such as seeds beside a missing one) are written whole, truth
    values as yes and no, lists joined by commas, texts as they are. Intervals: `with_interval`; p-values: `.map(p_text)`.

    Args:
        frame: one row per row of the table.
        title: what the table shows.
        labels: how many of the first columns name the row; they are set flush left.
        percent: columns of shares in 0..1, or of differences of shares, written as percentages. Their heading gets a `(%)`
            unless it has a unit in brackets already: `excess (points)`.
        digits: decimals of the numbers that are not whole, for all columns or by column; percentages have one unless the
            column is named here.
        missing: what stands for NaN and None.

    Raises:
        ValueError: if `percent` or `digits` name a column that the frame lacks, a percentage is not a number, a column name
            comes twice, or `labels` is out of range.
    """
    names = [str(column) for column in frame.columns]
    by_column = {} if isinstance(digits, int) else dict(digits)
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"table {title!r}: the columns {twice} come more than once in {names}")
    if unknown := [name for name in (*percent, *by_column) if name not in names]:
        raise ValueError(f"table {title!r}: percent or digits name {unknown}; the columns are {names}")
    usual = digits if isinstance(digits, int) else 3
    columns: list[list[str]] = []
    for name, column in zip(names, frame.columns, strict=True):
        cells = [cell.item() if isinstance(cell, np.generic) else cell for cell in frame[column].tolist()]
        if name in percent:
            columns.append([_share_text(cell, by_column.get(name, 1), missing, f"{title}: {name}") for cell in cells])
        else:
            places = by_column.get(name, 0 if _whole(cells) else usual)
            columns.append([_text(cell, places, missing) for cell in cells])
    headings = tuple(_with_unit(name) if name in percent else name for name in names)
    return TextTable(title, headings, tuple(zip(*columns, strict=True)), labels)


def with_interval(
    frame: pd.DataFrame,
    column: str,
    *,
    low: str = "low",
    high: str = "high",
    percent: bool = False,
    digits: int | None = None,
) -> pd.DataFrame:
    """The frame with a column and the bounds of its 95 % interval as one column of texts, `73.1 [69.0, 76.8]`.

    It stands where `column` stood, as `accuracy [95 %]` or `accuracy (%) [95 %]`. Where a bound is missing the value stands
    alone; a missing value is left empty.

    Args:
        frame: any table with the three columns.
        column: the value.
        low, high: its bounds.
        percent: whether the three are shares in 0..1, to be written as percentages.
        digits: decimals; by default one for percentages, else three.

    Raises:
        ValueError: if one of the three columns is missing.
    """
    require_columns(frame, (column, low, high), f"the table with intervals of {column!r}")
    factor, places = (100.0, 1) if percent else (1.0, 3)
    texts = [
        interval_text(*(factor * bound for bound in row), digits=places if digits is None else digits)
        for row in frame[[column, low, high]].to_numpy(dtype=float, na_value=math.nan).tolist()
    ]
    named = f"{_with_unit(column) if percent else column} [95 %]"
    return frame.assign(**{column: texts}).drop(columns=[low, high]).rename(columns={column: named})


def interval_text(value: float, low: float, high: float, digits: int) -> str:
    """`73.1 [69.0, 76.8]`; the value alone where a bound is not finite, nothing where the value is missing."""
    if math.isnan(value):
        return ""
    bounds = f" [{number_text(low, digits)}, {number_text(high, digits)}]" if math.isfinite(low + high) else ""
    return number_text(value, digits) + bounds


def number_text(value: float, digits: int) -> str:
    """A number with a true minus sign, and none before a zero."""
    if math.isinf(value):
        return "\N{INFINITY}" if value > 0 else f"{MINUS}\N{INFINITY}"
    written = f"{value:.{digits}f}"
    return written.lstrip("-") if not written.strip("-0.") else written.replace("-", MINUS)


def percent_text(share: float | None) -> str:
    """A share as percent with one decimal and no sign, nothing where it is missing."""
    return "" if share is None or math.isnan(share) else number_text(100 * share, 1)


def settings_table(title: str, settings: Mapping[str, object]) -> TextTable:
    """Nested settings as dotted names and values."""
    return TextTable(title, ("setting", "value"), tuple(_flat(settings, "")), labels=2)


def _flat(settings: Mapping[str, object], prefix: str) -> list[tuple[str, str]]:
    rows: list[tuple[str, str]] = []
    for name, value in settings.items():
        if isinstance(value, Mapping) and value:
            rows += _flat(cast("Mapping[str, object]", value), f"{prefix}{name}.")
        elif isinstance(value, list | tuple):
            rows.append((f"{prefix}{name}", ", ".join(map(str, cast("list[object]", value))) or "none"))
        else:
            # A digest is told by its first 12 digits; the whole stands in the run's own files.
            rows.append((f"{prefix}{name}", _DIGEST.sub(r"\1…", str(value))))
    return rows


def _with_unit(name: str) -> str:
    return name if name.endswith(")") or "%" in name else f"{name} (%)"


def _missing(cell: object) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and math.isnan(cell))


def _whole(cells: Sequence[object]) -> bool:
    """Whether the numbers of a column are all whole ones, missing ones apart."""
    numbers = [cell for cell in cells if isinstance(cell, float) and not math.isnan(cell)]
    return all(number.is_integer() for number in numbers)


def _text(cell: object, digits: int, missing: str) -> str:
    if _missing(cell):
        return missing
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, int):
        return str(cell).replace("-", MINUS)
    if isinstance(cell, float):
        return number_text(cell, digits)
    if type(cell) in (list, tuple):  # not a Head, a tuple with a name of its own
        return ", ".join(map(str, cast("list[object]", cell)))
    return str(cell)


def _share_text(cell: object, digits: int, missing: str, where: str) -> str:
    if _missing(cell):
        return missing
    if not isinstance(cell, int | float):
        raise ValueError(f"{where}: {cell!r} is a {type(cell).__name__}, not the share that a percentage is made from")
    return number_text(100.0 * cell, digits)
