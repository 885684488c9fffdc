"""What a run was made from: which model and which task, stored beside it so that later commands need only the run."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from hc_lens.cli.options import TaskChoice
from hc_lens.data import Task
from hc_lens.models import Classifier, load_model, minilm_directory
from hc_lens.runs import Run, RunError


@dataclass(frozen=True)
class Origin:
    """A model, by directory or hub name, its task, and the fine-tuning run it came from, if any."""

    model: str
    task: TaskChoice
    finetuned: Path | None = None

    @staticmethod
    def find(model: str, choice: TaskChoice) -> "Origin":
        """The origin that a command's MODEL argument names: a fine-tuning run, a model directory, `minilm`, or a hub name.

        Raises:
            RunError: for a run of another kind, or one that has not finished.
            ValueError: for a model that is not a run, without a task.
        """
        path = Path(model)
        if (path / "run.json").exists():
            run = Run.open(path)
            if run.kind != "finetune" or not run.finished or not (path / "model").is_dir():
                state = "" if run.finished else " that has not finished"
                raise RunError(f"{path} holds a {run.kind!r} run{state}; give a finished fine-tuning run or a model directory")
            task = _task(_stored(run)) if choice.task is None else choice
            return Origin(str(path / "model"), task, path)
        if choice.task is None:
            raise ValueError(f"{model} is not a run, so say which sentence pairs to use: --task synthetic, mnli, or a file")
        return Origin(model, choice)

    @staticmethod
    def of(run: Run) -> "Origin":
        """The origin stored beside a run.

        Raises:
            RunError: if there is none, or the model directory is gone.
        """
        stored = _stored(run)
        task = _task(stored)
        if run.kind == "finetune":
            return Origin(str(run.path / "model"), task, run.path)
        finetuned = cast("str | None", stored.get("finetuned"))
        place = None if finetuned is None else Path(_located(run, finetuned))
        return Origin(_located(run, cast(str, stored["model"])), task, place)

    def store(self, run: Run) -> None:
        """Write the origin beside a run; directories relative to it, so that both can be moved together."""
        run.write_json(
            "origin",
            {
                "model": _relative(run, self.model),
                "task": self.task.as_json(),
                "finetuned": None if self.finetuned is None else _relative(run, str(self.finetuned)),
            },
        )

    def load(self, device: torch.device) -> tuple[Classifier, Task]:
        """The model and the task.

        Raises:
            FileNotFoundError, ValueError: as `load_model` and `load_task`.
        """
        task = self.task.load()
        return self.load_classifier(device), task

    def load_classifier(self, device: torch.device) -> Classifier:
        """The model alone; raises as `load_model`."""
        return load_model(minilm_directory() if self.model == "minilm" else self.model, device=device)


def _stored(run: Run) -> dict[str, object]:
    if not run.file("origin", "json").exists():
        raise RunError(f"{run.path} has no origin.json: hc-lens did not make it and cannot tell its model and task")
    return cast("dict[str, object]", run.read_json("origin"))


def _task(stored: dict[str, object]) -> TaskChoice:
    return TaskChoice.from_json(cast("dict[str, object]", stored["task"]))


def _relative(run: Run, place: str) -> str:
    return os.path.relpath(place, run.path) if Path(place).is_dir() else place


def _located(run: Run, place: str) -> str:
    beside = run.path / place
    if place.startswith("..") and not beside.is_dir():
        raise RunError(f"{run.path} was made from {beside}, which is not there any more")
    return os.path.normpath(beside) if beside.is_dir() else place
