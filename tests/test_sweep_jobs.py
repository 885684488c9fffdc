"""A sweep's files cannot make the program import anything: jobs are the program's own, or those that the caller registered."""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import hc_lens
from hc_lens.relations.job import RelationJob
from hc_lens.runs import Run, RunError
from hc_lens.sweep import Board, Pool, PruneJob, register, run_jobs
from hc_lens.sweep.job import job_of

ROOT = Path(__file__).parents[1]
EVIL = "from pathlib import Path\nPath({mark!r}).touch()\nclass J: pass\n"


@register
@dataclass(frozen=True)
class Naming:
    """A job of the tests, which notes the process that did it."""

    file: Path

    @property
    def title(self) -> str:
        return "who did it"

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        self.file.write_text(str(os.getpid()))

    def whole(self) -> bool:
        return self.file.exists()

    def spec(self, base: Path) -> dict[str, object]:
        return {"file": os.path.relpath(self.file, base)}

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "Naming":
        return cls(base / str(spec["file"]))


class Unregistered(Naming):
    """Nobody named it."""


@pytest.fixture
def evil(working_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a module of the current directory touches when it is imported, with that directory importable here."""
    mark = working_directory / "imported"
    for name in ("evil_job", "json", "torch"):
        (working_directory / f"{name}.py").write_text(EVIL.format(mark=str(mark)))
    monkeypatch.syspath_prepend(working_directory)
    return mark


@pytest.mark.parametrize(
    "name", ["evil_job:J", "os:system", "os.path:join", "nowhere:Job", f"{__name__}:Unregistered", "", None, 3]
)
def test_a_class_that_is_not_known_is_refused_by_name_and_not_imported(name: object, evil: Path, tmp_path: Path) -> None:
    with pytest.raises(RunError, match=rf"^job: {name!r} is no class of jobs that this program knows: .*PruneJob"):
        job_of({"job": name}, tmp_path)
    assert not evil.exists()
    assert "evil_job" not in sys.modules


@pytest.mark.parametrize("kind", [PruneJob, RelationJob])
def test_the_programs_own_jobs_are_named_as_they_always_were(
    kind: type, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(kind, "from_spec", classmethod(lambda cls, spec, base: cls))
    name = {PruneJob: "hc_lens.sweep.prune_job:PruneJob", RelationJob: "hc_lens.relations.job:RelationJob"}[kind]
    assert job_of({"job": name}, tmp_path) is kind


def test_a_job_that_no_worker_would_know_is_refused_before_it_is_planned(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Unregistered is not a class of jobs that sweeps know: register it"):
        run_jobs(tmp_path, [Unregistered(tmp_path / "out")], Pool())


def test_a_foreign_sweep_fails_by_name_and_runs_nothing(evil: Path, tmp_path: Path) -> None:
    board = Board.create(tmp_path / "sweep", {}, [Naming(tmp_path / "out")])
    spec = {"file": "../out", "job": "evil_job:J", "title": "harmless"}
    forged = Run.create(tmp_path / "sweep" / "jobs", "job", spec)
    board.run.write_json("plan", [forged.path.name])
    (state,) = Pool().run(Board.open(board.run.path))
    assert state.state == "failed"
    assert "'evil_job:J' is no class of jobs" in state.reason
    assert not evil.exists()


@pytest.mark.slow
def test_workers_know_the_callers_classes_and_import_nothing_from_the_current_directory(
    evil: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), str(Path(hc_lens.__file__).parents[1])]))
    job = Naming(tmp_path / "out")
    run_jobs(tmp_path, [job], Pool(2, device="cpu"))
    assert int(job.file.read_text()) != os.getpid()
    assert not evil.exists()
