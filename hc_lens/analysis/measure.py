"""What an ablation measures on every row: a task's accuracy and margin, or a metric of the caller's."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from hc_lens.analysis.effects import CaseRows
from hc_lens.data.batches import Batch, Encoded
from hc_lens.data.sampling import some_rows
from hc_lens.data.task import Split, Task
from hc_lens.forward import Inputs, inference, inputs_of
from hc_lens.hooks import Edit, HookedModel
from hc_lens.metrics import encode_cases, label_order, labels_of, log_odds, read_rows, read_rows_of_each, right_classes
from hc_lens.precision import Precision
from hc_lens.progress import progress
from hc_lens.sample import Sample

Metric = Callable[[Tensor, Batch], Tensor]
"""From the model's output and the batch to one value per row, larger being better: Float[Tensor, " batch"].

`Batch.rows` are rows of the data that the metric is measured on, so that a metric can look up what belongs to them.
"""


@dataclass(frozen=True, eq=False)
class Measure:
    """Rows to run, what to read of each, and how that becomes values per scale.

    `rows` are the places of these rows in the data, in each case's for a task. `check` gets what was read of the full model and
    raises if it makes no sense. `smooth` is the value on one of the scales, `smooth_scale`, as a function with a gradient.
    """

    cases: tuple[CaseRows, ...]
    rows: Int[np.ndarray, " row"]
    batches: Sequence[Batch]
    read: Callable[[Tensor, Batch], Tensor]
    check: Callable[[Tensor], None]
    values: Callable[[Tensor], Mapping[str, Float[np.ndarray, " row"]]]
    smooth: Metric
    smooth_scale: str


def measured(
    model: HookedModel,
    data: Task | Inputs,
    metric: Metric | None,
    sample: Sample,
) -> Measure:
    """The rows of a task, or of other data with a metric, and what is measured of them.

    Raises:
        ValueError: for a task with a metric, or other data without one.
    """
    if isinstance(data, Task):
        if metric is not None:
            raise ValueError("a task is scored by accuracy and margin: pass one of its splits, or encoded rows, with a metric")
        return on_task(model, data, sample)
    if metric is None:
        raise ValueError(f"data of type {type(data).__name__} needs metric=..., one value per row from the model's output")
    return on_data(inputs_of(model, data, sample.max_length), metric, sample)


def on_task(
    model: HookedModel,
    task: Task,
    sample: Sample,
) -> Measure:
    """Accuracy and margin of the rows of a task's cases."""
    order = label_order(labels_of(model), task.labels)
    data = encode_cases(model, task, sample)
    right = torch.cat([right_classes(split) for split in data.splits])

    def values(logits: Tensor) -> Mapping[str, Float[np.ndarray, " row"]]:
        scores = data.score(logits)
        return {
            "accuracy": np.concatenate([case.correct for case in scores]).astype(np.float32),
            "margin": np.concatenate([case.margin for case in scores]).astype(np.float32),
        }

    return Measure(
        cases=tuple(
            CaseRows(name, group, start, stop, _worst_constant(split))
            for name, group, split, (start, stop) in zip(data.names, data.groups, data.splits, data.bounds, strict=True)
        ),
        rows=np.concatenate(data.rows),
        batches=data.data.batches(sample.batch_size),
        read=lambda logits, batch: logits[:, order],
        check=lambda logits: data.require_label_order(logits, task.labels),
        values=values,
        smooth=lambda logits, batch: log_odds(logits[:, order], right.to(logits.device)[batch.rows]),
        smooth_scale="margin",
    )


def on_data(data: Encoded, metric: Metric, sample: Sample) -> Measure:
    """A metric on the rows of one data set, as the case `"data"`."""
    chosen = some_rows(len(data), sample.max_rows, sample.seed)

    def values(read: Tensor) -> Mapping[str, Float[np.ndarray, " row"]]:
        if read.ndim != 1:
            raise ValueError(
                f"a metric must return one value per row, it returned values of shape {tuple(read.shape[1:])} per row"
            )
        return {"metric": read.numpy()}

    return Measure(
        cases=(CaseRows("data", "", 0, len(chosen), float("nan")),),
        rows=np.asarray(chosen),
        batches=data.batches(sample.batch_size, chosen),
        read=metric,
        check=lambda read: None,
        values=values,
        smooth=metric,
        smooth_scale="metric",
    )


def run_sets(
    model: HookedModel, measure: Measure, edit_sets: Sequence[Sequence[Edit]], precision: Precision
) -> tuple[Mapping[str, Float[np.ndarray, " row"]], list[Mapping[str, Float[np.ndarray, " row"]]]]:
    """Values per scale of the full model, and under each set of edits."""
    with inference(model, precision, narrow=True), progress(f"ablating {len(edit_sets)} sets", len(measure.batches)) as advance:
        # A pass of its own: if the full model's answers make no sense, the ablations need not run.
        full = read_rows(model, measure.batches, measure.read)
        measure.check(full)
        ablated = read_rows_of_each(model, measure.batches, measure.read, edit_sets, advance)
    return measure.values(full), [measure.values(read) for read in ablated]


def _worst_constant(split: Split) -> float:
    """Accuracy of the answer that is right least often: 0 on a case with one label, near one third on balanced MNLI."""
    counts = np.bincount(split.labels, minlength=len(split.label_names))
    return min(float(counts[label]) for label in set(split.collapse)) / len(split)
