"""A fine-tuned model with its task, as files that any process can read."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property, lru_cache
from pathlib import Path
from typing import cast

import torch

from hc_lens.data.stored import load_stored_task
from hc_lens.data.task import Task
from hc_lens.models import Classifier, load_model
from hc_lens.runs import RunError
from hc_lens.train import Checkpoint


@dataclass(frozen=True)
class Source:
    """What a job prunes: a model directory, a task directory, and, in place of the model's own weights, a checkpoint's.

    Attributes:
        model: in transformers format, tokenizer included.
        task: as written by `save_task`.
        checkpoint: of the fine-tuning run that the model came from.
    """

    model: Path
    task: Path
    checkpoint: Checkpoint | None = None

    @property
    def step(self) -> int | None:
        """Updates that the checkpoint has had."""
        return None if self.checkpoint is None else self.checkpoint.step

    @cached_property
    def weights(self) -> str:
        """SHA-256 of the files that hold the weights.

        Raises:
            RunError: if there are none.
        """
        files = sorted(self.model.glob("*.safetensors")) if self.checkpoint is None else [self.checkpoint.path]
        if not files or not files[0].is_file():
            raise RunError(f"{files[0] if files else self.model} holds no weights: there is nothing to prune")
        return hashlib.sha256("".join(_file_digest(file, file.stat().st_mtime_ns) for file in files).encode()).hexdigest()

    @property
    def rows(self) -> str:
        """Fingerprint of the task.

        Raises:
            RunError: if it is absent or damaged.
        """
        return _task(self.task).fingerprint

    def load(self, device: torch.device) -> tuple[Classifier, Task]:
        """The model with the checkpoint's weights, and the task; kept in the process for the next job of the same source.

        Raises:
            FileNotFoundError, ValueError, RunError: for files that are absent or damaged.
        """
        model, task = _loaded(self.model, device), _task(self.task)
        if self.checkpoint is not None:
            self.checkpoint.load_into(model)
        return model, task

    def spec(self, base: Path) -> dict[str, object]:
        """The source as JSON, with places relative to `base`, and what lies there: other weights or rows, another source."""
        return {
            "model": os.path.relpath(self.model, base),
            "task": os.path.relpath(self.task, base),
            "checkpoint": None if self.checkpoint is None else os.path.relpath(self.checkpoint.path, base),
            "step": self.step,
            "weights": self.weights,
            "rows": self.rows,
        }

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "Source":
        """The source that `spec` describes.

        Raises:
            RunError: if its weights or rows are not there any more, or not what they were.
        """
        file, step = cast("str | None", spec["checkpoint"]), cast("int | None", spec["step"])
        checkpoint = None if file is None or step is None else Checkpoint(step, _located(base, file))
        source = cls(_located(base, cast(str, spec["model"])), _located(base, cast(str, spec["task"])), checkpoint)
        if source.weights != spec["weights"] or source.rows != spec["rows"]:
            raise RunError(f"{source.model} or {source.task} was changed since the job was planned: plan it anew")
        return source


def _located(base: Path, place: str) -> Path:
    return Path(os.path.normpath(base / place))


@cache
def _file_digest(file: Path, modified: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()


@lru_cache(maxsize=1)
def _loaded(model: Path, device: torch.device) -> Classifier:
    return load_model(model, device=device)


@lru_cache(maxsize=2)
def _task(directory: Path) -> Task:
    return load_stored_task(directory)
