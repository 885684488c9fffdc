"""Sentence pairs from files: TSV, CSV, JSON, JSON lines and Parquet, each also gzipped, and folders saved by `datasets`.

Whatever is wrong with a file is an error that names the file, the line (or row, counted from 1), the value, and what is
allowed; nothing is skipped or guessed.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hc_lens.data.label_map import LabelMap
from hc_lens.data.rows import Row, read_rows
from hc_lens.data.task import Split
from hc_lens.limits import require_different

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """The names of the columns that hold the two sentences and the label, three different ones."""

    first: str = "premise"
    second: str = "hypothesis"
    label: str = "label"

    def __post_init__(self) -> None:
        require_different("columns", self.names)

    @property
    def names(self) -> tuple[str, str, str]:
        """First sentence, second sentence, label."""
        return self.first, self.second, self.label


NLI_COLUMNS = Columns()
"""The column names of MNLI and HANS on the hub."""


def read_pairs(
    path: Path | str,
    *,
    label_names: Sequence[str],
    name: str,
    columns: Columns = NLI_COLUMNS,
    drop_unlabelled: bool = False,
) -> Split:
    """Read labelled sentence pairs from a local file, or from a folder written by `datasets.Dataset.save_to_disk`.

    The format follows the suffix: `.tsv` (or `.txt`: tab-separated, quotes are ordinary characters), `.csv` (quoted where
    needed), `.jsonl`, `.json`, `.parquet`, each also with `.gz`. TSV and CSV start with a line of column names; text is UTF-8.
    Labels are names from `label_names` or codes into it, as `LabelMap` reads them in every format alike; a column that carries
    its own class names (`datasets.ClassLabel`) is read by name.

    Pairs without a gold label (`UNLABELLED`) are an error, or with `drop_unlabelled` left out and their number logged.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file and line, for a missing column, an unknown label, an empty line or text, bytes that are not
            UTF-8, a damaged or truncated file, or no pairs at all.
    """
    return pairs_from_rows(
        read_rows(path, columns.names),
        source=str(path),
        label_names=label_names,
        name=name,
        columns=columns,
        drop_unlabelled=drop_unlabelled,
    )


def pairs_from_rows(
    rows: Iterable[Row],
    *,
    source: str,
    label_names: Sequence[str],
    name: str,
    columns: Columns = NLI_COLUMNS,
    drop_unlabelled: bool = False,
) -> Split:
    """Check rows as `read_pairs` does and make them a split; `source` names them as a whole.

    Raises:
        ValueError: naming the row.
    """
    label_map = LabelMap.of(label_names)
    first: list[str] = []
    second: list[str] = []
    labels: list[int] = []
    dropped = 0
    for row in rows:
        value = row.fields[columns.label]
        try:
            label = label_map.index(value)
        except ValueError as error:
            raise ValueError(f"{row.where}: {error} in column {columns.label!r}; allowed are {label_map.allowed}") from None
        if label is None:
            if not drop_unlabelled:
                raise ValueError(
                    f"{row.where}: no gold label in column {columns.label!r} ({value!r}); give one of {list(label_names)}, or "
                    "drop such rows with drop_unlabelled=True"
                )
            dropped += 1
            continue
        first.append(text_of(row, columns.first))
        second.append(text_of(row, columns.second))
        labels.append(label)
    if dropped:
        _log.warning("%s: left out %d of %d pairs, which have no gold label", source, dropped, dropped + len(labels))
    if not labels:
        raise ValueError(f"{source} has no labelled pairs: split {name!r} would be empty")
    identity = tuple(range(len(label_names)))
    return Split(name, tuple(first), tuple(second), tuple(labels), tuple(label_names), identity)


def text_of(row: Row, column: str) -> str:
    """The text in this column.

    Raises:
        ValueError: naming the row, if it is empty, not text, or not valid Unicode.
    """
    value = row.fields[column]
    if not isinstance(value, str):
        raise ValueError(f"{row.where}: column {column!r} holds {value!r:.80}, not text")
    if not value.strip():
        raise ValueError(f"{row.where}: column {column!r} is empty; it needs text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{row.where}: column {column!r} is not valid Unicode text ({error.reason})") from error
    return value
