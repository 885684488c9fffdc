"""Workers killed with SIGKILL at random moments, two at once: the sweep ends with the bits of an undisturbed one.

HC_LENS_KILL_RUNS sets how many sweeps are killed, until they are done, at moments of their own.
"""

import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path

import pandas as pd
import pytest
import torch

from hc_lens.atomic import read_tensors
from hc_lens.origin import Origin
from hc_lens.pruning.training import STRETCH, GateTraining
from hc_lens.sweep import Board, Pool, register, require_done, sweep_results
from hc_lens.sweep.board import AtIt, worker_of
from hc_lens.sweep.worker import work
from tests.sweeping import LONG, SWEEP, finetuned_source, jobs, planned

RUNS = int(os.environ.get("HC_LENS_KILL_RUNS", "1"))

# Workers are forked from a server that has imported everything: fresh processes without seconds of imports.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["hc_lens.sweep.worker", "hc_lens.models.classifier", "tests.test_sweep_kill"])


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    return finetuned_source(tmp_path_factory.mktemp("finetuned"))


def worked(directory: Path, log: Path) -> None:
    """What a worker process does, with a note of every training step that it takes."""
    step = GateTraining.step

    def noted(self: GateTraining) -> None:
        with log.open("a") as file:
            file.write(f"{os.getpid()} {self.config.sparsity} {self._noise_streams[0].initial_seed()} {self.taken}\n")
        step(self)

    GateTraining.step = noted  # type: ignore[method-assign]
    work(directory, threads=1, device=torch.device("cpu"), every=0.0)


def start(directory: Path, log: Path) -> BaseProcess:
    """A worker on its way."""
    process = _FORKS.Process(target=worked, args=(directory, log))
    process.start()
    return process


def bits(board: Board) -> dict[str, torch.Tensor]:
    """The trained gates of every job."""
    found: dict[str, torch.Tensor] = {}
    for name in board.names:
        directory = board.read(name).directory
        for file in sorted((directory / "gates").glob("*.safetensors")):
            found[f"{directory.name}/{file.name}"] = read_tensors(file)["log_alpha"]
    return found


@pytest.fixture(scope="module")
def undisturbed(source: Origin, tmp_path_factory: pytest.TempPathFactory) -> tuple[Board, float]:
    """A sweep that nothing happened to, and how many seconds it took here and now."""
    root = tmp_path_factory.mktemp("undisturbed")
    board = planned(source, root, LONG)
    begin = time.monotonic()
    start(board.run.path, root / "steps.log").join()
    require_done(board.states())
    return board, time.monotonic() - begin


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_sweep_killed_at_random_ends_with_the_same_bits(
    source: Origin, undisturbed: tuple[Board, float], tmp_path: Path, seed: int
) -> None:
    board, log, dice = planned(source, tmp_path, LONG), tmp_path / "steps.log", random.Random(seed)
    log.touch()
    kills = 0
    while any(state.state != "done" for state in board.states()):
        assert not [state for state in board.states() if state.state == "failed"]
        workers = [start(board.run.path, log) for _ in range(2)]
        time.sleep(dice.uniform(0.0, undisturbed[1] / 4))  # two workers need at least half of it
        for each in workers:
            if each.is_alive():
                os.kill(each.pid or 0, signal.SIGKILL)
                kills += 1
            each.join()
    assert kills > 0

    expected, found = bits(undisturbed[0]), bits(board)
    assert expected.keys() == found.keys()
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    pd.testing.assert_frame_equal(sweep_results(undisturbed[0]), sweep_results(board), check_exact=True)
    _require_little_lost(log, kills)


def _require_little_lost(log: Path, kills: int) -> None:
    """At most one checkpoint interval is repeated for each kill, and no two processes took the same step twice at once."""
    taken = [line.split() for line in log.read_text().splitlines() if line.count(" ") == 3]
    times = Counter((sparsity, seed, step) for _, sparsity, seed, step in taken)
    repeated = sum(times.values()) - len(times)
    assert len(times) == sum(config.steps for config in LONG.configs) * len(LONG.seeds), "every step was taken"
    assert repeated <= kills * STRETCH
    for sparsity, seed in {(sparsity, seed) for _, sparsity, seed, _ in taken}:
        run = [(pid, int(step)) for pid, s, g, step in taken if (s, g) == (sparsity, seed)]
        pids = [pid for i, (pid, _) in enumerate(run) if i == 0 or run[i - 1][0] != pid]
        assert len(pids) == len(set(pids)), "one process after the other, never in turn"


def test_two_workers_share_a_sweep_and_do_nothing_twice(source: Origin, tmp_path: Path) -> None:
    board, log = planned(source, tmp_path, SWEEP), tmp_path / "steps.log"
    workers = [start(board.run.path, log) for _ in range(2)]
    for each in workers:
        each.join()
        assert each.exitcode == 0
    require_done(board.states())
    taken = [tuple(line.split()[1:]) for line in log.read_text().splitlines()]
    assert len(taken) == len(set(taken)) == sum(config.steps for config in SWEEP.configs) * len(SWEEP.seeds)


@pytest.mark.slow
def test_the_pool_replaces_a_worker_that_is_killed_and_records_its_job(
    source: Origin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = planned(source, tmp_path, LONG)
    killed: list[int] = []
    sleep = time.sleep

    def kill_the_first(seconds: float) -> None:
        sleep(seconds)
        pids = [pid for name in board.names if (pid := worker_of(board.job(name))) is not None]
        if len(pids) == 2 and not killed:  # both are at work: nobody takes the job of the killed one over at once
            os.kill(pids[0], signal.SIGKILL)
            killed.append(pids[0])

    monkeypatch.setattr("hc_lens.sweep.pool.time.sleep", kill_the_first)
    found = Pool(workers=2, device="cpu").run(board)
    assert sorted(state.state for state in found) == ["done", "done", "done", "failed"]
    (failed,) = [state for state in found if state.state == "failed"]
    assert failed.reason == "its worker was killed by SIGKILL (out of memory?)"
    board.retry()
    require_done(Pool(workers=2, device="cpu").run(board))


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path, LONG)
    parent = _FORKS.Process(target=_pool, args=(board.run.path,))
    parent.start()
    while not (pids := [pid for name in board.names if (pid := worker_of(board.job(name))) is not None]):
        time.sleep(0.1)
    os.kill(parent.pid or 0, signal.SIGKILL)
    parent.join()
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert "running" not in [state.state for state in board.states()]


@pytest.mark.slow
def test_sigterm_ends_the_pool_and_its_workers(source: Origin, tmp_path: Path) -> None:
    board = planned(source, tmp_path, LONG)
    pool = _FORKS.Process(target=_pool, args=(board.run.path,))
    pool.start()
    while len(pids := [pid for name in board.names if (pid := worker_of(board.job(name))) is not None]) < 2:
        time.sleep(0.1)
    os.kill(pool.pid or 0, signal.SIGTERM)
    pool.join(20)
    assert pool.exitcode == 143
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert "running" not in [state.state for state in board.states()]


@register
@dataclass(frozen=True)
class Sleeping:
    """A job that takes for ever."""

    title = "sleep"

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        time.sleep(60)

    def whole(self) -> bool:
        return True

    def spec(self, base: Path) -> dict[str, object]:
        return {}

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "Sleeping":
        return cls()


def test_sigterm_ends_a_pool_that_works_itself_and_frees_its_job(tmp_path: Path) -> None:
    board = Board.create(tmp_path / "sweep", {}, [Sleeping()])
    child = os.fork()
    if child == 0:
        try:
            Pool().run(board)
        except SystemExit as stop:
            os._exit(stop.code if isinstance(stop.code, int) else 1)
        finally:
            os._exit(0)
    while board.states()[0].state != "running":
        time.sleep(0.02)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert [state.state for state in board.states()] == ["to do"]
    assert worker_of(board.job(board.names[0])) is None, "it took its note away"


def test_a_death_is_put_down_to_no_job_that_the_worker_did_not_take_up(tmp_path: Path) -> None:
    """A note of an earlier life may name the same machine and process number."""
    board = Board.create(tmp_path / "sweep", {}, [Sleeping()])
    note = AtIt(4321, os.uname().nodename, time.time() - 5)
    board.job(board.names[0]).write_json("running", note._asdict())
    assert worker_of(board.job(board.names[0])) == 4321
    assert worker_of(board.job(board.names[0]), since=time.time()) is None


def _pool(directory: Path) -> None:
    Pool(workers=2, device="cpu").run(Board.open(directory))


def test_a_full_disk_is_reported(source: Origin, tmp_path: Path) -> None:
    """Results on a real file system of two megabytes, where this machine lets one be mounted."""
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"cannot mount a small file system: {mounted.stderr.strip()}")
    try:
        board = Board.create(tmp_path / "sweep", SWEEP.spec([source], tmp_path), jobs(source, small))
        free = shutil.disk_usage(small).free
        (small / "filler").write_bytes(b"0" * (free - 40_000))
        work(board.run.path, device=torch.device("cpu"))
        assert {state.state for state in board.states()} == {"failed"}
        assert "No space left on device" in board.states()[0].reason
        (small / "filler").unlink()
        board.retry()
        work(board.run.path, device=torch.device("cpu"))
        require_done(board.states())
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)  # files read by mmap may still be open
