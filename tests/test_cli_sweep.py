"""`hc-lens sweep`: planned, run, looked at, gone on with; what it leaves is read by the other commands."""

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hc_lens.cli import main
from hc_lens.runs import Run
from hc_lens.sweep import PruneJob
from hc_lens.sweep.slurm import SlurmOptions

TINY = ["--limit", "100", "--steps", "8", "--batch-size", "8", "--checkpoint-every", "4", "--eval-rows", "4"]
SHORT = ["--prune-steps", "12", "--prune-batch-size", "8", "--means-rows", "20", "--max-rows", "4"]
SWEEP = [*SHORT, "--seeds", "42..43", "--sparsities", "0.5", "0.7", "--workers", "1"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small models fine-tuned for a moment, on two tasks."""
    place = tmp_path_factory.mktemp("sweep")
    for name, minority in (("ft", "0.03"), ("other", "0.5")):
        assert main(["finetune", *TINY, "--minority", minority, "--out", str(place / name)]) == 0
    return place


@pytest.fixture(scope="module")
def swept(root: Path) -> Path:
    words = ["sweep", str(root / "ft"), str(root / "other"), *SWEEP, "--out", str(root / "runs" / "sweep")]
    assert main(words) == 0
    return root / "runs" / "sweep"


def complaint(capsys: pytest.CaptureFixture[str], *words: str, code: int = 2) -> str:
    """What a command that is called wrongly says."""
    assert main(list(words)) == code
    return capsys.readouterr().err


def test_tasks_sparsities_and_seeds_are_one_table(root: Path, swept: Path) -> None:
    table = pd.read_csv(swept / "results.csv")
    pruned = table[table["subnetwork"] != "full"]
    cells = pruned.groupby(["model", "target", "seed"]).size()
    assert len(cells) == 2 * 2 * 2
    assert set(table["step"]) == {8}, "the last checkpoint"
    assert set(table["model"]) == {"ft", "other"}
    assert {Path(model).parent.name for model in table["model_path"]} == {"ft", "other"}
    full = table["subnetwork"] == "full"
    assert table.loc[full, "target"].isna().all(), "nobody asked a sparsity of the full model"
    assert not table.loc[~full, "target"].isna().any()


def test_again_it_computes_nothing_and_says_where_the_jobs_stand(
    swept: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(self: PruneJob, *args: Any, **options: Any) -> None:
        raise AssertionError("done again")

    monkeypatch.setattr(PruneJob, "do", never)
    assert main(["sweep", str(swept), "--workers", "1"]) == 0
    assert main(["sweep", str(swept), "--status"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"ft, step 8, sparsity 0\.5, seed 42\.\.43\s+done", out)
    assert "\n4 done\n" in out


def test_a_sweep_takes_further_seeds_and_sparsities_and_computes_only_those(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = root / "growing" / "sweep"
    words = ["sweep", str(root / "ft"), *SHORT, "--workers", "1", "--out", str(out)]
    assert main([*words, "--seeds", "42..43", "--sparsities", "0.5"]) == 0
    done: list[tuple[float, tuple[int, ...]]] = []
    do = PruneJob.do

    def watched(self: PruneJob, *args: Any, **options: Any) -> None:
        done.append((self.config.sparsity, self.seeds))
        do(self, *args, **options)

    monkeypatch.setattr(PruneJob, "do", watched)
    assert main([*words, "--seeds", "42..44", "--sparsities", "0.5", "0.7"]) == 0
    assert sorted(done) == [(0.5, (44,)), (0.7, (42, 43, 44))]
    table = pd.read_csv(out / "results.csv")
    pruned = table[table["subnetwork"] != "full"]
    assert set(zip(pruned["seed"], pruned["target"], strict=True)) == {(s, t) for s in (42, 43, 44) for t in (0.5, 0.7)}
    assert not table.duplicated(["subnetwork", "target", "case"]).any()
    capsys.readouterr()
    again = complaint(capsys, *words, "--seeds", "42..44", "--sparsities", "0.5", "--lr-gates", "0.2")
    assert "recipe.lr_gates is 0.1 there, 0.2 asked" in again, "one sweep, one recipe"


def test_other_commands_read_the_runs(root: Path, swept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = sorted(str(path) for path in swept.parent.glob("prune-*"))
    assert len(runs) == 4
    assert main(["evaluate", runs[0], "--max-rows", "4"]) == 0
    assert main(["core", runs[0]]) == 0
    assert Run.open(Path(runs[0])).finished


def test_checkpoints_are_chosen_and_a_path_is_one_run(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["sweep", str(root / "ft"), *SWEEP, "--steps", "4", "8", "--path", "--out", str(root / "path" / "sweep")]
    assert main(words) == 0
    table = pd.read_csv(root / "path" / "sweep" / "results.csv")
    assert set(table["step"]) == {4, 8}
    assert set(table["target"].dropna()) == {0.5, 0.7}
    assert len(list((root / "path").glob("prune-path-*"))) == 2
    assert len(list((root / "path" / "sweep" / "jobs").iterdir())) == 2


def test_failed_jobs_end_with_code_1_and_are_retried_when_asked(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(self: PruneJob, *args: Any, **options: Any) -> None:
        raise OSError("the device is on fire")

    words = ["sweep", str(root / "ft"), *SWEEP, "--out", str(root / "failing" / "sweep")]
    with monkeypatch.context() as patch:
        patch.setattr(PruneJob, "do", failing)
        assert "2 of 2 jobs are not done: ft, step 8, sparsity 0.5, seed 42..43: OSError: the device is on fire" in complaint(
            capsys, *words, code=1
        )
    assert "2 of 2 jobs are not done" in complaint(capsys, *words, code=1)
    assert main([*words, "--retry"]) == 0


def test_slurm_gets_an_array_of_workers(
    root: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted: list[tuple[Path, SlurmOptions]] = []

    class Job:
        job_id = "17_0"

    def submit(directory: Path, options: SlurmOptions, *, every: float) -> list[Job]:
        submitted.append((directory, options))
        return [Job()]

    monkeypatch.setattr("hc_lens.cli.sweep.submit", submit)
    out = root / "cluster" / "sweep"
    words = ["sweep", str(root / "ft"), *SWEEP, "--backend", "slurm", "--slurm.array", "4", "--out", str(out)]
    assert main(words) == 0
    assert submitted[0][0] == out
    assert submitted[0][1].array == 4
    assert len(list((out / "jobs").iterdir())) == 4, "a job for every worker"
    assert "SLURM job 17" in capsys.readouterr().err


def test_wrong_words_are_named_before_anything_is_written(
    root: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = ["--out", str(tmp_path / "runs" / "sweep")]
    assert "no FINETUNED given" in complaint(capsys, "sweep", *out)
    assert "is not a directory" in complaint(capsys, "sweep", str(tmp_path / "nothing"), *out)
    assert "no checkpoint at step 7; it has [0, 4, 8]" in complaint(capsys, "sweep", str(root / "ft"), "--steps", "7", *out)
    assert "--workers must be at least 1, got 0" in complaint(capsys, "sweep", str(root / "ft"), "--workers", "0", *out)
    assert "--seeds-per-job must be at least 1" in complaint(capsys, "sweep", str(root / "ft"), "--seeds-per-job", "0", *out)
    assert "(0, 1)" in complaint(capsys, "sweep", str(root / "ft"), "--sparsities", "1.5", *out)
    assert "sweep is not a directory: there is no run" in complaint(capsys, "sweep", str(root / "ft"), "--status", *out)
    assert not (tmp_path / "runs").exists()
