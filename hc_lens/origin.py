"""What a run was made from, stored beside it: a model and the rows it is measured on, and what tells that they are unchanged.

A run keeps its rows, or says where they are kept: later commands measure the very rows it was made with, whatever has become of
the files that they were read from.
"""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hc_lens.atomic import read_tensors
from hc_lens.data.stored import load_stored_task
from hc_lens.runs import Run, RunError

if TYPE_CHECKING:
    import torch

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier

_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")
"""Files that hold weights: of the first kind that a directory has any of, all count."""


@dataclass(frozen=True)
class Checkpoint:
    """A model's weights after `step` updates, in TransformerLens's names, as safetensors."""

    step: int
    path: Path

    @property
    def finetuned(self) -> Path:
        """The fine-tuning run it is of."""
        return self.path.parents[1]

    def load_into(self, model: torch.nn.Module) -> None:
        """Give `model` these weights.

        Raises:
            RunError: if the file is missing, damaged, or of another architecture.
        """
        try:
            model.load_state_dict(read_tensors(self.path))
        except RuntimeError as error:
            raise RunError(f"{self.path} is not of this model ({type(model).__name__}): {error}") from error


@dataclass(frozen=True)
class Origin:
    """A model and its task as files that any process can read, and what they were when the run was made.

    Attributes:
        model: a directory in transformers format, tokenizer included; or a name, `minilm` or one of the Hub.
        task: a directory written by `save_task`.
        weights: SHA-256 of the files that hold the weights; None for a name.
        rows: fingerprint of the task.
        checkpoint: stands in place of the model's own weights.
        finetuned: the fine-tuning run that the model is of, if it is of one.
    """

    model: Path | str
    task: Path
    weights: str | None
    rows: str
    checkpoint: Checkpoint | None = None
    finetuned: Path | None = None

    @classmethod
    def at(
        cls, model: Path | str, task: Path, checkpoint: Checkpoint | None = None, *, finetuned: Path | None = None
    ) -> Origin:
        """The model and the task that lie there now.

        Raises:
            RunError: if there are no weights, or the task is absent or damaged.
        """
        finetuned = finetuned or (None if checkpoint is None else checkpoint.finetuned)
        place = Path(model) if Path(model).is_dir() else str(model)
        return cls(place, task, _weights(place, checkpoint), load_stored_task(task).fingerprint, checkpoint, finetuned)

    @classmethod
    def of(cls, run: Run) -> Origin:
        """The origin stored beside a run.

        Raises:
            RunError: if there is none, or it is damaged or of an earlier version, which kept no rows.
        """
        file = run.file("origin", "json")
        if not file.exists():
            raise RunError(f"{run.path} has no origin.json: it was made of a model and rows in memory, not known to be on disk")
        stored = run.read_json("origin")
        if not isinstance(stored, dict) or isinstance(cast("dict[str, object]", stored).get("task"), dict):
            raise RunError(f"{file} is of an earlier version, which kept no rows: make the run again, or use the command line")
        try:
            return cls.from_json(cast("dict[str, object]", stored), run.path)
        except (KeyError, TypeError) as error:
            raise RunError(f"{file} is damaged: {error!r}; delete it, and start the command that made the run again") from error

    @property
    def step(self) -> int | None:
        """Updates that the checkpoint has had."""
        return None if self.checkpoint is None else self.checkpoint.step

    def with_checkpoint(self, checkpoint: Checkpoint) -> Origin:
        """The same model and rows with the weights of a checkpoint.

        Raises:
            RunError: if it is not there.
        """
        return replace(self, checkpoint=checkpoint, weights=_weights(self.model, checkpoint))

    def store(self, run: Run) -> None:
        """Write the origin beside a run; directories relative to it, so that all can be moved together."""
        asked = self.as_json(run.path)
        if not run.file("origin", "json").exists() or run.read_json("origin") != asked:
            with run.locked("origin", wait=True):
                run.write_json("origin", asked)

    def load(self, device: torch.device | str = "cpu") -> tuple[Classifier, Task]:
        """The model and the rows; where a file that they were read from has changed since, a warning says so.

        Raises:
            FileNotFoundError, ValueError: as `load_classifier` and `load_task`.
        """
        task = self.load_task()
        for change in task.changed_files:
            warnings.warn(f"{change}: the rows that the run was made with, kept in {self.task}, are used", stacklevel=2)
        return self.load_classifier(device), task

    def load_task(self) -> Task:
        """The rows alone.

        Raises:
            RunError: if they are not there any more, damaged, or not what they were.
        """
        task = load_stored_task(self.task)
        if task.fingerprint != self.rows:
            raise RunError(
                f"{self.task} was changed since: its rows had fingerprint {self.rows[:12]}, have {task.fingerprint[:12]} now"
            )
        return task

    def load_classifier(self, device: torch.device | str = "cpu") -> Classifier:
        """The model alone.

        Raises:
            RunError: if its weights are not there any more, or not what they were.
            FileNotFoundError, ValueError: as `load_model`.
        """
        from hc_lens.models import load_model, minilm_directory  # TransformerLens, for those who compute

        self.require_weights()
        model = load_model(minilm_directory() if self.model == "minilm" else self.model, device=device)
        if self.checkpoint is not None:
            self.checkpoint.load_into(model)
        return model

    def require_weights(self) -> None:
        """Check that the weights are those that the run was made with.

        Raises:
            RunError: naming the file, and what it held then and holds now.
        """
        if self.weights is not None and (now := _weights(self.model, self.checkpoint)) != self.weights:
            place = self.model if self.checkpoint is None else self.checkpoint.path
            raise RunError(
                f"{place} was changed since: its weights had SHA-256 {self.weights[:12]}, and have {str(now)[:12]} now; put "
                "back what was there (fine-tuning again does), or start from the changed model with another --out"
            )

    def as_json(self, base: Path) -> dict[str, object]:
        """The origin as JSON, with places relative to `base`; the fine-tuning run where the checkpoint does not tell it."""
        known = None if self.checkpoint is None else self.checkpoint.finetuned
        finetuned = {} if self.finetuned in (None, known) else {"finetuned": os.path.relpath(str(self.finetuned), base)}
        return {
            "model": os.path.relpath(self.model, base) if isinstance(self.model, Path) else self.model,
            "task": os.path.relpath(self.task, base),
            "checkpoint": None if self.checkpoint is None else os.path.relpath(self.checkpoint.path, base),
            "step": self.step,
            "weights": self.weights,
            "rows": self.rows,
            **finetuned,
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, object], base: Path) -> Origin:
        """The origin that `as_json` described.

        Raises:
            KeyError, TypeError: for anything else.
        """
        model, file, step = (
            cast(str, stored["model"]),
            cast("str | None", stored["checkpoint"]),
            cast("int | None", stored["step"]),
        )
        checkpoint = None if file is None or step is None else Checkpoint(step, _located(base, file))
        weights, finetuned = cast("str | None", stored["weights"]), cast("str | None", stored.get("finetuned"))
        return cls(
            model if weights is None else _located(base, model),
            _located(base, cast(str, stored["task"])),
            weights,
            cast(str, stored["rows"]),
            checkpoint,
            (None if checkpoint is None else checkpoint.finetuned) if finetuned is None else _located(base, finetuned),
        )


def _located(base: Path, place: str) -> Path:
    return Path(os.path.normpath(base / place))


def _weights(model: Path | str, checkpoint: Checkpoint | None) -> str | None:
    """SHA-256 of the files that hold the weights; None for a name without a checkpoint."""
    if checkpoint is not None:
        files = [checkpoint.path]
    elif isinstance(model, Path):
        files = next((found for kind in _WEIGHTS if (found := sorted(model.glob(kind)))), [])
    else:
        return None
    if not files or not files[0].is_file():
        raise RunError(f"{files[0] if files else model} holds no weights: there is nothing to load")
    return hashlib.sha256("".join(_file_digest(file, file.stat().st_mtime_ns) for file in files).encode()).hexdigest()


@cache
def _file_digest(file: Path, modified: int) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
