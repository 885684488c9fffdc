"""Jobs done in one call, for code that needs all of them before it goes on."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.runs import digest
from hc_lens.sweep.board import Board, JobState

if TYPE_CHECKING:
    from hc_lens.sweep.job import Job
    from hc_lens.sweep.pool import Pool


class SweepError(RuntimeError):
    """A sweep that did not get through all its jobs."""


def run_jobs(out: Path, jobs: Sequence[Job], pool: Pool) -> None:
    """Do these jobs, as a sweep in `out/sweep-<digest>`; failed ones of an earlier call are tried again.

    Raises:
        RunError: if that directory holds something else.
        SweepError: if jobs failed, naming them and why.
    """
    places = [job.spec(out) for job in jobs]
    board = Board.create(out / f"sweep-{digest({'jobs': places})[:12]}", {"jobs": [digest(place) for place in places]}, jobs)
    board.retry()
    board.reopen()
    require_done(pool.run(board))


def require_done(states: Sequence[JobState]) -> None:
    """Check that every job of a sweep is done.

    Raises:
        SweepError: naming the jobs that are not, and why.
    """
    if left := [state for state in states if state.state != "done"]:
        told = "; ".join(f"{state.title}: {state.reason or state.state}" for state in left[:3])
        more = f" and {len(left) - 3} more" if len(left) > 3 else ""
        raise SweepError(f"{len(left)} of {len(states)} jobs are not done: {told}{more}")
