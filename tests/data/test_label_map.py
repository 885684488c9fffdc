"""One rule for labels, whatever the file: names first, then numbers by name, or codes where no name is a number."""

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hc_lens.data.files import read_pairs
from hc_lens.data.label_map import LabelMap
from hc_lens.data.load import load_task

NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)")

Write = Callable[[Path, list[float]], Path]


def as_tsv(folder: Path, labels: list[float]) -> Path:
    path = folder / "p.tsv"
    path.write_text("premise\thypothesis\tlabel\n" + "".join(f"a\tb\t{label}\n" for label in labels))
    return path


def as_csv(folder: Path, labels: list[float]) -> Path:
    path = folder / "p.csv"
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("premise", "hypothesis", "label"), *(("a", "b", label) for label in labels)])
    return path


def as_json_lines(folder: Path, labels: list[float]) -> Path:
    path = folder / "p.jsonl"
    path.write_text("".join(json.dumps({"premise": "a", "hypothesis": "b", "label": label}) + "\n" for label in labels))
    return path


def as_parquet(folder: Path, labels: list[float]) -> Path:
    path = folder / "p.parquet"
    columns = {"premise": ["a"] * len(labels), "hypothesis": ["b"] * len(labels), "label": labels}
    pyarrow.parquet.write_table(pa.table(columns), path)
    return path


def as_folder(folder: Path, labels: list[float]) -> Path:
    path = folder / "saved"
    n = len(labels)
    datasets.Dataset.from_dict({"premise": ["a"] * n, "hypothesis": ["b"] * n, "label": labels}).save_to_disk(path)
    return path


WRITERS: list[Write] = [as_tsv, as_csv, as_json_lines, as_parquet, as_folder]


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("write", WRITERS)
def test_the_same_numbers_are_the_same_classes_in_every_format(write: Write, kind: type[float], tmp_path: Path) -> None:
    path = write(tmp_path, [kind(0), kind(1), kind(1)])
    assert read_pairs(path, label_names=("no", "yes"), name="s").labels == (0, 1, 1), "codes in the order of the names"
    assert read_pairs(path, label_names=("1", "0"), name="s").labels == (1, 0, 0), "names, not codes"
    with pytest.raises(ValueError, match=r"unknown label '?1(\.0)?'? in column 'label'; allowed are \['a', '0'\]$"):
        read_pairs(path, label_names=("a", "0"), name="s")


@pytest.mark.parametrize("write", WRITERS)
def test_minus_one_is_a_class_where_it_is_a_label_name(write: Write, tmp_path: Path) -> None:
    path = write(tmp_path, [-1, 1, -1])
    assert read_pairs(path, label_names=("-1", "1"), name="s", drop_unlabelled=True).labels == (0, 1, 0)
    assert read_pairs(path, label_names=("no", "yes"), name="s", drop_unlabelled=True).labels == (1,)


def test_a_gap_is_no_label_and_makes_the_other_numbers_floats(tmp_path: Path) -> None:
    columns = {
        "premise": ["a"] * 4,
        "hypothesis": ["b"] * 4,
        "label": pa.array([1.0, None, float("nan"), 0.0], from_pandas=False),
    }
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "p.parquet")
    split = read_pairs(tmp_path / "p.parquet", label_names=("no", "yes"), name="s", drop_unlabelled=True)
    assert split.labels == (1, 0)
    with pytest.raises(ValueError, match=r"row 2: no gold label in column 'label' \(None\)"):
        read_pairs(tmp_path / "p.parquet", label_names=("no", "yes"), name="s")


@given(
    st.lists(st.text(max_size=6).filter(str.strip), min_size=1, max_size=5, unique=True)
    | st.lists(st.integers(-3, 5).map(str), min_size=1, max_size=5, unique=True)
)
def test_every_name_is_read_as_itself(names: list[str]) -> None:
    numbers = [float(name) for name in names if NUMBER.fullmatch(name)]
    assume(len(set(numbers)) == len(numbers))
    found = LabelMap.of(names)
    assert [found.index(name) for name in names] == list(range(len(names)))


@given(st.lists(st.integers(-3, 9), min_size=1, max_size=5, unique=True), st.integers(-4, 10))
def test_numbers_are_names_in_whatever_form_they_come(names: list[int], value: int) -> None:
    found = LabelMap.of([str(name) for name in names])
    for form in (value, float(value), str(value), f"{value}.0"):
        if value in names:
            assert found.index(form) == names.index(value)
        elif value == -1:
            assert found.index(form) is None
        else:
            with pytest.raises(ValueError, match="unknown label"):
                found.index(form)


@pytest.mark.parametrize("value", [True, False, 1.5, "1.5", "one", " 1", "1e0", "٣", "1_0", [1], {"a": 1}, float("inf"), 2])
def test_what_is_no_code_is_refused_with_the_value(value: object) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(f'unknown label {value!r}')}$"):
        LabelMap.of(("no", "yes")).index(value)


def test_a_long_value_is_not_repeated_whole() -> None:
    with pytest.raises(ValueError, match="unknown label") as refusal:
        LabelMap.of(("no", "yes")).index("1" * 5_000)
    assert len(str(refusal.value)) < 200


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("yes", "no", "yes"), "label names must be all different, 'yes' comes more than once"),
        (("1", "1.0"), "all different as numbers"),
        (("0", "-0"), "all different as numbers"),
        (("yes", " "), "none of them blank"),
        ((), "must be at least one"),
    ],
)
def test_names_that_leave_the_class_open_are_refused(names: tuple[str, ...], says: str, tmp_path: Path) -> None:
    path = as_tsv(tmp_path, [0, 1])
    with pytest.raises(ValueError, match=says):
        read_pairs(path, label_names=names, name="s")
    if names:
        with pytest.raises(ValueError, match=says):
            load_task(path, label_names=names)


@pytest.mark.parametrize("save", [datasets.Dataset.to_parquet, datasets.Dataset.save_to_disk])
def test_codes_beyond_the_class_names_of_their_column_are_refused(
    save: Callable[[datasets.Dataset, Path], object], tmp_path: Path
) -> None:
    """`datasets` keeps such codes without a word; read by position, 2 would be a class of ours."""
    rows = datasets.Dataset.from_dict({"premise": ["a"] * 3, "hypothesis": ["b"] * 3, "label": [0, -1, 2]})
    save(rows.cast_column("label", datasets.ClassLabel(names=["neg", "pos"])), tmp_path / "p.parquet")
    with pytest.raises(ValueError, match=r"row 3: column 'label' holds the code 2, but names its classes 0\.\.1"):
        read_pairs(tmp_path / "p.parquet", label_names=("neg", "pos", "other"), name="s", drop_unlabelled=True)
