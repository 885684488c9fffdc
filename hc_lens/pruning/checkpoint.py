"""Gates in training kept on disk, so that a killed pruning run goes on from there and ends with the same bits."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from jaxtyping import Float
from torch import Tensor

from hc_lens.atomic import RunError, canonical_json, read_metadata, read_tensors, write_tensors
from hc_lens.json_text import parse_json
from hc_lens.pruning.training import GateTraining

_CUT = "cut/"


@dataclass(frozen=True)
class GateCheckpoints:
    """Where the state of gates in training is kept, and how often.

    Attributes:
        directory: gets one file for each group of seeds trained together, written anew at every checkpoint.
        every: seconds between two checkpoints, rounded up to a multiple of 64 steps: what a kill loses at most.
    """

    directory: Path
    every: float = 30.0

    def __post_init__(self) -> None:
        if not self.every >= 0:
            raise ValueError(f"every: the seconds between two checkpoints must not be negative, got {self.every}")

    def groups(self) -> list[tuple[int, ...]]:
        """The groups of seeds in training, whoever trains them.

        Raises:
            RunError: for a damaged checkpoint.
        """
        found: list[tuple[int, ...]] = []
        for file in sorted(self.directory.glob("seed-*.safetensors")):
            try:
                found.append(_seeds(file))
            except RunError:
                if file.exists():  # else another process has just finished its group
                    raise
        return found

    def discard(self, seeds: Sequence[int]) -> None:
        """Remove the checkpoint of a group whose subnetworks are kept."""
        self.file(seeds).unlink(missing_ok=True)

    def file(self, seeds: Sequence[int]) -> Path:
        """The checkpoint of a group: a seed is in one group at a time, so the first one names it."""
        return self.directory / f"seed-{seeds[0]}.safetensors"


@dataclass(frozen=True)
class GateCheckpoint:
    """The checkpoint of one group of seeds, for one recipe: configuration, means, data."""

    file: Path
    every: float
    seeds: tuple[int, ...]
    recipe: str

    @staticmethod
    def of(training: GateTraining, kept: GateCheckpoints, seeds: Sequence[int]) -> "GateCheckpoint":
        """The checkpoint of gates that are about to be trained."""
        told = [training.config.as_dict(), training.means.digest, training.encoded.fingerprint, list(seeds)]
        recipe = hashlib.sha256(canonical_json(told).encode()).hexdigest()
        return GateCheckpoint(kept.file(seeds), kept.every, tuple(seeds), recipe)

    def save(self, training: GateTraining, cuts: Sequence[Float[Tensor, "run layer unit"]]) -> None:
        """Keep the state of the gates, and those cut so far."""
        tensors = training.state() | {f"{_CUT}{i:04d}": gates for i, gates in enumerate(cuts)}
        metadata = {"recipe": self.recipe, "seeds": json.dumps(self.seeds), "step": str(training.taken)}
        write_tensors(self.file, tensors, metadata)

    def resume(self, training: GateTraining) -> list[Float[Tensor, "run layer unit"]]:
        """Take up the kept state, if there is one of this recipe; returns the gates cut before it.

        Raises:
            RunError: if the file is damaged.
        """
        if not self.file.exists() or read_metadata(self.file).get("recipe") != self.recipe:
            return []
        tensors = read_tensors(self.file)
        cuts = [tensors.pop(name).to(training.device) for name in sorted(tensors) if name.startswith(_CUT)]
        training.restore(tensors, int(read_metadata(self.file)["step"]))
        return cuts


def _seeds(file: Path) -> tuple[int, ...]:
    return tuple(cast("list[int]", parse_json(read_metadata(file)["seeds"])))
