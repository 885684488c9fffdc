"""What became of the seeds of a pruning run, read from its files: which were asked for, which gave no subnetwork and why."""

from collections.abc import Sequence
from typing import Any, cast

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
