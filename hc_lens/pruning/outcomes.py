"""What became of the seeds of a pruning run, read from its files: which were asked for, which gave no subnetwork and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hc_lens.atomic import RunError

if TYPE_CHECKING:
    from hc_lens.runs import Run


def asked_seeds(run: Run) -> list[int]:
    """The seeds that a pruning run was asked for so far, ascending."""
    return cast("list[int]", run.read_json("seeds")) if run.file("seeds", "json").exists() else []


def record_outcome(run: Run, seed: int, device: str, collapsed: str | None) -> None:
    """Keep what trained a seed and, if its gates collapsed, why there is no subnetwork: then it is done, too."""
    outcome = {"device": device} | ({} if collapsed is None else {"collapsed": collapsed})
    run.write_json(f"outcome/seed-{seed}", outcome)


def collapse_of(run: Run, seed: int) -> str | None:
    """Why a seed's gates gave no subnetwork; None if they did, or are not trained yet.

    Raises:
        RunError: if its outcome is damaged.
    """
    return _outcome(run, seed).get("collapsed")


def device_of_seed(run: Run, seed: int) -> str | None:
    """What trained a seed, where that is recorded.

    Raises:
        RunError: if its outcome is damaged.
    """
    return _outcome(run, seed).get("device")


def collapsed_seeds(run: Run, seeds: Sequence[int] | None = None) -> dict[int, str]:
    """Of these seeds, by default all that the run was asked for, those that collapsed, each with its reason.

    Raises:
        RunError: if an outcome is damaged.
    """
    found = {seed: collapse_of(run, seed) for seed in (asked_seeds(run) if seeds is None else seeds)}
    return {seed: reason for seed, reason in found.items() if reason is not None}


def targets_of(run: Run) -> tuple[float, ...]:
    """The sparsities that a pruning run was asked for: one, or those along a rising target."""
    if run.kind == "prune-path":
        return tuple(cast("list[float]", run.spec["grid"]))
    return (cast("dict[str, float]", run.spec["config"])["sparsity"],)


def subnetwork_files(run: Run, seed: int) -> list[Path]:
    """Where a seed's subnetworks are, one for each of `targets_of`."""
    names = [f"seed-{seed}.at-{target:g}" for target in targets_of(run)] if run.kind == "prune-path" else [f"seed-{seed}"]
    return [run.file(f"subnetworks/{name}", "safetensors") for name in names]


def kept_outcome(run: Run, seeds: Sequence[int] | None = None) -> str:
    """That seeds which collapsed stay as they ended, and how to train one of them again; empty if none did.

    Raises:
        RunError: if an outcome is damaged.
    """
    files = [str(run.file(f"outcome/seed-{seed}", "json")) for seed in collapsed_seeds(run, seeds)]
    if not files:
        return ""
    return f"a collapsed seed stays as it ended: delete {files[0]} to train it again, or prune elsewhere with other options"


def _outcome(run: Run, seed: int) -> dict[str, Any]:
    name = f"outcome/seed-{seed}"
    return cast("dict[str, Any]", run.read_json(name)) if run.file(name, "json").exists() else {}


def ask(run: Run, seeds: Sequence[int]) -> None:
    """Add seeds to those that a run was asked for.

    Raises:
        ValueError: without seeds, or for one given twice.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds: needs at least one, all different, got {list(seeds)}")
    with run.locked("seeds", wait=True):
        before = asked_seeds(run)
        if set(seeds) - set(before):
            run.unfinish()
            run.write_json("seeds", sorted({*before, *seeds}))


def require_done(run: Run, done: Callable[[int], bool], seeds: Sequence[int] | None = None) -> Sequence[int]:
    """These seeds of a run, by default all that it was asked for, which have been trained.

    Raises:
        RunError: naming those that have not, or that the run was never asked for.
    """
    asked = asked_seeds(run)
    seeds = asked if seeds is None else seeds
    if unknown := [seed for seed in seeds if seed not in asked and not done(seed)]:
        raise RunError(f"{run.path} has no seed {unknown[0]}: it has {', '.join(map(str, asked)) or 'none'}")
    if missing := [seed for seed in seeds if not done(seed)]:
        raise RunError(
            f"{run.path} holds a pruning run that has not finished, seeds {missing} are missing: "
            "start it again, it goes on where it stopped"
        )
    return seeds
