"""What a file holds is what the split holds, in every format; what is wrong with a file is said with its line."""

import csv
import gzip
import json
import logging
import re
import tempfile
from collections.abc import Callable
from pathlib import Path

import datasets
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.data.files import Columns, read_pairs
from hc_lens.data.task import Split

NAMES = ("entailment", "neutral", "contradiction")
RENAMED = Columns("a", "b", "gold")
Pairs = list[tuple[str, str, int]]


def texts(without: str = "") -> st.SearchStrategy[str]:
    """Any Unicode text that is not blank."""
    characters = st.characters(exclude_categories=("Cs",), exclude_characters=without)
    return st.text(characters, min_size=1, max_size=20).filter(lambda text: bool(text.strip()))


def pairs(without: str = "") -> st.SearchStrategy[Pairs]:
    return st.lists(st.tuples(texts(without), texts(without), st.integers(0, 2)), min_size=1, max_size=6)


def objects(rows: Pairs, codes: bool) -> list[dict[str, str | int]]:
    return [{"a": a, "b": b, "gold": label if codes else NAMES[label], "other": 7} for a, b, label in rows]


def dataset(rows: Pairs, codes: bool) -> datasets.Dataset:
    return datasets.Dataset.from_list(objects(rows, codes))


def write_tsv(path: Path, rows: Pairs, codes: bool) -> None:
    lines = ["a\tb\tgold\tother", *(f"{a}\t{b}\t{label if codes else NAMES[label]}\t7" for a, b, label in rows)]
    path.write_text("\n".join(lines), "utf-8", newline="")


def write_csv(path: Path, rows: Pairs, codes: bool) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ["a", "b", "gold", "other"])
        writer.writeheader()
        writer.writerows(objects(rows, codes))


def write_json_lines(path: Path, rows: Pairs, codes: bool) -> None:
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in objects(rows, codes)), "utf-8", newline="")


def write_json(path: Path, rows: Pairs, codes: bool) -> None:
    path.write_text(json.dumps(objects(rows, codes), indent=1), "utf-8")


def write_parquet(path: Path, rows: Pairs, codes: bool) -> None:
    dataset(rows, codes).to_parquet(path)


def write_folder(path: Path, rows: Pairs, codes: bool) -> None:
    dataset(rows, codes).save_to_disk(path)


FORMATS: dict[str, tuple[Callable[[Path, Pairs, bool], None], str]] = {
    "pairs.tsv": (write_tsv, "\t\r\n"),  # a TSV cannot hold these
    "pairs.txt": (write_tsv, "\t\r\n"),
    "pairs.csv": (write_csv, ""),
    "pairs.jsonl": (write_json_lines, ""),
    "lines.json": (write_json_lines, ""),
    "pairs.json": (write_json, ""),
    "pairs.parquet": (write_parquet, ""),
    "folder": (write_folder, ""),
}


@pytest.mark.parametrize("name", FORMATS)
@settings(max_examples=25)
@given(data=st.data(), codes=st.booleans(), zipped=st.booleans())
def test_a_split_survives_every_format(name: str, data: st.DataObject, codes: bool, zipped: bool) -> None:
    write, without = FORMATS[name]
    rows = data.draw(pairs(without))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        write(path, rows, codes)
        if zipped and path.is_file():
            content = path.read_bytes()
            path = Path(f"{path}.gz")
            path.write_bytes(gzip.compress(content))
        split = read_pairs(path, label_names=NAMES, name="s", columns=RENAMED)
    first, second, labels = zip(*rows, strict=True)
    assert split == Split("s", first, second, labels, NAMES, (0, 1, 2))


def test_a_quote_is_an_ordinary_character_of_a_tsv(tmp_path: Path) -> None:
    """GLUE's files have unbalanced quotes."""
    path = tmp_path / "p.tsv"
    path.write_text('premise\thypothesis\tlabel\n"So he\tsaid "so"\tneutral\n')
    split = read_pairs(path, label_names=NAMES, name="s")
    assert (split.first, split.second) == (('"So he',), ('said "so"',))


def test_windows_line_ends_and_byte_order_mark(tmp_path: Path) -> None:
    for name, separator in (("p.tsv", "\t"), ("p.csv", ",")):
        rows = [("premise", "hypothesis", "label"), ("a", "b", "neutral"), ("c", "d", "2")]
        path = tmp_path / name
        path.write_bytes(b"\xef\xbb\xbf" + "".join(separator.join(row) + "\r\n" for row in rows).encode())
        split = read_pairs(path, label_names=NAMES, name="s")
        assert (split.first, split.second, split.labels) == (("a", "c"), ("b", "d"), (1, 2))


@pytest.mark.parametrize("save", [datasets.Dataset.to_parquet, datasets.Dataset.save_to_disk])
def test_a_column_with_its_own_class_names_is_read_by_name(
    save: Callable[[datasets.Dataset, Path], object], tmp_path: Path
) -> None:
    """Code 0 of this file is contradiction, whatever code 0 is in ours."""
    codes = dataset([("a", "b", 0), ("c", "d", 1), ("e", "f", 2)], codes=True)
    path = tmp_path / "p.parquet"
    save(codes.cast_column("gold", datasets.ClassLabel(names=["contradiction", "neutral", "entailment"])), path)
    assert read_pairs(path, label_names=NAMES, name="s", columns=RENAMED).labels == (2, 1, 0)
    with pytest.raises(ValueError, match=r"row 1: unknown label 'contradiction'.*\['yes', 'no'\]"):
        read_pairs(path, label_names=("yes", "no"), name="s", columns=RENAMED)


GOOD = "premise\thypothesis\tlabel\na\tb\tneutral\n"
GOOD_CSV = "premise,hypothesis,label\na,b,neutral\n"
GOOD_JSON = '{"premise": "a", "hypothesis": "b", "label": 0}\n'


def with_label(label: str) -> str:
    return f'{{"premise": "a", "hypothesis": "b", "label": {label}}}\n'


def with_premise(premise: str) -> str:
    return f'{{"premise": {premise}, "hypothesis": "b", "label": 0}}\n'


BAD_TEXT = {
    "no_such_column.tsv": ("premise\thypo\tlabel\na\tb\tneutral\n", r"tsv, line 1: no column 'hypothesis'.*'hypo', 'label'\]"),
    "no_header.tsv": ("a\tb\tneutral\n", r"line 1: no column 'premise'.*first line must name the columns"),
    "two_labels.csv": ("premise,hypothesis,label,label\na,b,0,0\n", r"line 1: more than one column 'label'"),
    "label.tsv": (GOOD + "c\td\tx\n", r"label\.tsv, line 3: unknown label 'x' in column 'label'; allowed are \['ent.*0\.\.2"),
    "label.jsonl": (GOOD_JSON + with_label("3"), r"label\.jsonl, line 2: unknown label 3"),
    "label.json": (f"[{GOOD_JSON},\n\n{with_label('9')}]", r"label\.json, line 4: unknown label 9"),
    "code.csv": (GOOD_CSV + "c,d,3\n", r"line 3: unknown label '3'"),
    "float.jsonl": (with_label("1.5"), r"line 1: unknown label 1\.5"),
    "bool.jsonl": (with_label("true"), r"line 1: unknown label True"),
    "list.jsonl": (with_label("[1]"), r"line 1: unknown label \[1\]"),
    "blank.tsv": (GOOD + "\nc\td\tneutral\n", r"blank\.tsv, line 3: empty line"),
    "blank_end.tsv": (GOOD + "\n", r"line 3: empty line"),
    "blank.csv": ("premise,hypothesis,label\n\na,b,0\n", r"line 2: empty line"),
    "blank.jsonl": (GOOD_JSON + "\n", r"line 2: empty line"),
    "empty_text.tsv": (GOOD + " \td\tneutral\n", r"line 3: column 'premise' is empty"),
    "null.jsonl": (with_premise("null"), r"line 1: column 'premise' holds None, not text"),
    "surrogate.jsonl": (with_premise('"\\ud800"'), r"line 1: column 'premise' is not valid Unicode"),
    "short.tsv": (GOOD + "c\td\n", r"line 3: 2 fields, but the first line names 3 columns"),
    "long.csv": (GOOD_CSV + "c,d,e,0\n", r"line 3: 4 fields"),
    "quoted.csv": ('premise,hypothesis,label\n"two\nlines",b,0\nc,d,x\n', r"line 4: unknown label 'x'"),
    "open_quote.csv": (GOOD_CSV + '"c,d,0\n', r"line 3: unexpected end of data"),
    "unlabelled.tsv": (GOOD + "c\td\t-1\n", r"line 3: no gold label in column 'label' \('-1'\).*drop_unlabelled=True"),
    "dash.tsv": (GOOD + "c\td\t-\n", r"line 3: no gold label"),
    "null_label.jsonl": (with_label("null"), r"line 1: no gold label in column 'label' \(None\)"),
    "broken.jsonl": (GOOD_JSON + '{"premise": \n', r"line 2: not JSON \(.*at column"),
    "broken.json": ('[{"premise": "a",\n "hypothesis": }]', r"broken\.json, line 2: not JSON"),
    "cut.json": (f"[\n{GOOD_JSON},\n", r"cut\.json, line 4: not JSON"),
    "not_object.jsonl": ("[1, 2]\n", r"line 1: expected an object with the columns \['premise', 'hypo.*got \[1, 2\]"),
    "key.jsonl": (GOOD_JSON + '{"premise": "a"}\n', r"line 2: no column 'hypothesis'; the columns are \['premise'\]"),
    "no_rows.tsv": ("premise\thypothesis\tlabel\n", r"no_rows\.tsv has no labelled pairs: split 's' would be empty"),
    "nothing.tsv": ("", r"nothing\.tsv has no labelled pairs"),
    "nothing.json": ("[]", r"nothing\.json has no labelled pairs"),
    "pairs.xlsx": ("", r"unknown format '\.xlsx'; known are \.tsv, \.txt, \.csv, \.jsonl, \.ndjson, \.json, \.parquet"),
    "pairs.parquet": ("text", r"pairs\.parquet: not a readable Parquet file"),
}


@pytest.mark.parametrize("name", BAD_TEXT)
def test_bad_files_are_refused_with_their_line(name: str, tmp_path: Path) -> None:
    content, message = BAD_TEXT[name]
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as refusal:
        read_pairs(path, label_names=NAMES, name="s")
    assert str(path) in str(refusal.value)


@pytest.mark.parametrize("name", [name for name in BAD_TEXT if name.startswith(("label", "blank", "broken", "quoted"))])
def test_lines_are_counted_alike_in_gzipped_files(name: str, tmp_path: Path) -> None:
    content, message = BAD_TEXT[name]
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(content.encode()))
    with pytest.raises(ValueError, match=re.sub(r"(\\.\w+),", r"\1\\.gz,", message)):
        read_pairs(path, label_names=NAMES, name="s")


def test_bytes_that_are_not_utf8_are_refused_with_their_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.tsv"
    path.write_bytes(GOOD.encode() + "caf\xe9\tb\tneutral\n".encode("latin-1"))
    with pytest.raises(ValueError, match=r"latin\.tsv, line 3: not UTF-8 \(byte 0xe9 at column 4\)"):
        read_pairs(path, label_names=NAMES, name="s")
    path.write_text(GOOD, "utf-16")
    with pytest.raises(ValueError, match="line 1: not UTF-8"):
        read_pairs(path, label_names=NAMES, name="s")


def test_damaged_gzip_files_are_refused(tmp_path: Path) -> None:
    lines = "".join(f'{{"premise": "text {i * i}", "hypothesis": "b", "label": 0}}\n' for i in range(2000))
    path = tmp_path / "cut.jsonl.gz"
    whole = gzip.compress(lines.encode())
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"cut\.jsonl\.gz, after line \d+: the gzip file is truncated or damaged"):
        read_pairs(path, label_names=NAMES, name="s")
    for name in ("plain.jsonl.gz", "plain.parquet.gz"):
        plain = tmp_path / name
        plain.write_text(lines)
        with pytest.raises(ValueError, match="the gzip file is truncated or damaged"):
            read_pairs(plain, label_names=NAMES, name="s")


def test_missing_files_and_wrong_folders_are_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no such file: .*nowhere\.tsv"):
        read_pairs(tmp_path / "nowhere.tsv", label_names=NAMES, name="s")
    with pytest.raises(ValueError, match="not a folder written by datasets' save_to_disk"):
        read_pairs(tmp_path, label_names=NAMES, name="s")
    rows = dataset([("a", "b", 0)], codes=True)
    datasets.DatasetDict({"train": rows, "dev": rows}).save_to_disk(tmp_path / "saved")
    with pytest.raises(ValueError, match=r"holds the splits \['train', 'dev'\]: name one, for example .*saved/train"):
        read_pairs(tmp_path / "saved", label_names=NAMES, name="s", columns=RENAMED)
    assert len(read_pairs(tmp_path / "saved" / "dev", label_names=NAMES, name="s", columns=RENAMED)) == 1


@pytest.mark.parametrize("save", [write_parquet, write_folder])
def test_tables_lacking_a_column_name_those_they_have(save: Callable[[Path, Pairs, bool], None], tmp_path: Path) -> None:
    path = tmp_path / "p.parquet"
    save(path, [("a", "b", 0)], True)
    with pytest.raises(ValueError, match=r"p\.parquet: no column 'premise'; the columns are \['a', 'b', 'gold', 'other'\]"):
        read_pairs(path, label_names=NAMES, name="s")


def test_unlabelled_pairs_are_dropped_only_on_request_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "p.tsv"
    path.write_text(GOOD + "c\td\t-1\ne\tf\t-\ng\th\t0\n")
    with caplog.at_level(logging.WARNING, "hc_lens"):
        split = read_pairs(path, label_names=NAMES, name="s", drop_unlabelled=True)
    assert split.first == ("a", "g")
    assert "left out 2 of 4 pairs" in caplog.text
    path.write_text("premise\thypothesis\tlabel\nc\td\t-1\n")
    with pytest.raises(ValueError, match="no labelled pairs"):
        read_pairs(path, label_names=NAMES, name="s", drop_unlabelled=True)


def test_digits_that_are_label_names_are_names(tmp_path: Path) -> None:
    path = tmp_path / "p.tsv"
    path.write_text("premise\thypothesis\tlabel\na\tb\t1\nc\td\t0\n")
    assert read_pairs(path, label_names=("1", "0"), name="s").labels == (0, 1)
