"""Sets of heads that cost most together: grown greedily on one half of the rows, measured on the other."""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from jaxtyping import Int

from hc_lens.analysis.ablation import Reference, ablate
from hc_lens.analysis.domains import by_domain
from hc_lens.analysis.effects import Ablation, CaseRows
from hc_lens.data.task import Task
from hc_lens.hooks import HookedModel
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.units import Head


@dataclass(frozen=True)
class GreedyConfig:
    """How a set of heads is grown.

    Attributes:
        size: heads of the last set.
        scale: what the heads are to lower most.
        group: on the mean over whose cases.
        controls: random sets that each set is compared with, as in `ablate`.
    """

    size: int
    scale: Literal["margin", "accuracy"] = "margin"
    group: Literal["ID", "OOD"] = "OOD"
    controls: int = 0


@dataclass(frozen=True, eq=False)
class GreedyPath:
    """Heads in the order in which they were added, and every set on the way, on two halves of the rows of each case.

    Attributes:
        heads: the first is the head with the largest effect alone, each next one adds most to those before it.
        scale: what its effect was read on: "margin" or "accuracy".
        group: the mean over whose cases decided: "ID" or "OOD".
        ablation: the sets of the path as groups, on all rows, and every other set that was run on the way.
        seed: of the halves.
    """

    heads: tuple[Head, ...]
    scale: str
    group: str
    ablation: Ablation = field(repr=False)
    seed: int

    @property
    def chosen_on(self) -> Ablation:
        """On the rows that chose: effects on them are too large, since the largest of many was taken."""
        return halves(self.ablation, self.seed)[0]

    @property
    def held_out(self) -> Ablation:
        """On the other half, which chose nothing."""
        return halves(self.ablation, self.seed)[1]

    def table(self, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
        """The path: one row per (size, place, scale), measured on the held-out rows.

        | column                    | meaning                                                              |
        |---------------------------|----------------------------------------------------------------------|
        | `size`, `added`, `set`    | heads in the set, the one added last, and the set's name             |
        | `case`, `case_group`, `scale` | the place and scale, as in `by_domain`                           |
        | `joint`, `joint_low`, `joint_high` | effect of ablating the set, with its 95 % interval          |
        | `chosen`                  | the joint effect on the rows that chose the heads                    |
        | `summed`                  | sum of the effects of its heads alone                                |
        | `excess`, `low`, `high`   | joint - summed, with its 95 % interval (0 for one head)              |
        | `floor_limited`           | whether the floor of accuracy hides the excess                       |
        | `controls`                | number of layer-matched random sets of this size                     |
        | `control_mean`, `control_low`, `control_high`, `control_p` | their joint effects (NaN without)    |
        """
        found = _wide(by_domain(self.held_out, n_bootstrap, seed))
        chosen = by_domain(self.chosen_on, 1)
        chosen = chosen[chosen["quantity"] == "effect"][["set", "case", "scale", "value"]].rename(columns={"value": "chosen"})
        found = found.merge(chosen, on=["set", "case", "scale"], validate="one_to_one")
        return found.assign(added=[str(self.heads[size - 1]) for size in found["size"]])[list(_COLUMNS)]


_COLUMNS = (
    *("size", "added", "set", "case", "case_group", "scale", "joint", "joint_low", "joint_high", "chosen", "summed"),
    *("excess", "low", "high", "floor_limited", "controls", "control_mean", "control_low", "control_high", "control_p"),
)


def greedy_sets(
    model: HookedModel,
    task: Task,
    means: Reference,
    candidates: Collection[Head],
    config: GreedyConfig,
    sample: Sample = ALL_ROWS,
    *,
    known: Ablation | None = None,
) -> GreedyPath:
    """Grow a set of heads one at a time, each time by the candidate whose ablation, with those before, costs the group most.

    The heads are chosen on a random half of each case's rows (the sample's seed draws it) and reported on the other half, so
    that what is reported is not large just for having been the largest of many. Ties go to the earlier head. Sets that `known`
    holds are not run again.

    Raises:
        ValueError: for a size outside 1..candidates, a group without cases, a case with fewer than two rows, or as `ablate`.
    """
    heads = sorted(set(candidates))
    size, seed = config.size, sample.seed
    if not 1 <= size <= len(heads):
        raise ValueError(f"a greedy set has 1..{len(heads)} of the {len(heads)} candidates, got size {size}")

    def run(groups: Sequence[tuple[Head, ...]], known: Ablation | None, controls: int = 0) -> Ablation:
        return ablate(model, task, means, groups, sample, controls=controls, known=known)

    chosen: tuple[Head, ...] = ()
    for _ in range(size):
        grown = {head: tuple(sorted((*chosen, head))) for head in heads if head not in chosen}
        known = run(list(grown.values()), known)
        costs = _costs(halves(known, seed)[0], grown, config.scale, config.group)
        chosen = (*chosen, max(grown, key=costs.__getitem__))
    path = [tuple(sorted(chosen[:n])) for n in range(1, size + 1)]
    return GreedyPath(chosen, config.scale, config.group, run(path, known, config.controls), seed)


def halves(ablation: Ablation, seed: int = 0) -> tuple[Ablation, Ablation]:
    """An ablation on a random half of each case's rows, and on the others.

    Raises:
        ValueError: for a case with fewer than two rows.
    """
    parts: list[list[Int[np.ndarray, " row"]]] = [[], []]
    for i, case in enumerate(ablation.cases):
        if (n := case.stop - case.start) < 2:
            raise ValueError(f"case {case.name!r} has {n} row: to choose heads on one half and report on the other takes two")
        shuffled = case.start + np.random.default_rng([seed, i]).permutation(n)
        for part, rows in zip(parts, (shuffled[: n // 2], shuffled[n // 2 :]), strict=True):
            part.append(np.sort(rows))
    first, second = (_rows_of(ablation, part) for part in parts)
    return first, second


def _rows_of(ablation: Ablation, rows: Sequence[Int[np.ndarray, "_"]]) -> Ablation:
    """The ablation on these rows of each case."""
    stops = np.cumsum([len(part) for part in rows]).tolist()
    bounds = zip(ablation.cases, [0, *stops[:-1]], stops, strict=True)
    chosen = np.concatenate(rows)

    def taken(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        return {scale: all_rows[chosen] for scale, all_rows in values.items()}

    return dataclasses.replace(
        ablation,
        cases=tuple(CaseRows(case.name, case.group, start, stop, case.floor) for case, start, stop in bounds),
        full=taken(ablation.full),
        ablated={units: taken(values) for units, values in ablation.ablated.items()},
        rows=None if ablation.rows is None else ablation.rows[chosen],
    )


def _costs(ablation: Ablation, grown: Mapping[Head, tuple[Head, ...]], scale: str, group: str) -> dict[Head, float]:
    """Mean effect over the group's cases of adding each head."""
    cases = [case for case in ablation.cases if case.group == group]
    if not cases:
        raise ValueError(f"no {group} case to choose heads by; the cases are {[case.name for case in ablation.cases]}")
    return {
        head: float(np.mean([ablation.effect(units, scale, case).mean() for case in cases])) for head, units in grown.items()
    }


def _wide(found: pd.DataFrame) -> pd.DataFrame:
    """One row per set, place and scale: the joint effect and its controls, beside the excess and its interval."""
    key = ["set", "case", "scale"]
    effect = found[found["quantity"] == "effect"].rename(columns={"value": "joint", "low": "joint_low", "high": "joint_high"})
    excess = found[found["quantity"] == "excess"].rename(columns={"value": "excess"})
    wide = effect.drop(columns=["floor_limited"]).merge(
        excess[[*key, "excess", "low", "high", "floor_limited"]], on=key, how="left", validate="one_to_one"
    )
    # One head alone has nothing to be added to.
    filled = wide.assign(**{column: wide[column].fillna(0.0) for column in ("excess", "low", "high")})
    filled["floor_limited"] = [bool(limited) if pd.notna(limited) else False for limited in wide["floor_limited"]]
    return filled.assign(summed=filled["joint"] - filled["excess"])
