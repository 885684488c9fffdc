"""Ablate sets of units from the full model: singly, jointly, and random sets of the same size for comparison."""

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float

from hc_lens.analysis.controls import layer_matched_sets
from hc_lens.analysis.effects import Ablation, UnitSet, name_of, same_rows
from hc_lens.analysis.measure import Metric, measured, run_sets
from hc_lens.data.task import Task
from hc_lens.forward import Inputs
from hc_lens.hooks import Edit, HookedModel
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.units import Head, Mlp, Unit, require_in_model

Groups = Sequence[Collection[Unit]] | Mapping[str, Collection[Unit]]
"""Sets of units to ablate, each together; a mapping names them, else a set is named by its units: `L2.H5 + L3.H7`."""

_log = logging.getLogger(__name__)

_Rows = Mapping[str, Float[np.ndarray, " row"]]


@runtime_checkable
class Reference(Protocol):
    """What stands in for an ablated unit: `ActivationMeans`, or anything with these members."""

    @property
    def n_layers(self) -> int: ...

    @property
    def n_heads(self) -> int: ...

    def edits(self, units: Iterable[Unit]) -> list[Edit]: ...

    def require_model(self, model: HookedModel) -> None: ...


def single_heads(means: Reference) -> list[tuple[Head]]:
    """Every head of the model as a group of its own: the paper's Table 3, before averaging."""
    return [(Head(layer, index),) for layer in range(means.n_layers) for index in range(means.n_heads)]


def ablate(
    model: HookedModel,
    data: Task | Inputs,
    means: Reference,
    groups: Groups,
    sample: Sample = ALL_ROWS,
    *,
    metric: Metric | None = None,
    controls: int = 0,
    known: Ablation | None = None,
) -> Ablation:
    """Ablate each group of units from the full model (The Heuristic Core, Table 3), and each unit of a larger group alone.

    On a `Task`: accuracy and margin, on every case or those named. On other data (encoded rows, token ids, a split): a `metric`
    of one's own, for any hooked model. All cases' rows go
    through the model together, in batches of similar length, once for each distinct set of units, and only from the first block
    that a set changes.

    `controls` is the number of random sets to compare each group of several heads with: layer-matched, without any head of any
    group that has several. Groups with MLPs get none (a layer has no second MLP to match), nor do groups larger than what is
    left of the model (the log says so): `controls` is 0 in their rows.

    `known` is an earlier result on the same data and rows: what it has measured (all single heads, say) is not run again.

    Raises:
        ValueError: for `known` with other cases or rows; for an empty group, a unit the model does not have, no groups,
            negative `controls`, a task with a metric, other data without one.
        LabelOrderError: if the model's labels do not fit the task.
        MeansError: for means of another model.
    """
    named = _named(groups, means)
    means.require_model(model)
    matched = _matched(named, controls, means, sample.seed)
    measure = measured(model, data, metric, sample)
    sets = _distinct([*named.values(), *(units for group in matched.values() for units in group)])
    earlier = {} if known is None else known.ablated
    new = [units for units in sets if units not in earlier]
    full, ablated = run_sets(model, measure, [means.edits(units) for units in new], sample.precision)
    values = {**earlier, **dict(zip(new, ablated, strict=True))}
    found = Ablation(named, matched, measure.cases, full, values, measure.rows)
    if known is not None and not (same_rows(known, found) and _alike(full, known.full)):
        raise ValueError("known is a result on other rows, or of another model: pass one of the same data and sample")
    return found


def _alike(one: _Rows, other: _Rows) -> bool:
    """Whether two passes of the full model are over the same rows: equal up to what batch size, device and threads change."""
    return all(np.allclose(one[scale], other[scale], atol=1e-2) for scale in one if scale != "accuracy")


def _named(groups: Groups, means: Reference) -> dict[str, UnitSet]:
    items = groups.items() if isinstance(groups, Mapping) else ((None, group) for group in groups)
    named = {name or name_of(units): units for name, units in ((name, _unit_set(group)) for name, group in items)}
    if not named:
        raise ValueError("no groups to ablate: give at least one set of heads or MLPs")
    for units in named.values():
        require_in_model(units, means.n_layers, means.n_heads)
    return named


def _unit_set(group: Collection[Unit]) -> UnitSet:
    # A single Head is itself a collection, of two numbers.
    if not all(isinstance(unit, (Head, Mlp)) for unit in group):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(f"a group is a collection of heads and MLPs, such as [Head(4, 0)], got {group!r}")
    if not group:
        raise ValueError("a group to ablate is empty: it needs at least one head or MLP")
    return tuple(sorted(set(group), key=lambda unit: (unit.layer, isinstance(unit, Mlp), unit)))


def _matched(named: Mapping[str, UnitSet], n_sets: int, means: Reference, seed: int) -> dict[str, list[UnitSet]]:
    if n_sets < 0:
        raise ValueError(f"controls must not be negative, got {n_sets}")
    several = {name: units for name, units in named.items() if len(units) > 1}
    exclude = {unit for units in several.values() for unit in units if isinstance(unit, Head)}
    others = means.n_layers * means.n_heads - len(exclude)
    matched: dict[str, list[UnitSet]] = {}
    for name, units in several.items() if n_sets else ():
        heads = [unit for unit in units if isinstance(unit, Head)]
        if len(heads) < len(units):
            continue
        if len(heads) > others:
            _log.warning("no random sets to compare %s with: it has %d heads, only %d are in no set", name, len(heads), others)
            continue
        shape = {"n_layers": means.n_layers, "n_heads": means.n_heads}
        matched[name] = list(layer_matched_sets(heads, n_sets, exclude=exclude, seed=seed, **shape))
    return matched


def _distinct(sets: Iterable[UnitSet]) -> list[UnitSet]:
    """Each set, and each unit of a larger set alone, once."""
    return list(dict.fromkeys(run for units in sets for run in (units, *((unit,) for unit in units))))
