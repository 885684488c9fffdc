"""Removing heads from subnetworks against ablating them from the full model: does the full model need them more?"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from hc_lens.analysis.domains import Place, at, case_draws, places_of
from hc_lens.analysis.effects import CaseRows, floor_limited
from hc_lens.analysis.interaction import alone_and_together
from hc_lens.analysis.measure import Measure, on_task
from hc_lens.data.task import Task
from hc_lens.forward import inference
from hc_lens.hooks import Edit, HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.metrics import read_rows, read_rows_of_each
from hc_lens.progress import progress
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.statistics import percentile_interval
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head

_COLUMNS = (
    *("head", "case", "case_group", "scale", "n", "subnetworks", "full_effect", "full_low", "full_high"),
    *("within", "within_low", "within_high", "within_min", "within_max", "difference", "low", "high", "floor_limited"),
)


def in_subnetworks(
    model: HookedModel,
    task: Task,
    subnetworks: Sequence[Subnetwork],
    heads: Collection[Head],
    sample: Sample = ALL_ROWS,
    *,
    n_bootstrap: int = 2_000,
) -> pd.DataFrame:
    """What ablating heads from the full model costs, against removing them from each subnetwork that keeps them.

    Each head alone, and all of them together where there are several. In the full model other heads could make up for a core
    head, or break with it; a subnetwork has lost most of them. One row per (head, place, scale):

    | column                        | meaning                                                              |
    |-------------------------------|----------------------------------------------------------------------|
    | `head`                        | the head, or "all together"                                          |
    | `case`, `case_group`, `scale` | the place and scale, as in `by_domain`                               |
    | `n`, `subnetworks`            | rows of the place's cases, and subnetworks that keep the head         |
    | `full_effect`, `full_low`, `full_high` | full model minus the full model without the head            |
    | `within`, `within_low`, `within_high` | subnetwork minus the subnetwork without it, mean over subnetworks |
    | `within_min`, `within_max`    | the least and largest of any subnetwork                              |
    | `difference`, `low`, `high`   | full_effect - within: positive if the full model loses more           |
    | `floor_limited`               | whether accuracy has no room left on any case, full or pruned         |

    Intervals (95 %) resample rows within their case, the same for all models, and `within` also the subnetworks. A head that no
    subnetwork keeps has NaN there.

    Raises:
        ValueError: for no subnetworks or no heads, subnetworks with different means, or as `ablate`.
        LabelOrderError: if the model's labels do not fit the task.
        MeansError: for subnetworks of another model.
    """
    sets = alone_and_together(heads)
    means = _means_of(subnetworks, model)
    measure = on_task(model, task, sample)
    edits = [means.edits(units) for units in sets.values()]
    passes = len(measure.batches) * (1 + len(subnetworks))
    with inference(model, sample.precision, narrow=True), progress("removing heads", passes) as advance:
        measure.check(read_rows(model, measure.batches, measure.read))
        full = _with_and_without(model, measure, [], edits, advance)
        within = [_with_and_without(model, measure, sub.edits(), edits, advance) for sub in subnetworks]
    keeps = np.asarray([[sub.heads.issuperset(units) for sub in subnetworks] for units in sets.values()])
    rows = [
        row
        for scale in full.before
        for row in _compared(list(sets), measure.cases, scale, _stacked(scale, full, within), keeps, n_bootstrap, sample.seed)
    ]
    order = {name: i for i, name in enumerate(sets)}
    table = pd.DataFrame(rows, columns=list(_COLUMNS))
    return table.iloc[table["head"].map(order).argsort(kind="stable")].reset_index(drop=True)


class _Values(NamedTuple):
    """Every row's value per scale, of a model as it is and without each of the head sets."""

    before: Mapping[str, Float[np.ndarray, " row"]]
    after: list[Mapping[str, Float[np.ndarray, " row"]]]


def _with_and_without(
    model: HookedModel, measure: Measure, base: Sequence[Edit], edit_sets: Sequence[Sequence[Edit]], advance: Callable[[], None]
) -> _Values:
    before, *after = read_rows_of_each(model, measure.batches, measure.read, [[], *edit_sets], advance, base)
    return _Values(measure.values(before), [measure.values(read) for read in after])


def _stacked(scale: str, full: _Values, within: Sequence[_Values]) -> Float[np.ndarray, "model without row"]:
    """Values of the full model and of each subnetwork, as they are and without each of the head sets."""
    models = [[values.before[scale], *(after[scale] for after in values.after)] for values in (full, *within)]
    return np.asarray(models, dtype=np.float64)


def _compared(
    names: Sequence[str],
    cases: Sequence[CaseRows],
    scale: str,
    values: Float[np.ndarray, "model without row"],
    keeps: Bool[np.ndarray, "group run"],
    n_bootstrap: int,
    seed: int,
) -> list[dict[str, object]]:
    effects = (values[:, :1] - values[:, 1:]).transpose(2, 1, 0)  # row group model
    by_case = [effects[case.start : case.stop] for case in cases]
    draws = case_draws([rows.reshape(len(rows), -1) for rows in by_case], n_bootstrap, seed)
    draws = draws.reshape(*draws.shape[:2], *effects.shape[1:])
    means = np.stack([rows.mean(0) for rows in by_case])
    accuracies = np.stack([values[:, :, case.start : case.stop].mean(-1) for case in cases])
    found: list[dict[str, object]] = []
    for place in places_of(cases):
        point, drawn = at(place, means), at(place, draws)
        for i, name in enumerate(names):
            kept = np.flatnonzero(keeps[i])
            where: dict[str, object] = {
                "head": name,
                "case": place.name,
                "case_group": place.group,
                "scale": scale,
                "subnetworks": len(kept),
            }
            n = sum(cases[c].stop - cases[c].start for c in place.cases)
            limited = scale == "accuracy" and _at_floor(accuracies, cases, place, i, kept)
            rest = {"n": n, "floor_limited": limited}
            found.append(where | rest | _estimates(point[i], drawn[:, i], kept, seed))
    return found


def _estimates(
    point: Float[np.ndarray, " model"], draws: Float[np.ndarray, "draw model"], kept: Int[np.ndarray, " run"], seed: int
) -> dict[str, float]:
    """Effect in the full model (the first), mean effect in the subnetworks that keep the head, and their difference."""
    full = {"full_effect": float(point[0])} | dict(
        zip(("full_low", "full_high"), percentile_interval(draws[:, 0]), strict=True)
    )
    if not len(kept):
        rest = ("within", "within_low", "within_high", "within_min", "within_max", "difference", "low", "high")
        return full | dict.fromkeys(rest, float("nan"))
    # The same subnetworks are drawn at every place, so that a difference of places is one of the same subnetworks.
    runs = np.random.default_rng(seed).multinomial(len(kept), np.full(len(kept), 1 / len(kept)), size=len(draws)) / len(kept)
    within, drawn = point[1 + kept], (draws[:, 1 + kept] * runs).sum(1)
    within_low, within_high = percentile_interval(drawn)
    low, high = percentile_interval(draws[:, 0] - drawn)
    return full | {
        "within": float(within.mean()),
        "within_low": within_low,
        "within_high": within_high,
        "within_min": float(within.min()),
        "within_max": float(within.max()),
        "difference": float(point[0] - within.mean()),
        "low": low,
        "high": high,
    }


def _at_floor(
    accuracies: Float[np.ndarray, "case model without"],
    cases: Sequence[CaseRows],
    place: Place,
    group: int,
    kept: Int[np.ndarray, " run"],
) -> bool:
    """Whether the full model, or the subnetworks in the mean, are at the floor without the heads, on any case of the place."""
    for c in place.cases:
        for models in ([0], 1 + kept) if len(kept) else ([0],):
            before, after = accuracies[c, models, 0].mean(), accuracies[c, models, 1 + group].mean()
            if floor_limited(float(before), float(before - after), float(before - after), cases[c].floor):
                return True
    return False


def _means_of(subnetworks: Sequence[Subnetwork], model: HookedModel) -> ActivationMeans:
    if not subnetworks:
        raise ValueError("no subnetworks to remove heads from: give at least one")
    if len({sub.means.digest for sub in subnetworks}) != 1:
        raise ValueError("these subnetworks have different means: their effects cannot be compared with one full model's")
    subnetworks[0].require_model(model)
    return subnetworks[0].means
