"""Directories are whole or absent, however a process ends, and what a killed one left is finished or removed by the next."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hc_lens import atomic
from hc_lens.atomic import atomic_directory
from hc_lens.runs import Run


def write(path: Path, text: str) -> None:
    with atomic_directory(path) as new:
        (new / "weights").write_text(text)
        (new / "nested").mkdir()
        (new / "nested" / "config").write_text(text)


def content(path: Path) -> dict[str, str]:
    return {file.relative_to(path).as_posix(): file.read_text() for file in sorted(path.rglob("*")) if file.is_file()}


def killed(act: Callable[[], None]) -> bool:
    """Run in a process that does not live to clean up; whether it was killed before it came to its end."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    return os.WEXITSTATUS(os.waitpid(child, 0)[1]) == 9


def write_until(call: int, path: Path, text: str) -> None:
    """Write, and die as by SIGKILL before the call-th of the system calls that make or move something."""
    left = [call]
    for name in ("mkdir", "rename", "fsync", "rmdir", "unlink"):
        original = getattr(os, name)

        def dying(*args: object, original: Callable[..., object] = original, **options: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os._exit(9)
            return original(*args, **options)

        setattr(os, name, dying)
    write(path, text)


NEW = {"nested/config": "new", "weights": "new"}
OLD = {"nested/config": "old", "weights": "old"}


@pytest.mark.parametrize("earlier", [False, True])
def test_killed_at_any_call_it_is_whole_and_the_next_call_clears_up(earlier: bool, tmp_path: Path) -> None:
    call = 1
    while True:
        root = tmp_path / str(call)
        path = root / "model"
        root.mkdir()
        if earlier:
            write(path, "old")
            (path / "mine.txt").write_text("mine")
        if not killed(lambda call=call, path=path: write_until(call, path, "new")):
            break
        mine = {"mine.txt": "mine"} if earlier else {}
        if path.exists():
            assert content(path) in (OLD | mine, NEW | mine)
        write(path, "new")
        assert content(path) == NEW | mine, f"call {call}"
        assert [each.name for each in root.iterdir()] == ["model"]
        call += 1
    assert call > 8


def test_an_error_leaves_what_was_there(tmp_path: Path) -> None:
    write(tmp_path / "model", "old")

    def fail() -> None:
        with atomic_directory(tmp_path / "model") as new:
            (new / "weights").write_text("half")
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert content(tmp_path / "model") == OLD
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_two_at_once_leave_each_other_alone(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "model") as first:
        (first / "weights").write_text("first")
        write(tmp_path / "model", "old")
        assert first.exists(), "its writer is alive"
        assert content(tmp_path / "model") == OLD
    assert content(tmp_path / "model")["weights"] == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


def test_an_unwritable_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    with pytest.raises(OSError, match=r"nothing was written.*file/model"), atomic_directory(tmp_path / "file" / "model"):
        pass


def test_a_lock_on_a_run_clears_directories_as_it_clears_files(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "finetune", {"model": "m"})
    half = run.path / ".model.0a1b2c3d.tmp"
    (half / ".weights.0a1b2c3d.tmp").mkdir(parents=True)
    aside = run.path / ".means.0a1b2c3d.old.tmp"
    aside.mkdir()
    (aside / "weights").write_text("old")
    with run.locked():
        assert not half.exists()
        assert (run.path / "means" / "weights").read_text() == "old", "a kill came between the two renames"


def test_a_directory_of_a_run_is_there_if_its_last_file_is(tmp_path: Path) -> None:
    run = Run.create(tmp_path, "finetune", {"model": "m"})
    (run.path / "model").mkdir()
    (run.path / "model" / "weights").write_text("half, written file by file")
    run.directory("model", "nested/config", lambda place: write(place, "new"))
    assert content(run.path / "model") == NEW
    run.directory("model", "nested/config", lambda place: write(place, "again"))
    assert content(run.path / "model") == NEW


def test_the_name_of_what_was_left_says_where_it_belongs() -> None:
    assert Path(".model.0a1b2c3d.old.tmp").match(atomic.TEMPORARY)
    assert Path(".model.0a1b2c3d.tmp").match(atomic.TEMPORARY)
