"""The core that pruning runs share, kept in the first of them as `core.json` with the subnetworks that it is of."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, cast

from hc_lens import analysis
from hc_lens.pruning.members import Members, require_different_runs, told
from hc_lens.runs import Run, RunError
from hc_lens.units import Head, parse

if TYPE_CHECKING:
    from hc_lens.pruning.pruned import Pruned


@dataclass(frozen=True)
class CoreSummary:
    """The heads that at least `k` of `n` subnetworks keep, and how many would be shared by chance.

    `sparsities` are those of the `n` runs. `expected` is the number of heads shared by independent subnetworks; `null_low`,
    `null_high` are the 2.5 % and 97.5 % quantiles of the layer-stratified permutation null, and `p_value` is that null's.
    `chosen_for` is set where `k` was chosen from these subnetworks, as the largest that gives a core of so many heads.
    """

    heads: tuple[Head, ...]
    k: int
    n: int
    sparsities: tuple[float, ...]
    expected: float
    null_low: float
    null_high: float
    p_value: float
    chosen_for: int | None = None

    @staticmethod
    def of(
        core: analysis.Core, null: analysis.NullResult, sparsities: Sequence[float], chosen_for: int | None = None
    ) -> CoreSummary:
        """The summary of a core, its null, and the sparsities that its subnetworks were pruned to."""
        low, high = null.interval
        return CoreSummary(
            core.heads, core.k, core.n, tuple(sparsities), null.expected_size, low, high, null.p_value, chosen_for
        )

    @property
    def short(self) -> str:
        """The size of the core beside what chance gives."""
        return (
            f"{len(self.heads)} heads are kept by at least {self.k} of {self.n} subnetworks; independent subnetworks would "
            f"share {self.expected:.3g}, permuted ones {self.null_low:g} to {self.null_high:g} (p = {self.p_value:.2g})"
        )


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
        ValueError: for runs of different models, a run given twice, or `k` outside 1..n.
    """
    core = core_of(pruned, k)
    null = core.null(n=permutations, seed=seed)
    summary = CoreSummary.of(core, null, [p.config.sparsity for p in pruned], chosen_for)
    with pruned[0].run.locked("core", wait=True) as run:
        members = [Members.of(p).as_json(run.path) for p in pruned]
        run.write_json("core", asdict(summary) | {"heads": [str(head) for head in core.heads], "of": members})
    return summary


def core_of(pruned: Sequence[Pruned], k: int | None = None) -> analysis.Core:
    """The heads that at least `k` of all the runs' subnetworks keep (default: all), without a null; nothing is kept.

    Raises:
        ValueError: as `core_into`.
    """
    if len({p.means.model for p in pruned}) != 1:
        raise ValueError(f"the runs {[str(p.run.path) for p in pruned]} prune different models: they can share no core")
    require_different_runs(pruned)
    return analysis.heuristic_core([sub for p in pruned for sub in p.subnetworks], k)


def open_core(run: Run) -> CoreSummary:
    """The core kept in a run by `core_into`, if the runs that it is of hold the same subnetworks still.

    Raises:
        RunError: if there is none, or it is of others than the runs hold now.
    """
    summary, of = _read(run)
    gone = [each.run for each in of if not (each.run / "run.json").exists()]
    if gone:
        text = f"{run.path}/core.json is of {gone[0]}, too, which is not there: whether it has changed is unknown"
        warnings.warn(text, stacklevel=2)
    _require_same(run, of, [each if each.run in gone else Members.held_by(each.run) for each in of])
    if not of:
        _require_as_many(run, summary, len(Members.held_by(run.path).digests) if len(summary.sparsities) == 1 else summary.n)
    return summary


def open_core_of(pruned: Sequence[Pruned]) -> CoreSummary:
    """The core kept in the first of these runs, if it is of exactly these subnetworks.

    Raises:
        RunError: if there is none, or it is of others.
    """
    run = pruned[0].run
    summary, of = _read(run)
    if of:
        _require_same(run, of, [Members.of(p) for p in pruned])
    else:
        _require_as_many(run, summary, sum(len(p.subnetworks) for p in pruned))
    return summary


def _read(run: Run) -> tuple[CoreSummary, list[Members]]:
    """The kept core and what it is of, which earlier versions did not tell."""
    if not run.file("core", "json").exists():
        raise RunError(f"{run.path} has no core.json yet: find the core first (hc-lens core)")
    stored = cast("dict[str, list[str]]", run.read_json("core"))
    heads = tuple(cast(Head, parse(name)) for name in stored["heads"])
    rest = {name: value for name, value in stored.items() if name not in ("heads", "sparsities", "of")}
    summary = CoreSummary(heads=heads, sparsities=tuple(map(float, stored["sparsities"])), **cast("dict[str, Any]", rest))
    of = cast("list[dict[str, object]]", stored.get("of", []))
    return summary, [Members.from_json(each, run.path) for each in of]


def _require_same(run: Run, of: Sequence[Members], now: Sequence[Members]) -> None:
    if len(of) == len(now) and all(any(one.same(other) for other in now) for one in of):
        return
    then, held = told(of, run.path), told(now, run.path)
    others = f"and now there are {held}" if then != held else "and some of them are others now"
    raise RunError(f"{run.path}/core.json is of {then}, {others}: run hc-lens core again")


def _require_as_many(run: Run, summary: CoreSummary, n: int) -> None:
    """All that can be checked of a core which does not tell what it is of."""
    if summary.n != n:
        raise RunError(f"{run.path}/core.json is of {summary.n} subnetworks, not of {n}: run hc-lens core again")
    warnings.warn(
        f"{run.path}/core.json is of an earlier version, which did not tell the subnetworks: hc-lens core makes it anew",
        stacklevel=3,
    )
