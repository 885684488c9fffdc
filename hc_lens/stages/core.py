"""The core that pruning runs share, kept in the first of them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, cast

from hc_lens.analysis import Core, heuristic_core
from hc_lens.report import CoreSummary
from hc_lens.runs import Run, RunError
from hc_lens.stages.pruned import Pruned
from hc_lens.units import Head, parse


def core_into(
    pruned: Sequence[Pruned],
    k: int | None = None,
    permutations: int = 10_000,
    *,
    seed: int = 0,
    chosen_for: int | None = None,
) -> CoreSummary:
    """The heads that at least `k` of all the runs' subnetworks keep, against chance; kept as `core.json` in the first run.

    `seed` draws the permutations. `chosen_for` says that `k` was chosen to give a core of at least so many heads.

    Raises:
        ValueError: for runs of different models, or `k` outside 1..n.
    """
    core = core_of(pruned, k)
    null = core.null(n=permutations, seed=seed)
    summary = CoreSummary.of(core, null, [p.config.sparsity for p in pruned], chosen_for)
    pruned[0].run.write_json("core", asdict(summary) | {"heads": [str(head) for head in core.heads]})
    return summary


def core_of(pruned: Sequence[Pruned], k: int | None = None) -> Core:
    """The heads that at least `k` of all the runs' subnetworks keep (default: all), without a null; nothing is kept.

    Raises:
        ValueError: as `core_into`.
    """
    if len({p.means.model for p in pruned}) != 1:
        raise ValueError(f"the runs {[str(p.run.path) for p in pruned]} prune different models: they can share no core")
    return heuristic_core([sub for p in pruned for sub in p.subnetworks], k)


def open_core(run: Run) -> CoreSummary:
    """The core kept in a run by `core_into`.

    Raises:
        RunError: if there is none.
    """
    if not run.file("core", "json").exists():
        raise RunError(f"{run.path} has no core.json yet: find the core first (hc-lens core)")
    stored = cast("dict[str, list[str]]", run.read_json("core"))
    heads = tuple(cast(Head, parse(name)) for name in stored["heads"])
    rest = {name: value for name, value in stored.items() if name not in ("heads", "sparsities")}
    return CoreSummary(heads=heads, sparsities=tuple(map(float, stored["sparsities"])), **cast("dict[str, Any]", rest))
