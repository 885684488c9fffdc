"""Ablate sets of units from the full model: singly, jointly, and random sets of the same size for comparison."""

import dataclasses
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol, overload, runtime_checkable

import numpy as np
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedRootModule

from hc_lens.analysis.controls import layer_matched_sets
from hc_lens.analysis.effects import Ablation, CaseRows, UnitSet, name_of
from hc_lens.data.batches import Batch, Encoded
from hc_lens.data.task import Split, Task
from hc_lens.forward import Inputs, inputs_of
from hc_lens.hooks import Edit
from hc_lens.metrics import encode_cases, inference, label_order, labels_of, progress, read_rows
from hc_lens.units import Head, Mlp, Unit, require_in_model

Groups = Sequence[Collection[Unit]] | Mapping[str, Collection[Unit]]
"""Sets of units to ablate, each together; a mapping names them, else a set is named by its units: `L2.H5 + L3.H7`."""

Metric = Callable[[Tensor, Batch], Tensor]
"""From the model's output and the batch to one value per row, larger being better: Float[Tensor, " batch"]."""

_Rows = Mapping[str, Float[np.ndarray, " row"]]


@runtime_checkable
class Reference(Protocol):
    """What stands in for an ablated unit: `ActivationMeans`, or anything with these members."""

    @property
    def n_layers(self) -> int: ...

    @property
    def n_heads(self) -> int: ...

    def edits(self, units: Iterable[Unit]) -> list[Edit]: ...

    def require_model(self, model: HookedRootModule) -> None: ...


def single_heads(means: Reference) -> list[tuple[Head]]:
    """Every head of the model as a group of its own: the paper's Table 3, before averaging."""
    return [(Head(layer, index),) for layer in range(means.n_layers) for index in range(means.n_heads)]


@overload
def ablate(
    model: HookedRootModule,
    data: Task,
    means: Reference,
    groups: Groups,
    *,
    controls: int = 0,
    cases: Sequence[str] | None = None,
    max_rows: int | None = None,
    max_length: int | None = 128,
    batch_size: int = 64,
    seed: int = 0,
) -> Ablation: ...


@overload
def ablate(
    model: HookedRootModule,
    data: Inputs,
    means: Reference,
    groups: Groups,
    *,
    metric: Metric,
    controls: int = 0,
    max_rows: int | None = None,
    max_length: int | None = 128,
    batch_size: int = 64,
    seed: int = 0,
) -> Ablation: ...


def ablate(
    model: HookedRootModule,
    data: Task | Inputs,
    means: Reference,
    groups: Groups,
    *,
    metric: Metric | None = None,
    controls: int = 0,
    cases: Sequence[str] | None = None,
    max_rows: int | None = None,
    max_length: int | None = 128,
    batch_size: int = 64,
    seed: int = 0,
) -> Ablation:
    """Ablate each group of units from the full model (The Heuristic Core, Table 3), and each unit of a larger group alone.

    On a `Task`: accuracy and margin, on every case or those named. On other data (encoded rows, token ids, a split): a `metric`
    of one's own, for any hooked model. `max_rows` limits each case to random rows, which `seed` draws. All cases' rows go
    through the model together, in batches of similar length, once for each distinct set of units.

    `controls` is the number of random sets to compare each group of several heads with: layer-matched, without any head of any
    group that has several. Groups with MLPs get none, a layer has no second MLP to match.

    Raises:
        ValueError: for an empty group, a unit the model does not have, no groups, a task with a metric, other data without one.
        LabelOrderError: if the model's labels do not fit the task.
        MeansError: for means of another model.
    """
    named = _named(groups, means)
    means.require_model(model)
    matched = _matched(named, controls, means, seed)
    if isinstance(data, Task):
        if metric is not None:
            raise ValueError("a task is scored by accuracy and margin: pass one of its splits, or encoded rows, with a metric")
        measure = _TaskRows(model, data, cases, max_rows, max_length, batch_size, seed)
    elif metric is None:
        raise ValueError(f"data of type {type(data).__name__} needs metric=..., one value per row from the model's output")
    else:
        measure = _MetricRows(model, inputs_of(model, data, max_length), metric, max_rows, batch_size, seed)
    sets = _distinct([*named.values(), *(units for group in matched.values() for units in group)])
    with inference(model), progress("ablating", len(sets) + 1) as advance:
        full = measure.full()
        advance()
        ablated: dict[UnitSet, _Rows] = {}
        for units in sets:
            ablated[units] = measure(means.edits(units))
            advance()
    return Ablation(named, matched, measure.cases, full, ablated)


class _TaskRows:
    """Accuracy and margin of every row of a task's cases."""

    def __init__(
        self,
        model: HookedRootModule,
        task: Task,
        cases: Sequence[str] | None,
        max_rows: int | None,
        max_length: int | None,
        batch_size: int,
        seed: int,
    ) -> None:
        self._model, self._labels = model, task.labels
        self._order = label_order(labels_of(model), task.labels)
        self._data = encode_cases(model, task, cases=cases, max_rows=max_rows, max_length=max_length, seed=seed)
        self._batches = list(self._data.data.batches(batch_size))
        data = self._data
        self.cases = tuple(
            CaseRows(name, group, start, stop, _worst_constant(split))
            for name, group, split, (start, stop) in zip(data.names, data.groups, data.splits, data.bounds, strict=True)
        )

    def full(self) -> _Rows:
        logits = self._logits(())
        self._data.require_label_order(logits, self._labels)
        return self._scored(logits)

    def __call__(self, edits: Sequence[Edit]) -> _Rows:
        return self._scored(self._logits(edits))

    def _logits(self, edits: Sequence[Edit]) -> Float[Tensor, "row label"]:
        return read_rows(self._model, self._batches, lambda logits, batch: logits[:, self._order], edits)

    def _scored(self, logits: Float[Tensor, "row label"]) -> _Rows:
        scores = self._data.score(logits)
        return {
            "accuracy": np.concatenate([case.correct for case in scores]).astype(np.float32),
            "margin": np.concatenate([case.margin for case in scores]).astype(np.float32),
        }


class _MetricRows:
    """A metric of the caller's on every row of one data set."""

    def __init__(
        self, model: HookedRootModule, data: Encoded, metric: Metric, max_rows: int | None, batch_size: int, seed: int
    ) -> None:
        if max_rows is not None and max_rows < 1:
            raise ValueError(f"max_rows must be at least 1, got {max_rows}")
        self._model, self._metric = model, metric
        chosen = np.random.default_rng(seed).permutation(len(data))[:max_rows]
        place = np.full(len(data), -1)
        place[chosen] = np.arange(len(chosen))
        by_length = sorted(chosen.tolist(), key=lambda row: -int(data.lengths[row]))
        self._batches = [
            _renumbered(data.batch(by_length[i : i + batch_size]), place) for i in range(0, len(by_length), batch_size)
        ]
        self.cases = (CaseRows("data", "", 0, len(chosen), float("nan")),)

    def full(self) -> _Rows:
        return self(())

    def __call__(self, edits: Sequence[Edit]) -> _Rows:
        values = read_rows(self._model, self._batches, self._metric, edits)
        if values.ndim != 1:
            raise ValueError(
                f"a metric must return one value per row, it returned values of shape {tuple(values.shape[1:])} per row"
            )
        return {"metric": values.numpy()}


def _renumbered(batch: Batch, place: np.ndarray) -> Batch:
    rows = batch.rows.new_tensor(place[batch.rows.numpy()])
    return dataclasses.replace(batch, rows=rows)


def _worst_constant(split: Split) -> float:
    """Accuracy of the answer that is right least often: 0 on a case with one label, near one third on balanced MNLI."""
    counts = np.bincount(split.labels, minlength=len(split.label_names))
    return min(float(counts[label]) for label in set(split.collapse)) / len(split)


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
    several = {name: units for name, units in named.items() if len(units) > 1}
    exclude = [unit for units in several.values() for unit in units if isinstance(unit, Head)]
    shape = {"n_layers": means.n_layers, "n_heads": means.n_heads}
    return {
        name: list(layer_matched_sets(heads, n_sets, exclude=exclude, seed=seed, **shape))
        for name, units in several.items()
        if n_sets and len(heads := [unit for unit in units if isinstance(unit, Head)]) == len(units)
    }


def _distinct(sets: Iterable[UnitSet]) -> list[UnitSet]:
    """Each set, and each unit of a larger set alone, once."""
    return list(dict.fromkeys(run for units in sets for run in (units, *((unit,) for unit in units))))
