"""Rows of tabular files, each with the place it comes from, so that whatever is wrong with one can be reported there."""

import csv
import gzip
import sys
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple, cast

import datasets
import pyarrow as pa
import pyarrow.parquet

from hc_lens.json_text import JsonTextError, parse_json, parse_json_items


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
    features = [data.features[name] for name in needed]
    names = {
        name: feature.names for name, feature in zip(needed, features, strict=True) if isinstance(feature, datasets.ClassLabel)
    }
    return _table_rows(data.select_columns(list(needed)).with_format("arrow")[:], names, source)


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
    csv.field_size_limit(sys.maxsize)  # of the whole process, as everyone does who has long texts: the default is 131,072
    reader = csv.reader((text for _, text in _lines(path)), delimiter=delimiter, quoting=quoting, strict=True)
    line = 1
    header: list[str] | None = None
    while True:
        try:
            values = next(reader, None)
        except csv.Error as error:
            inside = "new-line" in str(error)
            problem = "a carriage return within the line; lines end with \\n or \\r\\n" if inside else str(error)
            raise ValueError(f"{path}, line {reader.line_num}: {problem}") from error
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
            raise ValueError(f"{where}: {len(values)} fields, but the first line names {len(header)} columns {_brief(header)}")
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
            value = parse_json(text)
        except JsonTextError as error:
            raise ValueError(f"{where}: not JSON ({error})") from error
        yield _object(value, needed, where)


def _json(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    """A list of objects; or, as many tools write under this suffix, one object a line."""
    text = "".join(line for _, line in _lines(path))
    if not text.lstrip().startswith("["):
        yield from _json_lines(path, needed)
        return
    try:
        for line, value in parse_json_items(text):
            yield _object(value, needed, f"{path}, line {line}")
    except JsonTextError as error:
        raise ValueError(f"{path}, line {error.line}: not JSON ({error})") from error


def _object(value: object, needed: Sequence[str], where: str) -> Row:
    if not isinstance(value, dict):
        raise ValueError(f"{where}: expected an object with the columns {list(needed)}, got {_brief(value)}")
    fields = cast("dict[str, object]", value)
    _require_columns(needed, list(fields), where)
    return Row(where, fields)


def _parquet(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    try:
        content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        file = pyarrow.parquet.ParquetFile(pa.BufferReader(content))
        schema = file.schema_arrow
        _require_columns(needed, schema.names, str(path))
        # A column called label.x would be read along with label, as a field of it.
        table = file.read(columns=list(needed)).select(list(needed))
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise ValueError(f"{path}: the gzip file is truncated or damaged ({error})") from error
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable Parquet file ({error})") from error
    coded = [name for name in needed if pa.types.is_integer(schema.field(name).type)]
    yield from _table_rows(table, _class_names(schema, coded, path), str(path))


def _class_names(schema: pa.Schema, coded: Sequence[str], path: Path) -> dict[str, Sequence[str]]:
    """The class names that `datasets` wrote beside columns of codes; what it says of other columns does not matter here."""
    written = (schema.metadata or {}).get(b"huggingface")
    if written is None or not coded:
        return {}
    found: dict[str, Sequence[str]] = {}
    try:
        told = cast("dict[str, dict[str, dict[str, dict[str, object]]]]", parse_json(written.decode()))["info"]["features"]
        for name in coded:
            if told[name].get("_type") == "ClassLabel":
                found[name] = [str(each) for each in cast("list[object]", told[name]["names"])]
    except (UnicodeDecodeError, JsonTextError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{path}: its metadata 'huggingface', which may name the classes of {coded}, is damaged ({error!r:.80}): write the "
            "file without it, or with names in place of codes"
        ) from error
    return found


def _saved_folder(path: Path, needed: Sequence[str]) -> Iterator[Row]:
    try:
        data = datasets.load_from_disk(str(path))
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError, pa.ArrowException) as error:
        raise ValueError(f"{path}: not a folder written by datasets' save_to_disk, or damaged ({error!s:.300})") from error
    if isinstance(data, datasets.DatasetDict):
        raise ValueError(f"{path} holds the splits {list(data)}: name one, for example {path / str(next(iter(data)))}")
    return dataset_rows(data, needed, str(path))


def _table_rows(table: pa.Table, class_names: Mapping[str, Sequence[str]], source: str) -> Iterator[Row]:
    """The rows of a table, with the names of the columns of codes that have names of their own."""
    columns = {name: table[name].to_pylist() for name in table.column_names}
    for number, values in enumerate(zip(*columns.values(), strict=True), 1):
        where = f"{source}, row {number}"
        fields = dict(zip(columns, values, strict=True))
        named = {name: _class_name(names, fields[name], f"{where}: column {name!r}") for name, names in class_names.items()}
        yield Row(where, {**fields, **named})


def _class_name(names: Sequence[str], code: object, where: str) -> object:
    if code is None or code == -1:  # as `datasets` marks a row without a class
        return None
    if not isinstance(code, int) or not 0 <= code < len(names):
        raise ValueError(f"{where} holds the code {code!r}, but names its classes 0..{len(names) - 1}: {_brief(names)}")
    return names[code]


def _require_columns(needed: Sequence[str], present: Sequence[str], where: str, hint: str = "") -> None:
    for name in needed:
        if present.count(name) != 1:
            problem = "no column" if name not in present else "more than one column"
            raise ValueError(f"{where}: {problem} {name!r}; the columns are {_brief(present)}{hint}")


def _brief(value: object, longest: int = 300) -> str:
    """A value as it stands in a message, cut where it would fill the screen."""
    shown = repr(list(cast("Sequence[object]", value)) if isinstance(value, list | tuple) else value)
    return shown if len(shown) <= longest else f"{shown[:longest]}..."


_READERS: dict[str, Callable[[Path, Sequence[str]], Iterator[Row]]] = {
    ".tsv": _tsv,
    ".txt": _tsv,
    ".csv": _csv,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".json": _json,
    ".parquet": _parquet,
}
