"""A full disk and a read-only one: a sentence that names the place, nothing lost, and it goes on when there is space."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hc_lens.cli.runner import run as command
from hc_lens.pruning import evaluate_into, open_pruned
from hc_lens.questions import Attention
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from tests.asking import opened
from tests.contents import content_of
from tests.test_redo import _HEADS, finetuned, measured, pruned, small, swept

STAGES = (finetuned, pruned, measured, swept)


@contextmanager
def mounted(place: Path, *options: str) -> Iterator[None]:
    """A small file system of its own, where this machine lets one be mounted."""
    place.mkdir(exist_ok=True)
    done = subprocess.run(["mount", *options, str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount a file system: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=True)  # files read by mmap may still be open


@contextmanager
def read_only(place: Path) -> Iterator[None]:
    """A mounted place that cannot be written meanwhile."""
    done = subprocess.run(["mount", "-o", "remount,ro,bind", str(place)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"cannot mount read-only: {done.stderr.strip()}")
    yield


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    for stage in STAGES:
        stage(root)
    return root


def computed(root: Path) -> dict[str, object]:
    """Everything that was computed, to the last bit."""
    files = [file for kind in ("safetensors", "parquet") for file in root.rglob(f"*.{kind}")]
    return {str(file.relative_to(root)): content_of(file) for file in files}


def test_on_a_full_disk_every_step_says_so_and_goes_on_when_there_is_space(finished: Path, tmp_path: Path) -> None:
    full = tmp_path / "full"
    with mounted(full, "-t", "tmpfs", "-o", "size=32m", "tmpfs"):
        filler, refused = full / "filler", list[str]()
        for stage in STAGES:
            for left in (0, 20_000, 200_000):
                filler.write_bytes(b"")
                filler.write_bytes(b"0" * max(0, shutil.disk_usage(full).free - left))
                try:
                    stage(full)
                except (OSError, RuntimeError) as error:
                    refused.append(str(error))
            filler.unlink()
            stage(full)
        assert len(refused) >= len(STAGES)
        assert not [text for text in refused if "No space left on device" not in text or str(full) not in text]
        assert computed(full) == computed(finished)
        assert not list(full.rglob(".*.tmp"))


def test_on_a_read_only_disk_tables_are_read_and_nothing_else_is_begun(finished: Path, tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    before = computed(finished)
    with mounted(place, "--bind", str(finished)), read_only(place):
        run, model, task = open_pruned(place / "pruned"), embedded_model(), small()
        assert len(evaluate_into(run, model, task, sample=Sample(2))) > 0
        assert len(opened(run, model, task).ask(Attention(_HEADS), Sample(2))["attention"]) > 0
        makes: list[Callable[[], object]] = [
            lambda: finetuned(place / "other"),
            lambda: pruned(place / "other"),
            lambda: evaluate_into(run, model, task, sample=Sample(1)),
            lambda: opened(run, model, task).ask(Attention(_HEADS), Sample(1)),
            lambda: model.save_pretrained(place / "model"),
        ]
        for make in makes:
            with pytest.raises(OSError, match=r"Read-only file system.*mounted/(other|pruned|model)"):
                make()
    assert computed(finished) == before


@pytest.mark.parametrize("words", [["show", "{}/pruned"], ["report", "{}/pruned", "--out", "{out}"]])
def test_reading_commands_work_on_a_read_only_disk(words: list[str], finished: Path, tmp_path: Path) -> None:
    place = tmp_path / "mounted"
    with mounted(place, "--bind", str(finished)), read_only(place):
        name, *rest = [word.format(place, out=tmp_path / "out") for word in words]
        assert command(name, name, rest) == 0
