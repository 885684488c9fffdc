"""Signals that ask a process to end."""

import signal
import threading
from collections.abc import Generator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def ended_by_sigterm() -> Generator[None]:
    """Let SIGTERM end this process through its `finally` clauses, with code 143, unless somebody else has a use for it.

    The first process of a container would otherwise ignore it: the system has no default for that.
    """
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not ours:
        yield
        return

    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
