"""What ablating sets of units costs, row by row, and whether a set costs more than its units one by one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int

from hc_lens.statistics import bootstrap_means, monte_carlo_p, percentile_interval
from hc_lens.units import Head, Unit

UnitSet = tuple[Unit, ...]
"""Units ablated together: sorted, each once."""

FLOOR_MARGIN = 0.05
"""A joint accuracy this close to its floor counts as at the floor."""


class CaseRows(NamedTuple):
    """Where a case's rows are, its group ("ID", "OOD", or "" for plain data), and the accuracy of its worst constant answer."""

    name: str
    group: str
    start: int
    stop: int
    floor: float


@dataclass(frozen=True, eq=False)
class Ablation:
    """Every row's value with the full model and with each set of units ablated.

    Effects are full minus ablated: positive is damage. Every interval resamples the rows of a case, the full and the ablated
    values of a row together (paired), and all sets see the same resamples.

    Attributes:
        groups: the sets asked for, by name.
        controls: for a group's name, the random sets it is compared with.
        cases: the rows of each case.
        full: per scale, the full model's values. Scales: "accuracy" (1 if right) and "margin" (log-odds of the right answer),
            or "metric" for a metric of one's own.
        ablated: the same for each set that was run: the groups, the controls, and all their single units.
        rows: the place of each row in the data, in its case's for a task; None where an earlier version kept the ablation.
    """

    groups: Mapping[str, UnitSet]
    controls: Mapping[str, Sequence[UnitSet]]
    cases: tuple[CaseRows, ...]
    full: Mapping[str, Float[np.ndarray, " row"]] = field(repr=False)
    ablated: Mapping[UnitSet, Mapping[str, Float[np.ndarray, " row"]]] = field(repr=False)
    rows: Int[np.ndarray, " row"] | None = field(default=None, repr=False)

    def table(self, core: Collection[Head] | None = None, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
        """The effect of each group: one row per (group, case, scale).

        | column            | meaning                                                                     |
        |-------------------|-----------------------------------------------------------------------------|
        | `group`, `size`   | what was ablated, and how many units that is (1 for the mean of others)       |
        | `case`, `case_group` | the case, and "ID" or "OOD"                                              |
        | `scale`, `n`      | "accuracy" (shares: 0.1 is ten points), "margin" (nats) or "metric"; rows      |
        | `full`, `ablated` | means over rows                                                              |
        | `effect`, `low`, `high` | full - ablated (positive: damage), with its paired 95 % bootstrap interval |

        With `core`, a last group averages the effects of all single heads asked for that are not in the core: the control row
        of the paper's Table 3.

        Raises:
            ValueError: if `core` leaves no other single head.
        """
        names = list(self.groups)
        sets: list[tuple[UnitSet, ...]] = [(units,) for units in self.groups.values()]
        sizes = [len(units) for units in self.groups.values()]
        if core is not None:
            others = self._others(core)
            names.append(f"mean of {len(others)} other heads")
            sets.append(others)
            sizes.append(1)
        rows: list[dict[str, object]] = []
        for case in self.cases:
            ablated = {scale: np.stack([self._mean(group, scale, case) for group in sets], axis=1) for scale in self.full}
            full = {scale: values[case.start : case.stop, None] for scale, values in self.full.items()}
            intervals = _intervals({scale: full[scale] - ablated[scale] for scale in self.full}, n_bootstrap, seed)
            for scale in self.full:
                before, after = float(full[scale].mean()), ablated[scale].mean(0)
                for i, (name, size) in enumerate(zip(names, sizes, strict=True)):
                    measured = (before, float(after[i]), before - float(after[i]), *intervals[scale][i])
                    where = (name, size, case.name, case.group, scale, case.stop - case.start)
                    rows.append(dict(zip(_EFFECT, (*where, *measured), strict=True)))
        return _in_order(rows, _EFFECT, "group", names)

    def super_additivity(self, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
        """Joint effect minus the sum of single effects, for each group of more than one unit: one row per (set, case, scale).

        | column               | meaning                                                                       |
        |----------------------|-------------------------------------------------------------------------------|
        | `set`, `size`        | the group's name and how many units it has                                      |
        | `case`, `case_group`, `scale`, `n` | as in `table`                                                    |
        | `full`               | the full model's mean                                                           |
        | `joint`, `summed`    | effect of ablating all units together; sum of the effects of each alone          |
        | `excess`, `low`, `high` | joint - summed (positive: super-additive), with its paired 95 % bootstrap interval |
        | `floor`, `floor_limited` | accuracy of the worst constant answer; whether the floor hides the answer      |
        | `controls`           | number of random sets                                                           |
        | `control_mean`, `control_low`, `control_high` | mean and central 95 % of the excess of random sets; NaN without |
        | `control_p`          | (1 + random sets with at least this excess) / (1 + random sets); NaN without      |

        On the accuracy scale, unlike on the margin's, there is a floor: a summed effect can exceed what there is to lose, a
        joint effect cannot. A row is floor-limited if full - summed is below the floor or the joint accuracy within
        `FLOOR_MARGIN` of it.
        """
        names = [name for name, units in self.groups.items() if len(units) > 1]
        rows: list[dict[str, object]] = []
        for case in self.cases if names else ():
            excess = {s: np.stack([self.excess(self.groups[name], s, case) for name in names], axis=1) for s in self.full}
            intervals = _intervals(excess, n_bootstrap, seed)
            for scale in self.full:
                for i, name in enumerate(names):
                    rows.append(
                        self._additivity(name, scale, case) | {"low": intervals[scale][i][0], "high": intervals[scale][i][1]}
                    )
        return _in_order(rows, _ADDITIVITY, "set", names)

    def _others(self, core: Collection[Head]) -> tuple[UnitSet, ...]:
        singles = [units for units in self.groups.values() if len(units) == 1 and isinstance(units[0], Head)]
        others = tuple(units for units in singles if units[0] not in core)
        if not others:
            raise ValueError(
                f"no head outside the core was ablated alone ({len(singles)} single heads were): add single heads to the "
                "groups, all of them with single_heads(means)"
            )
        return others

    def _mean(self, sets: Sequence[UnitSet], scale: str, case: CaseRows) -> Float[np.ndarray, " row"]:
        return np.mean([self.ablated[units][scale][case.start : case.stop] for units in sets], axis=0)

    def effect(self, units: UnitSet, scale: str, case: CaseRows) -> Float[np.ndarray, " row"]:
        """Full minus ablated on every row of a case."""
        rows = slice(case.start, case.stop)
        return self.full[scale][rows].astype(np.float64) - self.ablated[units][scale][rows]

    def excess(self, units: UnitSet, scale: str, case: CaseRows) -> Float[np.ndarray, " row"]:
        """Joint effect minus the sum of single effects on every row of a case."""
        return self.effect(units, scale, case) - sum(self.effect((unit,), scale, case) for unit in units)

    def _joint_and_summed(self, units: UnitSet, scale: str, case: CaseRows) -> dict[str, float]:
        joint = float(self.effect(units, scale, case).mean())
        summed = sum(float(self.effect((unit,), scale, case).mean()) for unit in units)
        return {"joint": joint, "summed": summed, "excess": joint - summed}

    def _additivity(self, name: str, scale: str, case: CaseRows) -> dict[str, object]:
        full = float(self.full[scale][case.start : case.stop].mean())
        measured = self._joint_and_summed(self.groups[name], scale, case)
        bounded = scale == "accuracy"
        return {
            "set": name,
            "size": len(self.groups[name]),
            "case": case.name,
            "case_group": case.group,
            "scale": scale,
            "n": case.stop - case.start,
            "full": full,
            **measured,
            "floor": case.floor if bounded else float("nan"),
            "floor_limited": bounded and floor_limited(full, measured["joint"], measured["summed"], case.floor),
            **control_summary(
                measured["excess"],
                [self._joint_and_summed(units, scale, case)["excess"] for units in self.controls.get(name, ())],
            ),
        }


def same_rows(one: Ablation, other: Ablation) -> bool:
    """Whether cases and rows are the same, as far as the rows are known; floors, NaN for plain data, follow from them."""
    if [case[:4] for case in one.cases] != [case[:4] for case in other.cases]:
        return False
    return one.rows is None or other.rows is None or bool(np.array_equal(one.rows, other.rows))


_EFFECT = ("group", "size", "case", "case_group", "scale", "n", "full", "ablated", "effect", "low", "high")
_ADDITIVITY = (
    *("set", "size", "case", "case_group", "scale", "n", "full", "joint", "summed", "excess", "low", "high"),
    *("floor", "floor_limited", "controls", "control_mean", "control_low", "control_high", "control_p"),
)


def name_of(units: UnitSet) -> str:
    """`L2.H5 + L3.H7`."""
    return " + ".join(map(str, units))


def super_additive(full: float, joint: float, singles: Sequence[float]) -> float:
    """Joint effect minus summed single effects, from accuracies: of the full model, all units ablated, and each ablated alone.

    The arithmetic of the paper's Table 3: (full - joint) - sum of (full - single); positive is super-additive.
    """
    return (full - joint) - sum(full - single for single in singles)


def floor_limited(full: float, joint: float, summed: float, floor: float = 0.0) -> bool:
    """Whether accuracy could not show super-additivity; `joint` and `summed` are effects, `full` the accuracy they lower."""
    return full - summed < floor or full - joint <= floor + FLOOR_MARGIN


def control_summary(value: float, controls: Sequence[float]) -> dict[str, float | int]:
    """How many random sets there are, the mean and central 95 % of their values, and the one-sided p of `value` among them."""
    if not controls:
        nan = float("nan")
        return {"controls": 0, "control_mean": nan, "control_low": nan, "control_high": nan, "control_p": nan}
    drawn = np.asarray(controls, dtype=np.float64)
    low, high = percentile_interval(drawn)
    return {
        "controls": len(drawn),
        "control_mean": float(drawn.mean()),
        "control_low": low,
        "control_high": high,
        "control_p": monte_carlo_p(drawn, value),
    }


def _intervals(values: Mapping[str, Float[np.ndarray, "row group"]], n: int, seed: int) -> dict[str, list[tuple[float, float]]]:
    """Bootstrap intervals of the column means of each scale; all columns of all scales share their resamples."""
    draws = bootstrap_means(np.concatenate([v.astype(np.float64) for v in values.values()], axis=1), n, seed)
    split = np.split(draws, np.cumsum([v.shape[1] for v in values.values()])[:-1], axis=1)
    return {scale: [percentile_interval(column) for column in part.T] for scale, part in zip(values, split, strict=True)}


def _in_order(rows: Sequence[Mapping[str, object]], columns: Sequence[str], key: str, names: Sequence[str]) -> pd.DataFrame:
    """Rows group by group, in the order asked for; cases and scales within."""
    table = pd.DataFrame([dict(row) for row in rows], columns=list(columns))
    order = table[key].map({name: i for i, name in enumerate(names)}).argsort(kind="stable")
    return table.iloc[order].reset_index(drop=True)
