"""A sweep does every job once, goes on after whatever stops it, and tells what failed and why."""

import itertools
import json
import os
import shutil
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.data.stored import load_stored_task, save_task
from hc_lens.origin import Origin
from hc_lens.pruning import PruneError, evaluate_into, means_into, open_pruned, prune_into
from hc_lens.pruning import missing_seeds as seeds
from hc_lens.runs import Run, RunError
from hc_lens.sample import Sample
from hc_lens.sweep import (
    Board,
    Pool,
    PruneJob,
    SweepConfig,
    SweepError,
    plan,
    register,
    require_done,
    run_jobs,
    split,
    sweep_results,
)
from hc_lens.sweep.board import AtIt
from hc_lens.sweep.worker import work
from tests.sweeping import PRUNING, SWEEP, finetuned_source, jobs, planned, small_task


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return finetuned_source(tmp_path_factory.mktemp("finetuned"))


def states(board: Board) -> list[str]:
    return [state.state for state in board.states()]


def test_jobs_do_what_the_stages_do_by_hand(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path)
    assert states(board) == ["to do"] * 4
    work(board.run.path, device=torch.device("cpu"))
    assert states(board) == ["done"] * 4
    model, task = source.load(torch.device("cpu"))
    means = means_into(tmp_path / "by hand" / "means", model, task.train, rows=20, max_length=32)
    table = sweep_results(board)
    for config, name in zip(PRUNING, dict.fromkeys(job.directory.name for job in jobs(source, tmp_path)), strict=True):
        for seed in SWEEP.seeds:
            mine = prune_into(tmp_path / "by hand" / f"{config.sparsity}-{seed}", model, task.train, means, config, [seed])
            (theirs,) = open_pruned(tmp_path / name, seeds=[seed]).subnetworks
            assert theirs == mine.subnetworks[0]
            evaluated = evaluate_into(mine, model, task, sample=Sample(2, batch_size=64))
            there = table[(table["target"] == config.sparsity) & (table["seed"] == seed)]
            pd.testing.assert_series_equal(
                there.set_index("case")["margin"],
                evaluated[evaluated["seed"] == seed].set_index("case")["margin"],
                check_exact=True,
            )
    assert (table["step"] == 4).all()
    assert (table["subnetwork"] == "full").sum() == len(task.cases), "the full model once"


def test_a_grid_is_one_job_a_seed(source: Origin, tmp_path: Path) -> None:
    config = SweepConfig(PRUNING[:1], (42,), SWEEP.measuring, grid=(0.2, 0.5))
    board = planned(source, tmp_path, config)
    assert len(board.names) == 1
    require_done(Pool().run(board))
    table = sweep_results(board)
    assert set(table["target"].dropna()) == {0.2, 0.5}


def test_what_another_sweep_computed_is_not_computed_again(
    source: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(planned(source, tmp_path).run.path)
    trained: list[tuple[float, tuple[int, ...]]] = []
    train = seeds.train_seeds

    def watched(model: Any, encoded: Any, means: Any, config: Any, group: Any, *rest: Any) -> Any:
        trained.append((config.sparsity, tuple(group)))
        return train(model, encoded, means, config, group, *rest)

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", watched)
    more = replace(SWEEP, seeds=(42, 43, 44), configs=(*PRUNING, replace(PRUNING[1], lr_gates=0.05)), seeds_per_job=None)
    board = planned(source, tmp_path, more, "more")
    require_done(Pool().run(board))
    assert trained == [(0.5, (44,)), (0.7, (44,)), (0.7, (42, 43, 44))], "new seeds, and the changed configuration"
    assert len({job.directory for job in jobs(source, tmp_path, more)}) == 3


def test_other_weights_or_rows_are_another_run(source: Origin, tmp_path: Path) -> None:
    assert source.checkpoint is not None
    earlier = source.with_checkpoint(
        replace(source.checkpoint, path=source.checkpoint.path.with_name("step-000002.safetensors"))
    )
    fewer = Origin.at(source.model, save_task(replace(small_task(), ood={}), tmp_path / "task"), source.checkpoint)
    places = [{job.directory.name for job in jobs(each, tmp_path)} for each in (source, earlier, fewer)]
    assert all(not one & other for one, other in itertools.combinations(places, 2))


def test_a_source_that_changed_since_it_was_planned_fails_with_the_reason(source: Origin, tmp_path: Path) -> None:
    assert source.checkpoint is not None
    copy = tmp_path / "step-000004.safetensors"
    shutil.copy(source.checkpoint.path, copy)
    board = planned(source.with_checkpoint(replace(source.checkpoint, path=copy)), tmp_path)
    shutil.copy(source.checkpoint.path.with_name("step-000002.safetensors"), copy)
    work(board.run.path)
    assert states(board) == ["failed"] * 4
    assert "step-000004.safetensors was changed since: its weights had SHA-256" in board.states()[0].reason


def test_a_failure_is_recorded_the_others_go_on_and_it_is_retried_on_request(
    source: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    do = PruneJob.do

    def failing(self: PruneJob, device: torch.device, **options: Any) -> None:
        if self.seeds == (43,) and self.config.sparsity == 0.5:
            raise PruneError("the loss was NaN")
        do(self, device, **options)

    board = planned(source, tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(PruneJob, "do", failing)
        found = Pool().run(board)
        assert [state.state for state in found] == ["done", "failed", "done", "done"]
        assert found[1].reason == "PruneError: the loss was NaN"
        with pytest.raises(
            SweepError, match=r"1 of 4 jobs are not done: .*sparsity 0\.5, seed 43: PruneError: the loss was NaN"
        ):
            require_done(found)
        assert [state.state for state in Pool().run(board)][1] == "failed", "not on its own"
        assert board.retry() == 1
        assert [state.state for state in Pool().run(board)][1] == "failed"
    assert len(board.job(board.names[1]).metrics()) == 2, "every attempt"
    board.retry()
    require_done(Pool().run(board))
    assert set(sweep_results(board)["seed"].dropna()) == {42, 43}


@register
@dataclass(frozen=True)
class Squaring:
    """A job of another kind."""

    number: int
    file: Path

    @property
    def title(self) -> str:
        return f"the square of {self.number}"

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        self.file.write_text(str(self.number**2))

    def whole(self) -> bool:
        return self.file.exists()

    def spec(self, base: Path) -> dict[str, object]:
        return {"number": self.number, "file": os.path.relpath(self.file, base)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "Squaring":
        return cls(int(str(spec["number"])), base / str(spec["file"]))


def test_jobs_of_any_class_are_done_and_no_evaluation_is_expected_of_them(tmp_path: Path) -> None:
    jobs = [Squaring(number, tmp_path / f"{number}.txt") for number in (2, 3)]
    run_jobs(tmp_path, jobs, Pool())
    assert [job.file.read_text() for job in jobs] == ["4", "9"]
    (board,) = (Board.open(path) for path in tmp_path.glob("sweep-*"))
    assert [state.title for state in board.states()] == ["the square of 2", "the square of 3"]
    assert sweep_results(board).empty


def test_a_job_whose_result_is_gone_is_done_again(tmp_path: Path) -> None:
    jobs = [Squaring(number, tmp_path / f"{number}.txt") for number in (2, 3)]
    run_jobs(tmp_path, jobs, Pool())
    jobs[0].file.unlink()
    jobs[1].file.write_text("kept")
    run_jobs(tmp_path, jobs, Pool())
    assert [job.file.read_text() for job in jobs] == ["4", "kept"]


def test_a_worker_leaves_torchs_threads_as_they_were(tmp_path: Path) -> None:
    torch.set_num_threads(2)
    try:
        run_jobs(tmp_path, [Squaring(2, tmp_path / "2.txt")], Pool(1, threads=1))
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)


def test_a_damaged_result_is_reported_and_the_others_go_on(source: Origin, tmp_path: Path, caplog: Any) -> None:
    board = planned(source, tmp_path)
    first = board.read(board.names[0])
    work(board.run.path)
    file = first.directory / "subnetworks" / "seed-42.safetensors"
    file.write_bytes(file.read_bytes()[:10])
    table = sweep_results(board)
    assert len(table[(table["target"] == 0.5) & (table["seed"] == 42)]) == 0
    assert len(table[(table["target"] == 0.7) & (table["seed"] == 42)]) > 0
    assert "is left out" in caplog.text
    assert "seed-42.safetensors" in caplog.text


def test_a_damaged_run_directory_fails_its_jobs_alone(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path)
    directory = board.read(board.names[0]).directory
    directory.mkdir()
    (directory / "run.json").write_text("{")
    job = board.run.path / "jobs" / board.names[3] / "run.json"
    job.write_text(job.read_text()[:50])
    work(board.run.path)
    assert states(board) == ["failed", "failed", "done", "failed"]
    assert "run.json" in board.states()[0].reason
    assert "run.json" in board.states()[3].reason
    assert "run.json" in board.table()["reason"].iloc[3]


def test_a_job_is_running_if_its_lock_is_held_whatever_its_note_says(source: Origin, tmp_path: Path) -> None:
    """In a restarted container a dead worker's host and process number are those of a living process."""
    board = planned(source, tmp_path)
    here = AtIt(os.getpid(), os.uname().nodename, time.time() - 60)._asdict()
    for name, note in zip(board.names[:3], (here, here | {"host": "another"}, {"pid": 1}), strict=True):
        board.job(name).file("running", "json").write_text(json.dumps(note))
    assert states(board) == ["to do"] * 4
    with board.job(board.names[1]).locked(), board.job(board.names[3]).locked():
        assert states(board) == ["to do", "running", "to do", "running"]
        minute, unknown = (board.states()[place].seconds for place in (1, 3))
        assert minute == pytest.approx(60, abs=10)
        assert unknown is None
    assert [state.state for state in Pool().run(board)] == ["done"] * 4, "it waits for nobody"


def test_a_job_that_is_locked_is_left_to_its_worker(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path)
    with board.job(board.names[0]).locked():
        work(board.run.path)
        assert states(board) == ["running", "done", "done", "done"]
    work(board.run.path)
    assert states(board) == ["done"] * 4


def test_a_seed_that_somebody_else_trains_is_waited_for(
    source: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work(planned(source, tmp_path).run.path)
    board = planned(source, tmp_path, replace(SWEEP, seeds=(44,)), "another")
    held = Run.open(board.read(board.names[0]).directory).locked("seed-44")
    held.__enter__()
    waits: list[float] = []

    def release(seconds: float) -> None:
        waits.append(seconds)
        held.__exit__(None, None, None)

    monkeypatch.setattr("hc_lens.sweep.worker.time.sleep", release)
    work(board.run.path)
    assert len(waits) == 1
    assert states(board) == ["done", "done"]


def test_a_planned_sweep_stays_as_it_was_planned(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path)
    spec = SWEEP.spec([source], tmp_path)
    again = Board.create(tmp_path / "sweep", spec, plan(replace(SWEEP, seeds_per_job=2), [source], tmp_path, 1))
    assert again.names == board.names
    with pytest.raises(RunError, match="another specification: seeds"):
        planned(source, tmp_path, replace(SWEEP, seeds=(42,)))
    with pytest.raises(RunError, match="not a 'sweep'"):
        Board.open(board.run.path / "jobs" / board.names[0])
    with pytest.raises(ValueError, match="at least one job"):
        Board.create(tmp_path / "empty", {}, [])


def test_jobs_in_one_call_end_in_an_error_that_names_them(source: Origin, tmp_path: Path) -> None:
    (job, *_) = jobs(source, tmp_path)
    bad = replace(job, means=tmp_path / "file")
    (tmp_path / "file").write_text("not a directory")
    with pytest.raises(SweepError, match=r"seed 42: .*file is a file"):
        run_jobs(tmp_path, [bad], Pool())
    (tmp_path / "file").unlink()
    run_jobs(tmp_path, [bad], Pool())


@given(st.lists(st.integers(0, 99), min_size=1, max_size=20, unique=True), st.integers(1, 9), st.integers(1, 9))
def test_seeds_are_split_evenly_among_the_workers(chosen: list[int], n_jobs: int, workers: int) -> None:
    parts = split(chosen, n_jobs, workers)
    assert [seed for part in parts for seed in part] == chosen
    assert max(map(len, parts)) - min(map(len, parts)) <= 1
    assert len(parts) == min(len(chosen), -(-workers // n_jobs))


@pytest.mark.parametrize("field", ["workers", "threads"])
def test_pools_need_at_least_one(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: must be at least 1, got 0"):
        Pool(**{field: 0})


def test_a_stored_task_is_the_same_task(tmp_path: Path) -> None:
    task = small_task()
    place = save_task(task, tmp_path / "task")
    assert load_stored_task(place) == task
    save_task(task, place)
    with pytest.raises(RunError, match="holds another task"):
        save_task(replace(task, ood={}), place)
    told = json.loads((place / "task.json").read_text())
    told["splits"][0]["label_names"] = ["a", "b"]
    (place / "task.json").write_text(json.dumps(told))
    with pytest.raises(RunError, match="does not hold a task"):
        load_stored_task(place)
    (place / "task.json").unlink()
    with pytest.raises(RunError, match=r"task\.json"):
        load_stored_task(place)
