"""What ablations cost in domain against out of domain: each case, the means over the cases of a group, and their difference."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.analysis.effects import Ablation, CaseRows, UnitSet, control_summary, floor_limited
from hc_lens.statistics import bootstrap_means, percentile_interval

MEAN = MappingProxyType({"ID": "ID mean", "OOD": "OOD mean"})
DIFFERENCE = "OOD - ID"

Quantity = Literal["effect", "excess"]


class Place(NamedTuple):
    """Where something is measured, as a weight for each case: one case, the mean of a group's, or OOD minus ID."""

    name: str
    group: str
    weights: tuple[float, ...]

    @property
    def cases(self) -> list[int]:
        """Which cases count."""
        return [i for i, weight in enumerate(self.weights) if weight]


def places_of(cases: Sequence[CaseRows]) -> list[Place]:
    """Each case, then the mean over the cases of each group, then the difference of the two groups where there are two.

    Every case of a group weighs the same, however many rows it has. Plain data have no group: their case is the only place.
    """
    n = len(cases)
    found = [Place(case.name, case.group, tuple(float(i == j) for j in range(n))) for i, case in enumerate(cases)]
    means: dict[str, tuple[float, ...]] = {}
    for group, name in MEAN.items():
        if size := sum(case.group == group for case in cases):
            means[group] = tuple((case.group == group) / size for case in cases)
            found.append(Place(name, group, means[group]))
    if len(means) == len(MEAN):
        found.append(Place(DIFFERENCE, "", tuple(o - i for i, o in zip(means["ID"], means["OOD"], strict=True))))
    return found


def at(place: Place, values: Float[np.ndarray, "case *columns"]) -> Float[np.ndarray, "*columns"]:
    """The values at a place, from those of the cases."""
    return np.tensordot(np.asarray(place.weights), values, axes=1)


def case_draws(values: Sequence[Float[np.ndarray, "_ column"]], n: int, seed: int) -> Float[np.ndarray, "case draw column"]:
    """Bootstrap means of each case's rows; columns of a case share their samples, cases are resampled independently.

    Each case's draws are those that `bootstrap_means` gives it, in an order of its own.
    """
    orders = (np.random.default_rng([seed, i]).permutation(n) for i in range(len(values)))
    return np.stack([bootstrap_means(rows, n, seed)[order] for rows, order in zip(values, orders, strict=True)])


def by_domain(ablation: Ablation, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Effect of each set, and its excess over the sum of single effects, in domain, out of domain, and the difference.

    One row per (set, quantity, place, scale):

    | column                 | meaning                                                                     |
    |------------------------|-----------------------------------------------------------------------------|
    | `set`, `size`          | the group's name and how many units it has                                    |
    | `quantity`             | "effect" (full - ablated: positive is damage); of several units also "excess" |
    |                        | (the joint effect minus the sum of single ones)                               |
    | `case`, `case_group`   | a case, and "ID" or "OOD"; or the mean over a group's cases ("ID mean",       |
    |                        | "OOD mean"); or their difference, "OOD - ID", of no group                     |
    | `cases`                | how many cases that is                                                        |
    | `scale`                | "accuracy" (shares), "margin" (nats) or "metric"                              |
    | `value`, `low`, `high` | its mean, with a 95 % bootstrap interval: rows resampled within their case    |
    | `floor_limited`        | whether the floor of accuracy hides the value on any of the cases             |
    | `controls`             | number of layer-matched random sets                                           |
    | `control_mean`, `control_low`, `control_high`, `control_p` | their values at the same place (NaN without)  |

    `control_p` is one-sided: (1 + random sets with at least this value) / (1 + random sets).
    """
    wanted: list[tuple[str, Quantity]] = [
        (name, quantity)
        for name, units in ablation.groups.items()
        for quantity in (("effect", "excess") if len(units) > 1 else ("effect",))
    ]
    places = places_of(ablation.cases)
    rows: list[dict[str, object]] = []
    for scale in ablation.full:
        means = _Means(ablation, scale)
        draws = case_draws([_by_row(ablation, wanted, scale, case) for case in ablation.cases], n_bootstrap, seed)
        for place in places:
            drawn = at(place, draws)
            for i, (name, quantity) in enumerate(wanted):
                units = ablation.groups[name]
                value = float(at(place, means.of(quantity, units)))
                low, high = percentile_interval(drawn[:, i])
                controls = [float(at(place, means.of(quantity, other))) for other in ablation.controls.get(name, ())]
                rows.append(
                    {
                        "set": name,
                        "size": len(units),
                        "quantity": quantity,
                        "case": place.name,
                        "case_group": place.group,
                        "cases": len(place.cases),
                        "scale": scale,
                        "value": value,
                        "low": low,
                        "high": high,
                        "floor_limited": means.hidden(quantity, units, place),
                        **control_summary(value, controls),
                    }
                )
    table = pd.DataFrame(rows)
    order = {name: i for i, name in enumerate(ablation.groups)}
    return table.iloc[table["set"].map(order).argsort(kind="stable")].reset_index(drop=True)


def _by_row(
    ablation: Ablation, wanted: Sequence[tuple[str, Quantity]], scale: str, case: CaseRows
) -> Float[np.ndarray, "row column"]:
    rows: Mapping[Quantity, Callable[..., np.ndarray]] = {"effect": ablation.effect, "excess": ablation.excess}
    return np.stack([rows[quantity](ablation.groups[name], scale, case) for name, quantity in wanted], axis=1)


class _Means:
    """Mean effects over the rows of each case, of any set that was run."""

    def __init__(self, ablation: Ablation, scale: str) -> None:
        self._cases = ablation.cases
        self._bounded = scale == "accuracy"
        self._full = self._by_case(ablation.full[scale])
        self._effects = {units: self._full - self._by_case(values[scale]) for units, values in ablation.ablated.items()}

    def _by_case(self, values: Float[np.ndarray, " row"]) -> Float[np.ndarray, " case"]:
        return np.asarray([values[case.start : case.stop].mean(dtype=np.float64) for case in self._cases])

    def of(self, quantity: Quantity, units: UnitSet) -> Float[np.ndarray, " case"]:
        joint = self._effects[units]
        return joint if quantity == "effect" else joint - self._summed(units)

    def hidden(self, quantity: Quantity, units: UnitSet, place: Place) -> bool:
        """Whether, on some case of the place, accuracy has no room left to show the value."""
        joint = self._effects[units]
        expected = joint if quantity == "effect" else self._summed(units)
        return self._bounded and any(
            floor_limited(float(self._full[i]), float(joint[i]), float(expected[i]), self._cases[i].floor) for i in place.cases
        )

    def _summed(self, units: UnitSet) -> Float[np.ndarray, " case"]:
        return np.sum([self._effects[(unit,)] for unit in units], axis=0)
