"""Rows of tabular files, each with the place it comes from, so that whatever is wrong with one can be reported there."""

import csv
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import datasets
import pyarrow as pa
import pyarrow.parquet

_SPACE = re.compile(r"\s*")
_SPACE_OR_COMMA = re.compile(r"[\s,]*")


class Row(NamedTuple):
    """A row's values by column name, and where it stands: `pairs.tsv, line 7`."""

    where: str
    fields: Mapping[str, object]


def read_rows(path: Path | str, needed: Sequence[str]) -> Iterator[Row]:
    """The rows of a file or of a folder saved by `datasets`, as `hc_lens.data.files.read_pairs` describes the formats.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming file and line, if a needed column is missing or the file cannot be read as its format.
    """
    path = Path(path)
    if path.is_dir():
        return _saved_folder(path, needed)
    if not path.exists():
        raise FileNotFoundError(f"no such file: {path}")
    suffix = (path.with_suffix("") if path.suffix == ".gz" else path).suffix.lower()
    if suffix not in _READERS:
        raise ValueError(f"{path}: unknown format {suffix!r}; known are {', '.join(_READERS)}, each also with .gz")
    return _READERS[suffix](path, needed)


def dataset_rows(data: datasets.Dataset, needed: Sequence[str], source: str) -> Iterator[Row]:
    """The rows of a data set; class codes with names of their own (`datasets.ClassLabel`) are given as names.

    Raises:
        ValueError: if a needed column is missing.
    """
    _require_columns(needed, data.column_names, source)
    return _table_rows(data.select_columns(list(needed)).with_format("arrow")[:], data.features, source)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file, gzipped or not, with their line ends; a byte order mark is dropped."""
    number = 0
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        try:
            for number, raw in enumerate(file, 1):
                yield number, raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            byte = error.object[error.start]
            raise ValueError(f"{path}, line {number}: not UTF-8 (byte 0x{byte:02x} at column {error.start + 1})") from error
        except (EOFError, gzip.BadGzipFile, zlib.error) as error:
            raise ValueError(f"{path}, after line {number}: the gzip file is truncated or damaged ({error})") from error


def _separated(path: Path, needed: Sequence[str], delimiter: str, quoting: Literal[0, 3]) -> Iterator[Row]:
    reader = csv.reader((text for _, text in _lines(path)), delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    header: list[str] | None = None
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
        where = f"{path}, line {line}"
        line = reader.line_num + 1  # of the next record: a quoted field can hold line ends
        if values is None:
            return
        if not any(value.strip() for value in values):
            raise ValueError(f"{where}: empty line")
        if header is None:
            _require_columns(needed, values, where, hint="; the first line must name the columns")
            header = values
        elif len(values) != len(header):
            raise ValueError(f"{where}: {len(values)} fields, but the first line names {len(header)} columns {header}")
        else:
            yield Row(where, dict(zip(header, values, strict=True)))


def _tsv(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    return _separated(path, needed, "\t", csv.QUOTE_NONE)


def _csv(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    return _separated(path, needed, ",", csv.QUOTE_MINIMAL)


def _json_lines(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    for number, text in _lines(path):
        where = f"{path}, line {number}"
        if not text.strip():
            raise ValueError(f"{where}: empty line")
        try:
            value = json.loads(text)
        except json.JSONDecodeError as error:
            raise ValueError(f"{where}: not JSON ({error.msg} at column {error.colno})") from error
        yield _object(value, needed, where)


def _json(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """A list of objects; or, as many tools write under this suffix, one object a line."""
    text = "".join(line for _, line in _lines(path))
    start = _end(_SPACE, text, 0)
    if text[start : start + 1] != "[":
        yield from _json_lines(path, needed)
        return
    try:
        json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON ({error.msg} at column {error.colno})") from error
    decoder = json.JSONDecoder()
    line, at = 1, 0
    begin = _end(_SPACE, text, start + 1)
    while text[begin] != "]":  # the list is valid: only items and commas come before its end
        line, at = line + text.count("\n", at, begin), begin
        value, end = decoder.raw_decode(text, begin)
        yield _object(value, needed, f"{path}, line {line}")
        begin = _end(_SPACE_OR_COMMA, text, end)


def _end(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return at if match is None else match.end()


def _object(value: object, needed: Sequence[str], where: str) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object with the columns {list(needed)}, got {value!r}")
    fields = {str(key): item for key, item in value.items()}
    _require_columns(needed, list(fields), where)
    return Row(where, fields)


def _parquet(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        file = pyarrow.parquet.ParquetFile(pa.BufferReader(content))
        _require_columns(needed, file.schema_arrow.names, str(path))
        table = file.read(columns=list(needed))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: the gzip file is truncated or damaged ({error})") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error
    yield from _table_rows(table, datasets.Features.from_arrow_schema(file.schema_arrow), str(path))


def _saved_folder(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    try:
        data = datasets.load_from_disk(str(path))
    except (FileNotFoundError, pa.ArrowInvalid, OSError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: not a folder written by datasets' save_to_disk, or damaged ({error})") from error
    if isinstance(data, datasets.DatasetDict):
        raise ValueError(f"{path} holds the splits {list(data)}: name one, for example {path / str(next(iter(data)))}")
    return dataset_rows(data, needed, str(path))


def _table_rows(table: pa.Table, features: datasets.Features, source: str) -> Iterator[Row]:
    columns: dict[str, list[object]] = {}
    for name in table.column_names:
        feature, values = features[name], table[name].to_pylist()
        columns[name] = [_class_name(feature.names, v) for v in values] if isinstance(feature, datasets.ClassLabel) else values
    for number, fields in enumerate(zip(*columns.values(), strict=True), 1):
        yield Row(f"{source}, row {number}", dict(zip(columns, fields, strict=True)))


def _class_name(names: Sequence[str], code: object) -> object:
    return names[code] if isinstance(code, int) and 0 <= code < len(names) else code


def _require_columns(needed: Sequence[str], present: Sequence[str], where: str, hint: str = "") -> None:
    for name in needed:
        if present.count(name) != 1:
            problem = "no column" if name not in present else "more than one column"
            raise ValueError(f"{where}: {problem} {name!r}; the columns are {list(present)}{hint}")


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".txt": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}
