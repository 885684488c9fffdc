"""Relations as the jobs of a sweep: any number of workers, killed and started at any time, measure each relation once."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import cast

import torch

from hc_lens.models import LanguageModel, load_language_model
from hc_lens.models.fingerprint import fingerprint
from hc_lens.precision import Resolved, choose_for, settle
from hc_lens.relations.config import RelationConfig
from hc_lens.relations.measured import Measured, measure_into, open_measured, relation_of, relation_spec
from hc_lens.relations.relation import Relation
from hc_lens.runs import Run, RunError
from hc_lens.sweep import Pool, run_jobs


@dataclass(frozen=True)
class ModelSource:
    """A causal language model that any process can load: a Hub name, a directory, or a GGUF file in one.

    Attributes:
        fingerprint: of its weights, so that a changed model is noticed.
    """

    source: str
    gguf_file: str | None
    fingerprint: str

    @classmethod
    def of(cls, source: str | Path, gguf_file: str | None = None) -> "ModelSource":
        """The model there.

        Raises:
            FileNotFoundError, ValueError: as `load_language_model`.
        """
        place = str(Path(source).resolve()) if Path(source).exists() else str(source)
        return cls(place, gguf_file, fingerprint(_loaded(place, gguf_file, torch.device("cpu"))))

    def load(self, device: torch.device) -> LanguageModel:
        """The model; kept in the process for the next job.

        Raises:
            FileNotFoundError, ValueError: as `load_language_model`.
            RunError: if its weights are not what they were.
        """
        model = _loaded(self.source, self.gguf_file, device)
        if fingerprint(model) != self.fingerprint:
            raise RunError(f"{self.source} was changed since the job was planned: plan it anew")
        return model


@lru_cache(maxsize=1)
def _loaded(source: str, gguf_file: str | None, device: torch.device) -> LanguageModel:
    return load_language_model(source, gguf_file=gguf_file, device=device)


@dataclass(frozen=True)
class RelationJob:
    """Measure one relation on one model, in a run directory under `root`.

    `sweep` is the directory of the sweep, which decides once for all its jobs what precision "auto" comes to.
    """

    root: Path
    model: ModelSource
    relation: Relation
    config: RelationConfig
    sweep: Path | None = field(default=None, compare=False)

    @property
    def title(self) -> str:
        """The job in a few words."""
        return f"relation {self.relation.name!r}"

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        """Measure what is not measured yet: each probe and each fine-tuning is kept as soon as it is done.

        Raises:
            Exception: as `measure_into`.
        """
        model = self.model.load(device)
        measure_into(self.root, model, self.relation, self.config, auto=self._auto(model))

    def whole(self) -> bool:
        """Whether everything that was measured is there."""
        try:
            self.result()
        except RunError:
            return False
        return True

    def result(self) -> Measured:
        """What was measured.

        Raises:
            RunError: if it is not done, or damaged.
        """
        return open_measured(self.root, relation_spec(self.model.fingerprint, self.relation, self.config))

    def _auto(self, model: LanguageModel) -> Resolved | None:
        """What precision "auto" comes to in the sweep: decided by the job that first needs it."""
        if self.sweep is None or self.config.finetune.precision != "auto":
            return None
        return settle(Run.open(self.sweep), lambda: choose_for(model, self.config.finetune.batch_size))

    def spec(self, base: Path) -> dict[str, object]:
        """The job as JSON, with `root` relative to `base`."""
        place = {"root": os.path.relpath(self.root, base), "source": self.model.source, "gguf_file": self.model.gguf_file}
        return relation_spec(self.model.fingerprint, self.relation, self.config) | place

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "RelationJob":
        """The job that `spec` describes."""
        source, gguf_file = cast(str, spec["source"]), cast("str | None", spec["gguf_file"])
        return cls(
            Path(os.path.normpath(base / cast(str, spec["root"]))),
            ModelSource(source, gguf_file, cast(str, spec["model"])),
            relation_of(cast("dict[str, object]", spec["relation"])),
            RelationConfig.from_dict(cast("dict[str, object]", spec["config"])),
            base,
        )


def measure_relations(out: Path, jobs: Sequence[RelationJob], pool: Pool | None = None) -> list[Measured]:
    """Measure every relation as a sweep in `out`; the same call goes on where it was stopped.

    Raises:
        SweepError: naming the relations that could not be measured, and why.
    """
    run_jobs(out, jobs, pool or Pool())
    return [job.result() for job in jobs]
