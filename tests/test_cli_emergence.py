"""`hc-lens emergence` and `hc-lens compare`: a tiny fine-tuning run through the first, its checkpoints through the second."""

from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main

TINY = ["--limit", "200", "--steps", "20", "--batch-size", "16", "--checkpoint-every", "10", "--eval-rows", "5"]
SHORT = [
    "--workers",
    "1",
    "--prune-steps",
    "12",
    "--prune-batch-size",
    "8",
    "--means-rows",
    "30",
    "--max-rows",
    "5",
    "--seeds",
    "42..43",
]


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model, fine-tuned for a moment."""
    place = tmp_path_factory.mktemp("emergence") / "ft"
    assert main(["finetune", *TINY, "--out", str(place)]) == 0
    return str(place)


@pytest.fixture(scope="module")
def emerged(finetuned: str) -> Path:
    """All its checkpoints pruned."""
    out = Path(finetuned).parent / "emergence"
    assert main(["emergence", finetuned, *SHORT, "--level", "0.9", "--out", str(out)]) == 0
    return out


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


def test_every_checkpoint_is_pruned_and_compared(emerged: Path) -> None:
    steps = pd.read_csv(emerged / "emergence.csv")
    assert list(steps["step"]) == [0, 10, 20]
    assert steps["recall"].iloc[-1] == 1
    assert list(steps["by_construction"]) == [False, False, True]
    runs = pd.read_csv(emerged / "emergence_by_seed.csv")
    assert len(runs) == 3 * 2
    heads = pd.read_csv(emerged / "core_heads_by_checkpoint.csv")
    assert (heads.loc[heads["step"] == 20, "count"] == 2).all()
    assert set(pd.read_csv(emerged / "accuracy_by_checkpoint.csv")["step"]) == {0, 10, 20}
    assert len(pd.read_csv(emerged / "cores_by_checkpoint.csv")) == 3
    for name in ("emergence", "core-entry"):
        assert "plotly" in (emerged / f"{name}.html").read_text()


def test_again_with_another_onset_computes_nothing_anew(
    finetuned: str, emerged: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", never)
    assert main(["emergence", finetuned, *SHORT, "--level", "0.99", "--out", str(emerged)]) == 0
    printed = capsys.readouterr().out
    assert "recall of the final core (" in printed
    assert "No checkpoint passes 99% on 12 cases" in printed
    assert printed.splitlines()[-2].startswith("there is no pruned checkpoint before an onset")
    assert printed.splitlines()[-1] == f"in {emerged}"


def test_the_core_of_another_run_is_followed(finetuned: str, emerged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    core = str(emerged / "step-000020" / "prune-0.5")
    words = ["emergence", finetuned, *SHORT, "--core", core, "--k", "1", "--out", str(emerged)]
    assert main(words) == 0
    assert "heads kept by 1 of 2" in capsys.readouterr().out
    other = str(emerged / "step-000010" / "prune-0.5")
    assert "prunes another model than the last checkpoint" in complaint(
        capsys, "emergence", finetuned, *SHORT, "--core", other, "--out", str(emerged)
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--steps", "0", "10"], "the last checkpoint, 20, which the final core is of"),
        (["--steps", "20"], "at least one before it are needed; chosen are [20]"),
        (["--steps", "15", "20"], "has no checkpoint at step 15; it has [0, 10, 20]"),
        (["--level", "75"], "must be in (0, 1), got 75"),
        (["--onset-cases", "no such case"], "no case 'no such case' was evaluated"),
        (["--sparsity", "1"], "the target must be in (0, 1), got 1"),
        (["--core", "nowhere"], "nowhere is not a directory"),
    ],
)
def test_wrong_words_are_refused_before_anything_is_pruned(
    words: list[str], says: str, finetuned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert says in complaint(capsys, "emergence", finetuned, *SHORT, *words, "--out", str(tmp_path / "out"))
    assert not (tmp_path / "out").exists()


def test_a_fine_tuning_run_must_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert "no FINETUNED given" in complaint(capsys, "emergence")


def test_two_checkpoints_compared(emerged: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [str(emerged / f"step-{step:06d}" / "prune-0.5") for step in (0, 20)]
    assert main(["compare", *runs, "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert "heads are in the cores" in printed
    assert "of all 2 runs, of 2 models" in printed
    assert "between, same seed" in printed
    pairs = pd.read_csv(tmp_path / "jaccard.csv")
    assert set(pairs["kind"]) >= {"between", "between, same seed", "within - between"}
    accuracy = pd.read_csv(tmp_path / "accuracy_difference.csv")
    assert accuracy["same_rows"].all()
    assert len(accuracy) > 12
    assert {file.name for file in tmp_path.glob("*.html")} == {"compare.html", "compare-1-2.html"}


def test_of_three_runs_compared_the_first_keeps_the_answer(emerged: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [emerged / f"step-{step:06d}" / "prune-0.5" for step in (0, 10, 20)]
    before = {file: file.stat().st_mtime_ns for run in runs[1:] for file in run.rglob("*")}
    assert main(["compare", *map(str, runs), "--k", "1"]) == 0
    printed = capsys.readouterr().out
    assert "Jaccard similarity of the cores" in printed
    assert printed.count("Jaccard similarity of the heads of two subnetworks") == 3
    assert before == {file: file.stat().st_mtime_ns for run in runs[1:] for file in run.rglob("*")}
    assert (runs[0] / "shared_core.parquet").exists()


def test_what_cannot_be_compared_is_said(emerged: Path, finetuned: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(emerged / "step-000020" / "prune-0.5")
    assert "give two different RUNs or more, got 1" in complaint(capsys, "compare", run)
    assert f"{run} is given twice: give each run once" in complaint(capsys, "compare", run, run)
    assert "holds a 'finetune' run, not a 'prune' run" in complaint(capsys, "compare", run, finetuned)
    other = str(emerged / "step-000010" / "prune-0.5")
    assert "k must be in 1..2" in complaint(capsys, "compare", run, other, "--k", "3")
