"""Model and task of a command: those that its MODEL argument names, or those that a run was made from."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hc_lens.cli.options import TaskChoice
from hc_lens.data import Task
from hc_lens.data.stored import save_task
from hc_lens.origin import Origin
from hc_lens.runs import Run, RunError

if TYPE_CHECKING:
    import torch

    from hc_lens.models import Classifier


@dataclass(frozen=True)
class Start:
    """What pruning starts from: a model, by directory or name, and rows, which a run keeps once it is made.

    Attributes:
        trained: what a fine-tuning run says of its model and its rows.
    """

    model: str
    task: Task
    finetuned: Path | None = None
    trained: Origin | None = None

    @staticmethod
    def find(model: str, choice: TaskChoice) -> Start:
        """What a command's MODEL argument names: a fine-tuning run, a model directory, `minilm`, or a hub name.

        Raises:
            RunError: for a run of another kind, or one that has not finished.
            ValueError: for a model that is not a run, without a task; for other options of a task without one.
        """
        path = Path(model)
        is_run = (path / "run.json").exists()
        if choice.task is None and is_run and choice != TaskChoice():
            raise ValueError(f"{path} has its own task: to take another, name it (--task), or leave out the task's options")
        if is_run:
            return _started(path) if choice.task is None else replace(_started(path), task=choice.load())
        if choice.task is None:
            raise ValueError(f"{model} is not a run, so say which sentence pairs to use: --task synthetic, mnli, or a file")
        return Start(model, choice.load())

    def load_classifier(self, device: torch.device) -> Classifier:
        """The model; raises as `Origin.load_classifier`."""
        return _load(self.model, device) if self.trained is None else self.trained.load_classifier(device)

    def origin(self, store: Path) -> Origin:
        """Both as files: rows that no run keeps yet are kept in `store`, for all runs in it.

        Raises:
            RunError: if something else lies there.
        """
        if self.trained is not None and self.trained.rows == self.task.fingerprint:
            return self.trained
        place = save_task(self.task, store / f"task-{self.task.fingerprint[:12]}")
        return Origin.at(self.model, place, finetuned=self.finetuned)


def model_and_task(run: Run, device: torch.device) -> tuple[Classifier, Task]:
    """The model that a run is of, and its rows.

    Raises:
        RunError: if the run does not say, or they are not what they were.
    """
    if (earlier := _Earlier.of(run)) is None:
        return Origin.of(run).load(device)
    task = earlier.load_task()
    return _load(earlier.model, device), task


def classifier_of(run: Run, device: torch.device) -> Classifier:
    """The model that a run is of; raises as `model_and_task`."""
    if (earlier := _Earlier.of(run)) is None:
        return Origin.of(run).load_classifier(device)
    return _load(earlier.model, device)


def finetuned_of(run: Run) -> Path | None:
    """The fine-tuning run that a run's model is of, if it is known and still there.

    Raises:
        RunError: if origin.json is damaged.
    """
    if not run.file("origin", "json").exists():
        return None
    earlier = _Earlier.of(run)
    found = Origin.of(run).finetuned if earlier is None else earlier.finetuned
    return found if found is not None and (found / "run.json").exists() else None


def _started(path: Path) -> Start:
    """The model of a fine-tuning run with its rows."""
    run = Run.open(path)
    if run.kind != "finetune" or not run.finished or not (path / "model").is_dir():
        state = "" if run.finished else " that has not finished"
        raise RunError(f"{path} holds a {run.kind!r} run{state}; give a finished fine-tuning run or a model directory")
    if (earlier := _Earlier.of(run)) is not None:
        return Start(str(path / "model"), earlier.load_task(), path)
    origin = Origin.of(run)
    task = origin.load_task()
    for change in task.changed_files:
        warnings.warn(f"{change}: the rows that {path} was trained on, kept in {origin.task}, are used", stacklevel=2)
    return Start(str(path / "model"), task, path, origin)


def _load(model: str, device: torch.device) -> Classifier:
    from hc_lens.models import load_model, minilm_directory

    return load_model(minilm_directory() if model == "minilm" else model, device=device)


@dataclass(frozen=True)
class _Earlier:
    """What earlier versions stored beside a run: how its task was chosen, and no rows."""

    run: Run
    model: str
    choice: TaskChoice
    finetuned: Path | None

    @staticmethod
    def of(run: Run) -> _Earlier | None:
        """What is stored, if an earlier version did."""
        stored = run.read_json("origin") if run.file("origin", "json").exists() else None
        fields = cast("dict[str, object]", stored) if isinstance(stored, dict) else {}
        if not isinstance(fields.get("task"), dict):
            return None
        choice = TaskChoice.from_json(cast("dict[str, object]", fields["task"]))
        if run.kind == "finetune":
            return _Earlier(run, str(run.path / "model"), choice, run.path)
        finetuned = cast("str | None", fields["finetuned"])
        place = None if finetuned is None else Path(_located(run, finetuned))
        return _Earlier(run, _located(run, cast(str, fields["model"])), choice, place)

    def load_task(self) -> Task:
        """The task, read again from where it came from.

        Raises:
            RunError: if it is known to be another than the model was fine-tuned on.
            FileNotFoundError, ValueError: as `load_task`.
        """
        task = self.choice.load()
        expected = self._fingerprint()
        if expected is None:
            warnings.warn(
                f"{self.run.path} was made by an earlier version, which kept no rows: whether they are what they were cannot "
                "be checked; make it again to keep them",
                stacklevel=2,
            )
        elif expected != task.fingerprint:
            raise RunError(
                f"{self.choice.task} was changed since {self.finetuned} was trained on it: the task has fingerprint "
                f"{task.fingerprint[:12]} now, had {expected[:12]} then, and an earlier version of hc-lens kept no rows; put "
                "the files back, or train again"
            )
        return task

    def _fingerprint(self) -> str | None:
        """Of the task as the model was fine-tuned on it, if that is this run's task."""
        if self.finetuned is None:
            return None
        trained = Run.open(self.finetuned)
        same = self.run.kind == "finetune" or ((other := _Earlier.of(trained)) is not None and other.choice == self.choice)
        return cast("dict[str, dict[str, str]]", trained.spec)["task"]["fingerprint"] if same else None


def _located(run: Run, place: str) -> str:
    beside = run.path / place
    if place.startswith("..") and not beside.is_dir():
        raise RunError(f"{run.path} was made from {beside}, which is not there any more")
    return str(Path(beside).resolve()) if beside.is_dir() else place
