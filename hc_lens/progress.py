"""Progress bars for what takes long: one at a time, on standard error, and none where nobody looks."""

from collections.abc import Generator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol, runtime_checkable

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_SHOWN = Lock()  # held by the bar on the screen: a second one would be drawn into it


@runtime_checkable
class Advance(Protocol):
    """Moves a bar by `steps`; a `state` is shown at its end until the next one."""

    def __call__(self, steps: int = 1, state: str = "") -> None: ...


@contextmanager
def progress(description: str, total: int) -> Generator[Advance]:
    """A bar of `total` steps with rate and time left, advanced by calling what it yields.

    Silent off a terminal, and inside another bar: fine-tuning, say, evaluates its checkpoints while its own bar runs.
    """
    console = Console(stderr=True)
    if not console.is_terminal or not _SHOWN.acquire(blocking=False):
        yield _silent
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[state]}"),
    )
    try:
        with Progress(*columns, console=console, transient=True) as bar:
            task = bar.add_task(description, total=total, rate="", state="")

            def advance(steps: int = 1, state: str = "") -> None:
                speed = bar.tasks[task].speed
                bar.update(task, advance=steps, rate="" if speed is None else f"{speed:.2f}/s", state=state)

            yield advance
    finally:
        _SHOWN.release()


def _silent(steps: int = 1, state: str = "") -> None:
    """Where there is no bar to move."""
