"""The jobs of a sweep as run directories: what is done, running, failed or to do is read from their files.

`jobs/<digest>/` of a sweep holds each job's specification (`run.json`), while a worker is at it `running.json`, in the end
`finished.json` or `failed.json`, and every failure so far in `metrics.jsonl`. Workers claim jobs by their locks, so that any
number of them, started and killed at any time, do each job once: a job is running if its lock is held, on whatever machine.
"""

from __future__ import annotations

import os
import socket
import time
import traceback
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from hc_lens.atomic import read_json, write_json
from hc_lens.runs import Run, RunError
from hc_lens.sweep.job import Job, described, job_of

if TYPE_CHECKING:
    import pandas as pd

State = Literal["done", "running", "failed", "to do"]


@dataclass(frozen=True)
class JobState:
    """Where a job stands: `reason` says why it failed, `seconds` how long it took or has been running."""

    name: str
    title: str
    state: State
    reason: str = ""
    seconds: float | None = None


class AtIt(NamedTuple):
    """A process that has taken up a job, and when (seconds since 1970)."""

    pid: int
    host: str
    since: float


@dataclass(frozen=True)
class Board:
    """The jobs of the sweep in a directory, in the order they were planned."""

    run: Run

    @staticmethod
    def create(directory: Path, spec: dict[str, object], jobs: Sequence[Job]) -> Board:
        """The sweep of these jobs: created, or reopened as it was planned if it exists.

        Raises:
            RunError: if the directory holds something else.
            ValueError: without jobs.
        """
        if not jobs:
            raise ValueError("a sweep needs at least one job: give seeds, sparsities and checkpoints")
        run = Run.at(directory, "sweep", spec)
        return Board(run) if run.file("plan", "json").exists() else Board(run).grown(jobs)

    def grown(self, jobs: Sequence[Job]) -> Board:
        """The sweep with these jobs, too; those that are planned already stay as they are."""
        run = self.run
        with run.locked("plan", wait=True):
            planned = [Run.create(run.path / "jobs", "job", described(job, run.path)) for job in jobs]
            before = cast("list[str]", run.read_json("plan")) if run.file("plan", "json").exists() else []
            run.write_json("plan", list(dict.fromkeys([*before, *(job.path.name for job in planned)])))
        return Board(run)

    @staticmethod
    def open(directory: Path) -> Board:
        """The sweep in a directory.

        Raises:
            RunError: if there is none, or it was killed before it was planned.
        """
        run = Run.open(directory)
        if run.kind != "sweep":
            raise RunError(f"{directory} holds a {run.kind!r} run, not a 'sweep'")
        return Board(run)

    @cached_property
    def names(self) -> list[str]:
        """Names of the jobs' directories."""
        return cast("list[str]", self.run.read_json("plan"))

    def job(self, name: str) -> Run:
        """A job's directory.

        Raises:
            RunError: if it is damaged.
        """
        return Run.open(self.run.path / "jobs" / name)

    def read(self, name: str) -> Job:
        """What a job is to do.

        Raises:
            RunError: if its directory is damaged, or its model or rows were changed.
        """
        return job_of(self.job(name).spec, self.run.path)

    def states(self) -> list[JobState]:
        """Where every job stands."""
        return [self._state(name) for name in self.names]

    def _state(self, name: str) -> JobState:
        try:
            job = self.job(name)
            title = str(job.spec["title"])
            if _done(job):
                return JobState(name, title, "done", seconds=cast(float, job.read_json("seconds")))
            if (failure := _failure(job)) is not None:
                return JobState(name, title, "failed", failure)
            if job.held():
                at_it = _at_it(job)
                return JobState(name, title, "running", seconds=None if at_it is None else time.time() - at_it.since)
            return JobState(name, title, "to do")
        except RunError as error:  # a damaged job does not hide the others
            return JobState(name, name, "failed", str(error))

    def reopen(self) -> None:
        """Take up again the jobs that are done but whose results are not all there any more."""
        for name in self.names:
            with suppress(ValueError):  # a damaged job, or one whose model or rows were changed: its state tells
                job = self.job(name)
                if job.finished and not self.read(name).whole():
                    with job.locked():
                        job.unfinish()

    def retry(self) -> int:
        """Forget failures, so that workers take the jobs up again; returns how many there were."""
        failed = [state.name for state in self.states() if state.state == "failed"]
        for name in failed:
            (self.run.path / "jobs" / name / "failed.json").unlink(missing_ok=True)
        return len(failed)

    def fail(self, name: str, reason: str, trace: str = "") -> None:
        """Record that a job failed; the reasons of earlier attempts stay in its `metrics.jsonl`."""
        job = self.job(name)
        job.log({"failed": reason, "host": socket.gethostname(), "time": time.time()})
        job.write_json("failed", {"reason": reason, "traceback": trace})
        _running_file(job).unlink(missing_ok=True)

    def table(self) -> pd.DataFrame:
        """The states as a table: job, state, minutes, reason."""
        import pandas as pd

        rows = [
            {
                "job": state.title,
                "state": state.state,
                "minutes": None if state.seconds is None else state.seconds / 60,
                "reason": state.reason,
            }
            for state in self.states()
        ]
        return pd.DataFrame(rows)


def is_open(job: Run) -> bool:
    """Whether a job is neither done nor failed."""
    return not _done(job) and not job.file("failed", "json").exists()


def _done(job: Run) -> bool:
    return job.finished and job.file("seconds", "json").exists()


def first_line(error: BaseException) -> str:
    """An error as one line, for tables."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"


def trace_of(error: BaseException) -> str:
    """Where an error came from."""
    return "".join(traceback.format_exception(error))


@contextmanager
def at_work(job: Run) -> Generator[None]:
    """Leave a note, for as long as it takes, of which process works on a job that it has locked, and since when.

    The note is there to be shown: whether somebody is at work the lock says alone.
    """
    file = _running_file(job)
    try:
        write_json(file, AtIt(os.getpid(), socket.gethostname(), time.time())._asdict())
        yield
    finally:
        file.unlink(missing_ok=True)


def worker_of(job: Run, since: float = 0.0) -> int | None:
    """The process of this machine that was last at work on a job, taken up after `since`, and did not end it."""
    at_it = _at_it(job)
    here = at_it is not None and at_it.host == socket.gethostname() and at_it.since >= since
    return at_it.pid if at_it is not None and here else None


def _at_it(job: Run) -> AtIt | None:
    try:
        return AtIt(**cast("dict[str, Any]", read_json(_running_file(job))))
    except (RunError, TypeError):
        return None


def _running_file(job: Run) -> Path:
    return job.file("running", "json")


def _failure(job: Run) -> str | None:
    file = job.file("failed", "json")
    return cast("dict[str, str]", read_json(file))["reason"] if file.exists() else None
