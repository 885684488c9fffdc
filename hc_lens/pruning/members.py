"""Which subnetworks a result is of: runs, seeds and a digest of each, so that a result of others is noticed."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from safetensors import SafetensorError, safe_open

from hc_lens.runs import RunError

if TYPE_CHECKING:
    from hc_lens.pruning.pruned import Pruned
    from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True)
class Members:
    """The subnetworks of one pruning run: the digest of each, by seed."""

    run: Path
    digests: Mapping[int, str]

    @staticmethod
    def of(pruned: Pruned) -> Members:
        """The subnetworks at hand."""
        return Members(pruned.run.path, {cast(int, sub.seed): digest_of(sub) for sub in pruned.subnetworks})

    @staticmethod
    def held_by(run: Path) -> Members:
        """The subnetworks that a run holds now.

        Raises:
            RunError: if one is damaged.
        """
        files = run.glob("subnetworks/seed-*.safetensors")
        return Members(run, dict(sorted((int(file.stem.removeprefix("seed-")), digest_in(file)) for file in files)))

    def as_json(self, base: Path) -> dict[str, object]:
        """The members as JSON, their run relative to `base`."""
        return {"run": os.path.relpath(self.run, base), "seeds": {str(seed): text for seed, text in self.digests.items()}}

    @staticmethod
    def from_json(stored: Mapping[str, object], base: Path) -> Members:
        """The members that were described."""
        seeds = cast("dict[str, str]", stored["seeds"])
        run = Path(os.path.normpath(base / cast(str, stored["run"])))
        return Members(run, {int(seed): text for seed, text in seeds.items()})

    def same(self, other: Members) -> bool:
        """Whether these are the subnetworks of `other`, whatever their order."""
        return self.run.resolve() == other.run.resolve() and self.digests == other.digests


def digest_of(subnetwork: Subnetwork) -> str:
    """SHA-256 of what a subnetwork does: its mask and what stands in for what it lacks; not how it was trained."""
    return _digest(subnetwork.mask.numpy().tobytes(), subnetwork.means.digest)


def told(members: Sequence[Members], home: Path) -> str:
    """Seeds of runs, as text: `seeds 42..44`, of other runs than `home` with their names."""
    alone = len(members) == 1 and members[0].run.resolve() == home.resolve()
    return " and ".join(f"seeds {_ranges(sorted(each.digests))}{'' if alone else f' of {each.run}'}" for each in members)


def require_different_runs(pruned: Sequence[Pruned]) -> None:
    """Check that no subnetwork comes twice, by the same run or by a copy of it.

    Raises:
        ValueError: naming the run.
    """
    known: dict[tuple[object, ...], Path] = {}
    for each in pruned:
        place = each.run.path
        subnetworks = [(each.run.digest, sub.seed) for sub in each.subnetworks]
        if (place.resolve(),) in known:
            raise ValueError(f"{place} is given twice: give each run once")
        if twice := next((key for key in subnetworks if key in known), None):
            raise ValueError(f"{place} holds the subnetwork of seed {twice[1]} that {known[twice]} holds, too: give each once")
        known |= dict.fromkeys([(place.resolve(),), *subnetworks], place)


def _digest(mask: bytes, means: str) -> str:
    return hashlib.sha256(mask + means.encode()).hexdigest()


def digest_in(file: Path) -> str:
    """`digest_of` the subnetwork in a file, without loading it.

    Raises:
        RunError: if it does not hold one.
    """
    try:
        with safe_open(file, framework="np") as opened:
            return _digest(opened.get_tensor("mask").tobytes(), opened.metadata()["means"])
    except (OSError, SafetensorError, KeyError, TypeError) as error:
        raise RunError(f"{file} does not hold a subnetwork: {error}") from error


def _ranges(seeds: Sequence[int]) -> str:
    """Ascending seeds with ranges where they follow one another: `1..3, 7`."""
    parts: list[list[int]] = []
    for seed in seeds:
        if parts and parts[-1][-1] == seed - 1:
            parts[-1].append(seed)
        else:
            parts.append([seed])
    return ", ".join(f"{part[0]}..{part[-1]}" if len(part) > 2 else ", ".join(map(str, part)) for part in parts) or "none"
