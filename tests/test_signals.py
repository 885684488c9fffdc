"""SIGTERM ends what computes, and a container's first process, too."""

import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from hc_lens.cli import runner
from hc_lens.signals import ended_by_sigterm


def test_sigterm_ends_a_command_through_its_finally_clauses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, cleared = tmp_path / "begun", tmp_path / "cleared"

    def computing(words: object) -> None:
        try:
            begun.touch()
            time.sleep(60)
        finally:
            cleared.touch()

    monkeypatch.setattr(runner.importlib, "import_module", lambda name: SimpleNamespace(main=computing))
    child = os.fork()
    if child == 0:
        os._exit(runner.run("prune", "prune", []))
    while not begun.exists():
        time.sleep(0.01)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 143
    assert cleared.exists()


def test_a_callers_own_handler_stays() -> None:
    def own(number: int, frame: object) -> None:
        """What a cluster's launcher may want to do."""

    signal.signal(signal.SIGTERM, own)
    try:
        with ended_by_sigterm():
            assert signal.getsignal(signal.SIGTERM) is own
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    with ended_by_sigterm():
        assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
