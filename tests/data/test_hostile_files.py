"""Files that are legal but unusual, or damaged in ways a parser has no word for: read right, or refused with file and line."""

import csv
import gzip
import json
from pathlib import Path

import datasets
import pyarrow as pa
import pyarrow.parquet
import pytest

from hc_lens.data.files import Columns, read_pairs
from hc_lens.data.nli import hans
from hc_lens.data.task import Split, Task
from hc_lens.relations.sources import load_countries, load_lre

NAMES = ("no", "yes")
PAIR = {"premise": "a", "hypothesis": "b", "label": 1}
LONG = "word " * 60_000  # 300,000 characters
DEEP = "[" * 10_000 + "]" * 10_000
DIGITS = "1" * 5_000


def read(path: Path) -> Split:
    return read_pairs(path, label_names=NAMES, name="s")


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl", "json"])
def test_texts_of_any_length_are_read(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"p.{suffix}"
    separator = "\t" if suffix == "tsv" else ","
    row = json.dumps({**PAIR, "premise": LONG})
    lines = {"jsonl": row, "json": f"[{row}]"}.get(suffix, f"premise\thypothesis\tlabel\n{LONG}\tb\t1".replace("\t", separator))
    path.write_text(lines)
    assert read(path).first == (LONG,)


def test_quoted_fields_of_any_length_and_with_line_ends_are_read(tmp_path: Path) -> None:
    text = f'{LONG}"\r\n\rend'
    with (tmp_path / "p.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("premise", "hypothesis", "label"), (text, "b", 1)])
    assert read(tmp_path / "p.csv").first == (text,)


@pytest.mark.parametrize("name", ["p.tsv", "p.csv"])
def test_lines_may_end_in_two_ways_in_one_file_but_not_within(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    separator = "\t" if name.endswith("tsv") else ","
    path.write_bytes("premise,hypothesis,label\r\na,b,1\nc,d,0\r\n".replace(",", separator).encode())
    assert read(path).labels == (1, 0)
    path.write_bytes("premise,hypothesis,label\na,b,1\nc\rd,d,0\n".replace(",", separator).encode())
    with pytest.raises(ValueError, match=rf"{name}, line 3: a carriage return within the line"):
        read(path)


@pytest.mark.parametrize("name", ["p.tsv", "p.csv"])
def test_nul_characters_are_text(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes("premise,hypothesis,label\na\0z,b,1\n".replace(",", "\t" if name.endswith("tsv") else ",").encode())
    assert read(path).first == ("a\0z",)


def test_utf16_without_a_mark_is_refused_with_the_columns_it_seems_to_have(tmp_path: Path) -> None:
    (tmp_path / "p.tsv").write_bytes("premise\thypothesis\tlabel\na\tb\t1\n".encode("utf-16-le"))
    with pytest.raises(ValueError, match=r"p\.tsv, line 1: no column 'premise'; the columns are \['p\\x00r"):
        read(tmp_path / "p.tsv")


@pytest.mark.parametrize("value", [DEEP, DIGITS, '{"a": 1, "a": 2}'])
@pytest.mark.parametrize("name", ["p.jsonl", "p.json", "p.jsonl.gz", "p.json.gz"])
def test_json_that_no_parser_takes_is_refused_with_its_line(name: str, value: str, tmp_path: Path) -> None:
    good, bad = json.dumps(PAIR), json.dumps(PAIR)[:-1] + f', "meta": {value}}}'
    text = f"[{good},\n{bad}]" if ".json." in f"{name}." else f"{good}\n{bad}\n"
    (tmp_path / name).write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    with pytest.raises(ValueError, match=rf"{name}, line 2: not JSON \(") as refusal:
        read(tmp_path / name)
    assert len(str(refusal.value)) < len(str(tmp_path)) + 150


def test_a_label_given_twice_is_refused_rather_than_the_last_taken(tmp_path: Path) -> None:
    (tmp_path / "p.jsonl").write_text('{"premise": "a", "hypothesis": "b", "label": 0, "label": 1}\n')
    with pytest.raises(ValueError, match=r"line 1: not JSON \(an object has the key 'label' twice\)"):
        read(tmp_path / "p.jsonl")


def test_long_values_are_cut_in_messages(tmp_path: Path) -> None:
    for name, text in {
        "label.tsv": f"premise\thypothesis\tlabel\na\tb\t{LONG}\n",
        "column.tsv": f"{LONG}\n",
        "object.jsonl": json.dumps([LONG]),
        "text.jsonl": json.dumps({**PAIR, "premise": [LONG]}),
        "fields.csv": f"premise,hypothesis,label,{LONG}\na,b,1\n",
    }.items():
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=f"{name}, line ") as refusal:
            read(tmp_path / name)
        assert len(str(refusal.value)) < len(str(tmp_path)) + 600


def table(**more: pa.Array) -> pa.Table:
    return pa.table({"premise": ["a", "c"], "hypothesis": ["b", "d"], "label": [1, 0], **more})


def test_columns_that_are_not_needed_are_not_looked_at(tmp_path: Path) -> None:
    """A map, which `datasets` has no name for; structs with fields of our names; two columns of one name."""
    maps = pa.array([[("k", 1)], []], pa.map_(pa.string(), pa.int64()))
    structs = pa.array([{"label": 7}, {"label": 8}])
    odd = table(meta=maps, gold=structs, **{"label.old": pa.array([5, 6])})
    odd = odd.append_column("twice", pa.array([1, 2])).append_column("twice", pa.array([3, 4]))
    pyarrow.parquet.write_table(odd, tmp_path / "p.parquet")
    split = read(tmp_path / "p.parquet")
    assert (split.first, split.second, split.labels) == (("a", "c"), ("b", "d"), (1, 0))
    nested = read_pairs(tmp_path / "p.parquet", label_names=("5", "6"), name="s", columns=Columns(label="label.old"))
    assert nested.labels == (0, 1)


@pytest.mark.parametrize(
    "metadata",
    [b"{", DEEP.encode(), b"[]", b'{"info": {"features": {"label": {"_type": "ClassLabel"}}}}', b"\xff", b'{"info": null}'],
)
def test_damaged_metadata_matters_only_to_codes(metadata: bytes, tmp_path: Path) -> None:
    """It may say that 0 is not the first of our names; where labels are names, it has nothing to say."""
    path = tmp_path / "p.parquet"
    pyarrow.parquet.write_table(table().replace_schema_metadata({b"huggingface": metadata}), path)
    with pytest.raises(ValueError, match=r"p\.parquet: its metadata 'huggingface'.*is damaged.*names in place of codes"):
        read(path)
    named = pa.table({"premise": ["a"], "hypothesis": ["b"], "label": ["yes"]})
    pyarrow.parquet.write_table(named.replace_schema_metadata({b"huggingface": metadata}), path)
    assert read(path).labels == (1,)


def test_features_that_this_version_of_datasets_does_not_know_are_passed_over(tmp_path: Path) -> None:
    features = {"label": {"_type": "ClassLabel", "names": ["yes", "no"]}, "sound": {"_type": "Hologram"}}
    told = json.dumps({"info": {"features": features}}).encode()
    pyarrow.parquet.write_table(table().replace_schema_metadata({b"huggingface": told}), tmp_path / "p.parquet")
    assert read(tmp_path / "p.parquet").labels == (0, 1), "by the names of the column, not by our codes"


@pytest.mark.parametrize("file", ["dataset_info.json", "state.json"])
@pytest.mark.parametrize("damage", ["{", "[]", DEEP, '{"features": {"premise": {"_type": "Hologram"}}}'])
def test_a_damaged_folder_of_datasets_is_named(damage: str, file: str, tmp_path: Path) -> None:
    datasets.Dataset.from_dict({"premise": ["a"], "hypothesis": ["b"], "label": [1]}).save_to_disk(tmp_path / "saved")
    (tmp_path / "saved" / file).write_text(damage)
    with pytest.raises(ValueError, match="saved: not a folder written by datasets' save_to_disk, or damaged") as refusal:
        read(tmp_path / "saved")
    assert len(str(refusal.value)) < len(str(tmp_path)) + 450


@pytest.mark.parametrize("content", [DEEP, f'{{"name": {DIGITS}}}', '{"name": "a", "name": "b"}', '{"name": '])
def test_relations_are_refused_with_file_and_line(content: str, tmp_path: Path) -> None:
    (tmp_path / "r.json").write_text(content)
    for load in (load_lre, load_countries):
        with pytest.raises(ValueError, match=r"r\.json, line 1: not JSON"):
            load(tmp_path / "r.json")


def test_two_columns_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="columns must be all different, 'text' comes more than once"):
        Columns("text", "text", "label")


def test_hans_labels_follow_the_same_rule(tmp_path: Path) -> None:
    row = {"premise": "a", "hypothesis": "b", "heuristic": "lexical", "subcase": "swap"}
    (tmp_path / "h.jsonl").write_text("".join(json.dumps({**row, "label": label}) + "\n" for label in (0, 1.0, "1")))
    assert hans(tmp_path / "h.jsonl")["lexical_swap"].labels == (0, 1, 1)


def of(*texts: str, names: tuple[str, ...] = NAMES) -> Split:
    return Split("s", texts, ("x",) * len(texts), (0,) * len(texts), names, (0, 1))


def test_separators_in_texts_are_part_of_the_fingerprint() -> None:
    """Two splits that differ only in where a text ends; and every escape of an escape."""
    pairs = [("a\x1fb", "c"), ("a", "b\x1fc"), ("a\x1ebf", "c"), ("a\x1b", "fc"), ("a\x1bfb", "c"), ("a", "b", "c")]
    splits = [of(*texts) for texts in pairs]
    splits += [Split("s", ("a",), ("x\x1fy",), (0,), NAMES, (0, 1)), Split("s", ("a", "x"), ("y", "z"), (0, 0), NAMES, (0, 1))]
    assert len({split.fingerprint for split in splits}) == len(splits)
    whole, cut = of("a", names=("no\x1fyes", "x")), of("a", names=("no", "yes\x1fx"))
    assert whole.fingerprint != cut.fingerprint
    tasks = [Task("t", split.label_names, split, {"id": split}, {}) for split in (whole, cut)]
    assert tasks[0].fingerprint != tasks[1].fingerprint


def test_fingerprints_of_ordinary_texts_stay_those_of_finished_runs() -> None:
    """Runs store them; the values were computed before separators within texts were told apart."""
    split = Split("s", ("A dog runs.", "Ünï\n\t"), ("It moves.", "x"), (0, 1), ("no", "yes"), (0, 1))
    task = Task("t", ("no", "yes"), split, {"id": split}, {"ood": split})
    assert split.fingerprint == "02d7502316a21e852af7ceb12169e7b1d9df5a576a17cc78d6c755d70ffda897"
    assert task.fingerprint == "658a98088d8ff314a82b46bb3513f2877e3e080f03a3583574288a0afe9d6756"
