"""A worker: claims jobs of a sweep and does them until nothing is left; as a process, `python -m hc_lens.sweep SWEEP`.

Workers know nothing of one another. What a killed one was at is free again, and goes on from its last checkpoint.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.runs import BusyError, Run, RunError
from hc_lens.sweep.board import Board, at_work, first_line, is_open, trace_of

if TYPE_CHECKING:
    import torch

_log = logging.getLogger("hc_lens.sweep")
_WAIT = 2.0  # seconds until jobs that wait for a seed trained elsewhere are tried again


def work(directory: Path, threads: int | None = None, *, device: torch.device | None = None, every: float = 30.0) -> None:
    """Do the jobs of a sweep that nobody else does, until all are done, failed or in other hands.

    A job that fails is recorded with its reason, and the next one begins.

    Args:
        threads: that torch uses; as it is set when None.
        device: CUDA if there is one, when None.
        every: seconds between two checkpoints of gates in training.

    Raises:
        RunError: if there is no sweep.
        OSError: if not even a failure can be recorded (a full disk).
    """
    import torch

    device = device or torch.device("cuda" if torch.cuda.is_available() else "cpu")
    board = Board.open(directory)
    with _threads(threads):
        while waiting := [name for name in board.names if not _attempt(board, name, device, every)]:
            _log.info("%d jobs wait for seeds that another process trains", len(waiting))
            time.sleep(_WAIT)


@contextmanager
def _threads(n: int | None) -> Generator[None]:
    """Let torch use so many threads meanwhile."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(n or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _attempt(board: Board, name: str, device: torch.device, every: float) -> bool:
    """Do a job if it is to do; False if another process, outside this sweep, trains one of its seeds."""
    try:
        run = board.job(name)
    except RunError as error:  # it is shown as failed; nothing can be recorded in it
        _log.error("%s", error)
        return True
    with suppress(BusyError), run.locked():
        if is_open(run):
            return _do(board, name, run, device, every)
    return True


def _do(board: Board, name: str, run: Run, device: torch.device, every: float) -> bool:
    start = time.monotonic()
    try:
        with at_work(run):
            board.read(name).do(device, every=every)
            run.write_json("seconds", time.monotonic() - start)
            run.finish()
    except BusyError:
        return False
    except Exception as error:  # whatever it is, the other jobs go on
        _log.error("%s failed: %s", run.spec["title"], first_line(error))
        board.fail(name, first_line(error), trace_of(error))
    return True
