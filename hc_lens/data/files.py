"""Sentence pairs from files: TSV, CSV, JSON, JSON lines and Parquet, each also gzipped, and folders saved by `datasets`.

Whatever is wrong with a file is an error that names the file, the line (or row, counted from 1), the value, and what is
allowed; nothing is skipped or guessed.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from hc_lens.data.rows import Row, read_rows
from hc_lens.data.task import Split

UNLABELLED = (None, "", "-", -1, "-1")
"""How the usual corpora mark a pair without a gold label: SNLI and MNLI files write `-`, the hub's versions -1."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Columns:
    """The names of the columns that hold the two sentences and the label."""

    first: str = "premise"
    second: str = "hypothesis"
    label: str = "label"

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
    Labels are names from `label_names` or integer codes into it; a column that carries its own class names
    (`datasets.ClassLabel`) is read by name.

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
    first: list[str] = []
    second: list[str] = []
    labels: list[int] = []
    dropped = 0
    for row in rows:
        label = _label(row, columns.label, label_names)
        if label is None:
            if not drop_unlabelled:
                value = row.fields[columns.label]
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
        raise ValueError(f"{row.where}: column {column!r} holds {value!r}, not text")
    if not value.strip():
        raise ValueError(f"{row.where}: column {column!r} is empty; it needs text")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{row.where}: column {column!r} is not valid Unicode text ({error.reason})") from error
    return value


def _label(row: Row, column: str, label_names: Sequence[str]) -> int | None:
    """The label as an index into `label_names`; None if the row has none."""
    value = row.fields[column]
    if isinstance(value, str) and value in label_names:
        return list(label_names).index(value)
    # bool is an int: True must not pass for class 1.
    if not isinstance(value, bool) and value in UNLABELLED:
        return None
    code = int(value) if isinstance(value, str) and value.isascii() and value.isdecimal() else value
    if isinstance(code, int) and not isinstance(code, bool) and 0 <= code < len(label_names):
        return code
    raise ValueError(
        f"{row.where}: unknown label {value!r} in column {column!r}; allowed are {list(label_names)} or their codes "
        f"0..{len(label_names) - 1}"
    )
