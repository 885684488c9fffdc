"""QQP and PAWS-QQP by hub name, in hub format, and from files; what would leak into training is left out and counted."""

import json
import logging
import shutil
from pathlib import Path

import datasets
import datasets.config
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.data import data_folder, load_task
from hc_lens.data.paraphrase import ADVERSARIAL, QQP_LABELS, paws_qqp, qqp, qqp_pool, without_pairs
from hc_lens.data.task import Split
from tests.data.hub_layout import hub_folder

QQP = {
    "train": {"question1": ["Who 's a?", "b", "c"], "question2": ["x", "y", "z"], "label": [0, 1, 0]},
    "validation": {"question1": ["d"], "question2": ["w"], "label": [1]},
}
PAWS = [("x", "who's A", 0), ("p", "q", 1), ("r", "s", 0)]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of `datasets`."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder


@pytest.fixture
def paws_file(tmp_path: Path) -> Path:
    file = tmp_path / "paws.jsonl"
    file.write_text("".join(json.dumps({"sentence1": a, "sentence2": b, "label": y}) + "\n" for a, b, y in PAWS))
    return file


def split_of(*pairs: tuple[str, str]) -> Split:
    first, second = zip(*pairs, strict=True)
    return Split("pairs", first, second, (0,) * len(pairs), QQP_LABELS, (0, 1))


def test_paws_is_two_cases_of_one_label_each(paws_file: Path) -> None:
    cases = paws_qqp(paws_file)
    assert {name: (case.first, case.labels) for name, case in cases.items()} == {
        ADVERSARIAL: (("x", "r"), (0, 0)),
        "paws-duplicate": (("p",), (1,)),
    }


def test_qqp_in_hub_format_without_the_pairs_of_paws(tmp_path: Path, paws_file: Path, caplog: pytest.LogCaptureFixture) -> None:
    """ "Who 's a?" and "x" are in PAWS the other way round and tokenised otherwise: the same pair."""
    folder = hub_folder(tmp_path / "glue", QQP, QQP_LABELS, config="qqp")
    with caplog.at_level(logging.WARNING):
        task = qqp(folder, config="qqp", ood=paws_qqp(paws_file))
    assert (task.train.first, task.train.labels) == (("b", "c"), (1, 0))
    assert (task.in_domain["qqp"].first, task.labels) == (("d",), QQP_LABELS)
    assert (
        "qqp-train: left out 1 of 3 training pairs that are also evaluated on (paws-adversarial, paws-duplicate)" in caplog.text
    )


def test_qqp_by_name_is_the_configuration_qqp_of_glue(cache: Path, tmp_path: Path, paws_file: Path) -> None:
    folder = hub_folder(tmp_path / "scratch" / "glue", QQP, QQP_LABELS, config="qqp")
    datasets.load_dataset(str(folder), "qqp", cache_dir=str(tmp_path / "built"))
    (built,) = (info.parent for info in (tmp_path / "built" / "glue").rglob("dataset_info.json"))
    shutil.copytree(built, cache / "nyu-mll___glue" / "qqp" / "0.0.0" / ("a" * 40))
    task = load_task("qqp", ood=paws_file)
    assert (task.name, task.train.first, list(task.ood)) == ("qqp", ("b", "c"), [ADVERSARIAL, "paws-duplicate"])
    with pytest.raises(ValueError, match="task 'qqp' takes as ood the path of a local PAWS-QQP file, got 'hans'"):
        load_task("qqp", ood="hans")


def test_a_pool_is_split_by_first_question(tmp_path: Path, paws_file: Path) -> None:
    file = tmp_path / "pool.tsv"
    lines = ["sentence1\tsentence2\tlabel", *(f"question {i // 2}\tother {i}\t{i % 2}" for i in range(20))]
    file.write_text("\n".join(lines) + "\n")
    task = qqp_pool(file, ood=paws_qqp(paws_file), held_out=3)
    assert (len(task.train), len(task.in_domain["qqp"])) == (14, 6)
    assert not {*task.train.first} & {*task.in_domain["qqp"].first}


def test_bad_labels_and_columns_are_named(tmp_path: Path, paws_file: Path) -> None:
    paws_file.write_text(paws_file.read_text().replace('"label": 1', '"label": 2'))
    with pytest.raises(ValueError, match=r"paws\.jsonl.*2.*unknown label 2 in column 'label'"):
        paws_qqp(paws_file)
    other = tmp_path / "other.tsv"
    other.write_text("question1\tquestion2\tlabel\na\tb\t0\n")
    with pytest.raises(ValueError, match="sentence1"):
        paws_qqp(other)


WORDS = st.text("abcxyz019", min_size=1, max_size=6)


@settings(max_examples=50)
@given(WORDS, WORDS)
def test_a_pair_is_the_same_in_either_order_and_any_case_or_punctuation(a: str, b: str) -> None:
    train = split_of(("kept", "this one"), (a, b))
    for pair in ((a, b), (b, a), (f" {a.upper()} !", f'"{b}"')):
        assert without_pairs(train, [split_of(pair)]).first == ("kept",)


@pytest.mark.slow
@pytest.mark.skipif(data_folder() is None, reason="HC_LENS_DATA is not set")
def test_the_real_pool_leaves_out_six_pairs_of_paws() -> None:
    folder = data_folder()
    assert folder is not None
    paws = paws_qqp(folder / "paraphrase" / "paws_qqp.jsonl.gz")
    assert {name: len(case) for name, case in paws.items()} == {ADVERSARIAL: 8_696, "paws-duplicate": 3_967}
    task = qqp_pool(folder / "paraphrase" / "qqp_pool.jsonl.gz", ood=paws)
    assert len(task.train) + len(task.in_domain["qqp"]) == 38_411 - 6
