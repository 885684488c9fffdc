"""MNLI and HANS by hub name, in hub format, and from files: the same splits whichever way."""

import json
from pathlib import Path

import datasets
import datasets.config
import pytest

from hc_lens.data.files import Columns, read_pairs
from hc_lens.data.nli import HANS_COLLAPSE, HANS_LABELS, NLI_LABELS, hans, mnli
from tests.data.hub_layout import HANS, HANS_NAMES, MNLI, MNLI_NAMES, cache_under_hub_name, hub_folder, rows

SWAP = "lexical_overlap_ln_subject-object_swap"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of `datasets`."""
    folder = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
    return folder


def check_mnli(task_splits: dict[str, tuple[tuple[str, ...], tuple[int, ...]]]) -> None:
    assert task_splits == {
        "train": (("p1", "p2", "p3"), (0, 1, 2)),
        "mnli-matched": (("p4",), (2,)),
        "mnli-mismatched": (("p5", "p6"), (1, 0)),
    }


def test_mnli_and_hans_by_hub_name(cache: Path, tmp_path: Path) -> None:
    cache_under_hub_name("nyu-mll/multi_nli", MNLI, MNLI_NAMES, cache, tmp_path / "m")
    cache_under_hub_name("jhu-cogcomp/hans", HANS, HANS_NAMES, cache, tmp_path / "h")
    task = mnli(ood=hans())
    check_mnli({name: (split.first, split.labels) for name, split in {"train": task.train, **task.in_domain}.items()})
    assert task.labels == NLI_LABELS
    assert list(task.ood) == ["constituent_ce_adverb", SWAP]
    assert task.group(SWAP) == "OOD"
    swap = task.ood[SWAP]
    assert swap.first[0] == "validation premise 0 ln_subject/object_swap"
    assert (set(swap.labels), swap.label_names, swap.collapse) == ({1}, HANS_LABELS, HANS_COLLAPSE)


def test_collapse_scores_neutral_and_contradiction_as_non_entailment() -> None:
    scored = {name: HANS_LABELS[HANS_COLLAPSE[i]] for i, name in enumerate(NLI_LABELS)}
    assert scored == {"entailment": "entailment", "neutral": "non-entailment", "contradiction": "non-entailment"}


def test_mnli_of_a_collection_in_hub_format(tmp_path: Path) -> None:
    """As `nyu-mll/glue`, whose configuration `mnli` is one of several."""
    folder = hub_folder(tmp_path / "glue", MNLI, MNLI_NAMES, config="mnli")
    task = mnli(folder, config="mnli")
    check_mnli({name: (split.first, split.labels) for name, split in {"train": task.train, **task.in_domain}.items()})


def test_flipped_class_names_of_a_source_do_not_flip_the_labels(tmp_path: Path) -> None:
    task = mnli(hub_folder(tmp_path / "flipped", MNLI, ("contradiction", "neutral", "entailment")))
    assert task.train.labels == (2, 1, 0)


def test_mnli_and_hans_saved_by_datasets(tmp_path: Path) -> None:
    for name, splits, names in (("mnli", MNLI, MNLI_NAMES), ("hans", HANS, HANS_NAMES)):
        saved = datasets.DatasetDict({split: rows(columns, names) for split, columns in splits.items()})
        saved.save_to_disk(tmp_path / name)
    assert mnli(tmp_path / "mnli").train.first == ("p1", "p2", "p3")
    assert hans(tmp_path / "hans", "train")[SWAP].first[0].startswith("train premise")
    assert hans(tmp_path / "hans" / "validation")[SWAP].first[0].startswith("validation premise")


def test_multinli_and_hans_as_first_distributed(tmp_path: Path) -> None:
    """MultiNLI's JSON lines with `gold_label`, `-` where annotators disagreed; HANS's tab-separated `.txt`."""
    original = Columns("sentence1", "sentence2", "gold_label")
    lines = [
        {"gold_label": "neutral", "sentence1": "p1", "sentence2": "h1", "genre": "fiction"},
        {"gold_label": "-", "sentence1": "p2", "sentence2": "h2", "genre": "fiction"},
    ]
    train, evaluation = tmp_path / "train.jsonl", tmp_path / "heuristics_evaluation_set.txt"
    train.write_text("".join(json.dumps(line) + "\n" for line in lines))
    evaluation.write_text(
        "gold_label\tsentence1\tsentence2\theuristic\tsubcase\n"
        "non-entailment\tThe judge saw the lawyer .\tThe lawyer saw the judge .\tlexical_overlap\tln_subject/object_swap\n"
    )
    pairs = read_pairs(train, label_names=NLI_LABELS, name="train", columns=original, drop_unlabelled=True)
    assert (pairs.first, pairs.labels) == (("p1",), (1,))
    assert list(hans(evaluation, columns=original)) == [SWAP]
    with pytest.raises(ValueError, match=r"train\.jsonl, line 2: no gold label"):
        read_pairs(train, label_names=NLI_LABELS, name="train", columns=original)


def test_a_sample_of_each_case(tmp_path: Path) -> None:
    folder = hub_folder(tmp_path / "hans", HANS, HANS_NAMES)
    whole, some = hans(folder), hans(folder, per_case=3, seed=1)
    for case, split in some.items():
        assert len(split) == 3
        assert set(split.first) < set(whole[case].first)
        assert split.collapse == HANS_COLLAPSE
    assert some == hans(folder, per_case=3, seed=1)
    assert any(hans(folder, per_case=3, seed=seed) != some for seed in (2, 3, 4))


def test_what_cannot_be_loaded_says_so(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"cannot load split 'train' of 'nyu-mll/multi_nli'.*Hub"):
        mnli()
    with pytest.raises(ValueError, match=r"cannot load split 'validation' of '.*nowhere\.jsonl'"):
        hans(tmp_path / "nowhere.jsonl")
    folder = hub_folder(tmp_path / "hans", HANS, HANS_NAMES)
    with pytest.raises(ValueError, match=r"cannot load split 'test'.*validation"):
        hans(folder, "test")
    no_subcase = {name: values for name, values in HANS["validation"].items() if name != "subcase"}
    with pytest.raises(ValueError, match="no column 'subcase'; the columns are"):
        hans(hub_folder(tmp_path / "bare", {"validation": no_subcase}, HANS_NAMES))
    file = tmp_path / "hans.jsonl"
    file.write_text('{"premise": "a", "hypothesis": "b", "label": 0, "heuristic": "", "subcase": "x"}\n')
    with pytest.raises(ValueError, match=r"hans\.jsonl, line 1: heuristic '', subcase 'x'; HANS rows need both"):
        hans(file)
    file.write_text("")
    with pytest.raises(ValueError, match=r"hans\.jsonl has no rows"):
        hans(file)
