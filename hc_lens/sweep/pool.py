"""Workers as processes of this machine, each with its fair share of the cores or a GPU of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hc_lens.progress import progress
from hc_lens.runs import RunError
from hc_lens.signals import ended_by_sigterm
from hc_lens.sweep.board import Board, JobState, worker_of
from hc_lens.sweep.job import registered

_POLL = 0.5  # seconds between two looks at the workers


@dataclass(frozen=True)
class Pool:
    """How many workers do the jobs, and what each may use.

    Attributes:
        workers: processes; 1 does the jobs in this process. None: one for each GPU, or for each core, but no more than jobs.
        threads: of each; None: the cores divided by the workers.
        device: None: CUDA if there is one; several workers share the GPUs among them.
        every: seconds between two checkpoints of gates in training.
    """

    workers: int | None = 1
    threads: int | None = None
    device: str | None = None
    every: float = 30.0

    def __post_init__(self) -> None:
        for name in ("workers", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}: must be at least 1, got {value}")

    @property
    def wanted(self) -> int:
        """How many workers there are to be, if there are jobs enough."""
        return self.workers or len(self._gpus) or os.cpu_count() or 1

    @property
    def _gpus(self) -> list[str]:
        """GPUs that workers share among them: all that this process sees, unless a device was chosen."""
        import torch

        if self.device not in (None, "cuda"):
            return []
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        return visible.split(",") if visible else [str(index) for index in range(torch.cuda.device_count())]

    def run(self, board: Board) -> list[JobState]:
        """Do all open jobs of a sweep; returns where every job stands in the end: done or failed.

        Workers that die are replaced, and their job is recorded as failed. Jobs that workers of somebody else are at are
        waited for. An interrupt and SIGTERM end the workers; what they were at goes on at the next call.

        Raises:
            OSError: if not even a failure can be recorded (a full disk).
        """
        tried: set[str] = set()
        with ended_by_sigterm():
            while left := [state for state in board.states() if state.state in ("to do", "running")]:
                to_do = {state.name for state in left if state.state == "to do"}
                if to_do - tried:
                    self._run(board, min(self.wanted, len(to_do)))
                    tried = to_do
                else:  # they are in the hands of somebody else
                    time.sleep(_POLL)
                    tried = set()
        return board.states()

    def _run(self, board: Board, wanted: int) -> None:
        import torch

        from hc_lens.sweep.worker import work

        if self.workers == 1:
            device = None if self.device is None else torch.device(self.device)
            work(board.run.path, self.threads, device=device, every=self.every)
        else:
            self._processes(board, wanted)

    def _processes(self, board: Board, wanted: int) -> None:
        logs = board.run.path / "logs"
        logs.mkdir(exist_ok=True)
        living: dict[int, _Worker] = {}
        try:
            for index in range(wanted):
                living[index] = self._start(board, index, wanted, logs)
            with progress("sweep", len(board.names)) as advance:
                shown = idle_deaths = 0
                due = 0.0
                while living:
                    time.sleep(_POLL)
                    if (start := time.monotonic()) >= due:
                        ended, text = _summary(board.states())
                        advance(ended - shown, text)
                        shown = ended
                        due = start + 20 * (time.monotonic() - start)  # reading hundreds of jobs must not cost a core
                    for index, worker in list(living.items()):
                        if worker.process.poll() is None:
                            continue
                        del living[index]
                        if worker.process.returncode:
                            idle_deaths += not _record(board, worker)
                            if idle_deaths > wanted:
                                log = logs / f"worker-{index}.log"
                                raise RunError(f"workers of {board.run.path} die before they take up a job: see {log}")
                            living[index] = self._start(board, index, wanted, logs)
        finally:
            for worker in living.values():
                worker.process.kill()
                worker.process.wait()

    def _start(self, board: Board, index: int, workers: int, logs: Path) -> _Worker:
        threads = self.threads or max(1, (os.cpu_count() or 1) // workers)
        environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
        environment["PYTHONSAFEPATH"] = "1"  # nothing is imported from the current directory
        if gpus := self._gpus:
            environment["CUDA_VISIBLE_DEVICES"] = gpus[index % len(gpus)]
        command = [sys.executable, "-m", "hc_lens.sweep", str(board.run.path), "--end-with-parent"]
        command += ["--threads", str(threads), "--every", str(self.every)]
        command += [] if self.device is None else ["--device", self.device]
        for name in registered():
            command += ["--job", name]
        since = time.time()
        with (logs / f"worker-{index}.log").open("ab") as log:
            return _Worker(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment), since)


class _Worker(NamedTuple):
    """A process that was started, and when (seconds since 1970)."""

    process: subprocess.Popen[bytes]
    since: float


def _summary(states: Sequence[JobState]) -> tuple[int, str]:
    """How many jobs have ended, and in words how many are running and failed."""
    count = Counter(state.state for state in states)
    return count["done"] + count["failed"], f"{count['running']} running, {count['failed']} failed"


def _record(board: Board, worker: _Worker) -> bool:
    """Put a worker's death down to the job it was at; False if it was at none, or another worker has taken that up already."""
    process, since = worker
    code = process.returncode
    how = f"its worker was killed by {signal.Signals(-code).name}" if code < 0 else f"its worker ended with code {code}"
    hint = " (out of memory?)" if code == -signal.SIGKILL else ""
    for name in board.names:
        with suppress(RunError):  # a damaged job
            if worker_of(board.job(name), since) == process.pid:
                board.fail(name, how + hint)
                return True
    return False
