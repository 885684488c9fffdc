"""`load_task`: the named tasks, and a user's own files."""

from functools import partial
from pathlib import Path

import datasets.config
import pytest

from hc_lens.data import synthetic
from hc_lens.data.files import Columns
from hc_lens.data.load import load_task
from hc_lens.data.nli import NLI_LABELS
from hc_lens.data.sampling import limited
from tests.data.hub_layout import HANS, HANS_NAMES, MNLI, MNLI_NAMES, cache_under_hub_name, hub_folder


def write(path: Path, n: int, labels: tuple[str, ...] = NLI_LABELS, text: str = "first") -> Path:
    rows = [f"{text} {i // 3}\tsecond {i}\t{labels[i % len(labels)]}" for i in range(n)]
    path.write_text("\n".join(["premise\thypothesis\tlabel", *rows]) + "\n")
    return path


def test_own_pairs_are_split_by_first_sentence(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", 60)
    task = load_task(path, label_names=NLI_LABELS, validation=0.2)
    held = task.in_domain["held-out"]
    assert (len(task.train), len(held)) == (48, 12)  # 4 of 20 first sentences, three pairs each
    assert not set(task.train.first) & set(held.first)
    assert (task.name, task.labels, task.ood) == ("pairs", NLI_LABELS, {})
    assert load_task(str(path), label_names=NLI_LABELS, validation=0.2).fingerprint == task.fingerprint
    assert load_task(path, label_names=NLI_LABELS, validation=0.2, seed=1).fingerprint != task.fingerprint


def test_own_pairs_with_validation_and_cases(tmp_path: Path) -> None:
    train, dev = write(tmp_path / "pairs.tsv", 9), write(tmp_path / "dev.tsv", 6, text="dev")
    hard, harder = write(tmp_path / "hard.tsv", 3, text="hard"), write(tmp_path / "harder.tsv", 3, text="harder")
    task = load_task(train, label_names=NLI_LABELS, validation=dev, ood={"hard": hard, "very": harder})
    assert len(task.train) == 9
    assert {case: (task.group(case), split.first[0]) for case, split in task.cases.items()} == {
        "validation": ("ID", "dev 0"),
        "hard": ("OOD", "hard 0"),
        "very": ("OOD", "harder 0"),
    }
    one = load_task(train, label_names=NLI_LABELS, validation=dev, ood=hard)
    assert list(one.ood) == ["hard"]


def test_own_column_names(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    path.write_text("q1,q2,same\na,b,yes\nc,d,no\n")
    task = load_task(path, label_names=("no", "yes"), columns=Columns("q1", "q2", "same"), validation=0.5)
    assert sorted((*task.train.first, *task.cases["held-out"].first)) == ["a", "c"]


def test_label_names_are_needed_and_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "pairs.tsv", 4, labels=("same", "different"))
    with pytest.raises(ValueError, match=r"pairs\.tsv: label_names is needed; .* 'label' are \['different', 'same'\]"):
        load_task(path)


def test_unknown_names_and_arguments_are_refused(tmp_path: Path) -> None:
    known = r"\(mnli, qqp, synthetic\)"
    with pytest.raises(ValueError, match=rf"no task 'mnlii': give a name {known} or the path of an existing file"):
        load_task("mnlii")
    with pytest.raises(ValueError, match="task 'mnli' does not take label_names, validation"):
        load_task("mnli", label_names=NLI_LABELS, validation="dev.tsv")
    with pytest.raises(ValueError, match="'synthetic' does not take ood"):
        load_task("synthetic", ood="hans")
    path = write(tmp_path / "pairs.tsv", 6, labels=("same", "different"))
    with pytest.raises(ValueError, match=r"ood='hans' needs a task with the labels .* got"):
        load_task(path, label_names=("same", "different"), ood="hans")
    for share in (0.0, 1.0):
        with pytest.raises(ValueError, match=rf"validation must be a share in \(0, 1\) or a file, got {share}"):
            load_task(path, label_names=("same", "different"), validation=share)
    one = write(tmp_path / "one.tsv", 3)
    with pytest.raises(ValueError, match="cannot hold 1 first sentences out of split 'train', which has 1"):
        load_task(one, label_names=NLI_LABELS)
    with pytest.raises(FileNotFoundError, match=r"no such file: .*dev\.tsv"):
        load_task(path, label_names=("same", "different"), validation=tmp_path / "dev.tsv")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """MNLI and HANS in the cache of `datasets`, as downloaded."""
    cache = tmp_path / "cache"
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache)
    cache_under_hub_name("nyu-mll/multi_nli", MNLI, MNLI_NAMES, cache, tmp_path / "m")
    cache_under_hub_name("jhu-cogcomp/hans", HANS, HANS_NAMES, cache, tmp_path / "h")


@pytest.mark.usefixtures("hub")
def test_mnli_with_hans(tmp_path: Path) -> None:
    task = load_task("mnli", ood="hans")
    assert list(task.cases) == [
        "mnli-matched",
        "mnli-mismatched",
        "constituent_ce_adverb",
        "lexical_overlap_ln_subject-object_swap",
    ]
    local = load_task("mnli", ood=hub_folder(tmp_path / "local", HANS, HANS_NAMES))
    assert local.fingerprint == task.fingerprint
    assert load_task("mnli").ood == {}


@pytest.mark.usefixtures("hub")
def test_hans_for_own_pairs_follows_their_label_order(tmp_path: Path) -> None:
    flipped = NLI_LABELS[::-1]
    task = load_task(write(tmp_path / "pairs.tsv", 9), label_names=flipped, ood="hans")
    assert {split.collapse for split in task.ood.values()} == {(1, 1, 0)}


def test_synthetic_task_and_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    small = partial(synthetic.synthetic_nli, n_train=200, n_id=50, n_ood_per_case=10)
    monkeypatch.setattr(synthetic, "synthetic_nli", small)
    task, other = (limited(load_task("synthetic", seed=seed), seed, train=7, in_domain=7, ood=7) for seed in (3, 4))
    assert {len(split) for split in (task.train, *task.cases.values())} == {7}
    assert set(task.train.first) < set(small(seed=3).train.first)
    assert load_task("synthetic", seed=3).fingerprint == small(seed=3).fingerprint
    assert other.fingerprint != task.fingerprint
    with pytest.raises(ValueError, match="must be at least 1, got 0"):
        limited(task, 3, train=0)
