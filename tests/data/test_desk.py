"""The desk task on a folder laid out like the shared corpora (made here), and on the corpora themselves where they are."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from hc_lens.data.desk import Mixture, data_folder, desk_mixture, nli_pool
from hc_lens.data.nli import NLI_LABELS, PAPER_CASES, hans
from hc_lens.data.sampling import join, normalised, sample, without_repeats
from hc_lens.data.task import Split

SEEN = ("lexical_overlap_le_passive", "lexical_overlap_ln_passive", "constituent_cn_adverb")
SUBCASES = {"le_passive": 0, "ln_passive": 1, "ln_subject/object_swap": 1, "cn_adverb": 1, "ce_adverb": 0}


def write(path: Path, rows: list[dict[str, object]]) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode()))


def nli_rows(source: str, n: int, per_premise: int = 1) -> list[dict[str, object]]:
    return [{"premise": f"{source} {i // per_premise}", "hypothesis": f"so {i}", "label": NLI_LABELS[i % 3]} for i in range(n)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """100 MNLI, 100 LingNLI (10 premises) and 100 SNLI pairs, among them one of each kind that must go."""
    leak: dict[str, object] = {"premise": "Matched  3", "hypothesis": "so", "label": "neutral"}
    mnli, snli = nli_rows("mnli", 100), nli_rows("snli", 100)
    held_everywhere: list[dict[str, object]] = [
        {"premise": f"LINGNLI {i}", "hypothesis": "again", "label": "neutral"} for i in range(10)
    ]
    write(tmp_path / "nli" / "mnli_train_sample.jsonl.gz", [*mnli, leak, *held_everywhere])
    write(tmp_path / "nli" / "lingnli_train.jsonl.gz", nli_rows("lingnli", 100, per_premise=10))
    write(tmp_path / "nli" / "snli_train_sample.jsonl.gz", [*snli, {**snli[0], "premise": "SNLI 0"}])
    write(tmp_path / "nli" / "mnli_dev_matched_gold.jsonl.gz", nli_rows("matched", 30))
    for split in ("train", "validation"):
        rows: list[dict[str, object]] = [
            {
                "premise": "in both splits" if i == 0 else f"{split} {subcase} {i}",
                "hypothesis": f"{split} {i}",
                "label": label,
                "heuristic": "constituent" if subcase[0] == "c" else "lexical_overlap",
                "subcase": subcase,
            }
            for subcase, label in SUBCASES.items()
            for i in range(20)
        ]
        write(tmp_path / "hans" / f"{split}.jsonl.gz", rows)
    return tmp_path


def small(folder: Path, share: float = 0.1, seen: tuple[str, ...] = SEEN, seed: int = 0) -> Mixture:
    return desk_mixture(folder, hans_share=share, seen_subcases=seen, n_id=10, n_ood_per_case=5, heldout_premises=2, seed=seed)


def firsts(split: Split) -> set[str]:
    return {normalised(text) for text in split.first}


def test_the_pool_leaves_out_what_would_leak(folder: Path) -> None:
    pool = nli_pool(folder, heldout_premises=2)
    assert pool.counts == {
        "mnli": 108,
        "lingnli": 80,
        "snli": 101,
        "left_out_heldout_premise": 22,  # ten LingNLI pairs and one MNLI pair for each of the two premises
        "left_out_evaluation_premise": 1,
        "left_out_repeat": 1,
    }
    assert (len(pool.train), len(pool.heldout), len(pool.matched)) == (288, 20, 30)
    assert not firsts(pool.train) & (firsts(pool.heldout) | firsts(pool.matched))
    again, other = (nli_pool(folder, heldout_premises=2, seed=seed) for seed in (0, 1))
    assert again.train.fingerprint == pool.train.fingerprint
    assert other.heldout.fingerprint != pool.heldout.fingerprint


def test_the_mixture_has_the_stated_share_of_both_labels(folder: Path) -> None:
    mixture = small(folder)
    task, counts = mixture.task, mixture.counts
    assert counts["hans"] / len(task.train) == pytest.approx(0.1, abs=0.005)
    assert len(task.train) == counts["mnli"] + counts["lingnli"] + counts["snli"] - counts["left_out_repeat"] + counts["hans"]
    mixed_in = task.train.take(range(len(task.train) - counts["hans"], len(task.train)))
    by_kind = Counter((first.split()[1], label) for first, label in zip(mixed_in.first, mixed_in.labels, strict=True))
    # Half entailed; the other half, from two subcases, is neutral in the task's three labels.
    n = counts["hans"]
    assert by_kind[("le_passive", 0)] == n - n // 2
    assert sorted([by_kind[("ln_passive", 1)], by_kind[("cn_adverb", 1)]]) == [n // 2 // 2, n // 2 - n // 2 // 2]
    assert by_kind.total() == n
    assert all(first.startswith("train ") for first in mixed_in.first)
    assert counts["left_out_hans_premise"] == 3  # "in both splits", once a seen subcase


def test_evaluation_is_apart_from_training(folder: Path) -> None:
    task = small(folder).task
    assert list(task.in_domain) == ["mnli-matched", "lingnli-heldout"]
    assert len(task.in_domain["mnli-matched"]) == 10
    assert len(task.ood) == len(SUBCASES)
    assert {len(split) for split in task.ood.values()} == {5}
    for split in task.cases.values():
        assert not firsts(split) & firsts(task.train)
    assert {split.collapse for split in task.ood.values()} == {(0, 1, 1)}


def test_the_same_seed_gives_the_same_task(folder: Path) -> None:
    task = small(folder).task
    assert task.fingerprint == small(folder).task.fingerprint
    assert len({task.fingerprint, small(folder, seed=1).task.fingerprint, small(folder, share=0.05).task.fingerprint}) == 3


def test_without_hans_the_evaluation_stays_the_same(folder: Path) -> None:
    none, some = (small(folder, share).task for share in (0.0, 0.1))
    assert none.cases == some.cases
    assert none.train.fingerprint == nli_pool(folder, heldout_premises=2).train.fingerprint
    assert none.train.first == some.train.first[: len(none.train)]


@pytest.mark.parametrize(
    ("share", "seen", "message"),
    [
        (1.0, SEEN, r"hans_share must be in \[0, 1\), got 1\.0"),
        (-0.1, SEEN, r"hans_share must be in \[0, 1\), got -0\.1"),
        (0.1, ("passive",), r"seen_subcases: \['passive'\] are not HANS subcases; those are \['constituent_ce_adverb'"),
        (0.0, ("passive",), r"seen_subcases: \['passive'\] are not HANS subcases"),
        (0.1, SEEN[:1], "seen_subcases: none is labelled non-entailment"),
        (0.1, SEEN[1:], "seen_subcases: none is labelled entailment"),
        (0.5, SEEN, r"asks for 144 training pairs of lexical_overlap_le_passive, which has 19: lower the share"),
    ],
)
def test_impossible_mixtures_are_refused(folder: Path, share: float, seen: tuple[str, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small(folder, share, seen)


def test_the_folder_is_the_one_that_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HC_LENS_DATA", str(folder))
    assert data_folder() == folder
    monkeypatch.setenv("HC_LENS_DATA", "")
    assert data_folder() is None
    monkeypatch.delenv("HC_LENS_DATA")
    assert data_folder() is None
    monkeypatch.setenv("HC_LENS_DATA", str(folder / "nowhere"))
    with pytest.raises(NotADirectoryError, match=r"HC_LENS_DATA=.*nowhere is not a folder"):
        data_folder()


def test_samples_differ_between_cases_and_keep_the_order() -> None:
    split = Split("a", tuple(map(str, range(100))), ("x",) * 100, (0,) * 100, ("l",), (0,))
    drawn = [int(text) for text in sample(split, 20, 0).first]
    assert drawn == sorted(drawn)
    assert sample(split.take(range(100), "b"), 20, 0).first != sample(split, 20, 0).first
    assert sample(split, 200, 0) is split


def test_joined_splits_must_agree() -> None:
    split = Split("a", ("p", "P ", "q"), ("h", "H", "h"), (0, 1, 0), ("x", "y"), (0, 1))
    assert without_repeats(join([split, split], "twice")).labels == (0, 0)  # the first of each pair stays
    other = Split("b", ("p",), ("h",), (0,), ("y", "x"), (0, 1))
    with pytest.raises(ValueError, match="cannot join split 'b'"):
        join([split, other], "both")


# The corpora themselves.


@pytest.mark.slow
def test_the_shared_corpora(shared_data: Path) -> None:
    validation = hans(shared_data / "hans" / "validation.jsonl.gz")
    assert len(validation) == 30
    assert {len(split) for split in validation.values()} == {1000}
    assert set(PAPER_CASES.values()) < set(validation)
    with gzip.open(shared_data / "hans" / "validation.jsonl.gz") as file:
        assert {json.loads(line)["subcase_dir"] for line in file} == set(validation)
    seen = [case for case in validation if "passive" in case]
    mixture = desk_mixture(shared_data, hans_share=0.01, seen_subcases=seen)
    task = mixture.task
    assert 79_000 < len(task.train) < 80_000
    assert (len(task.in_domain["mnli-matched"]), len(task.ood)) == (2000, 30)
    assert 400 < len(task.in_domain["lingnli-heldout"]) < 700
    assert {len(split) for split in task.ood.values()} == {200}
    trained = firsts(task.train)
    assert not any(firsts(split) & trained for split in task.cases.values())
