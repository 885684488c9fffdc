"""The one forward loop: rows through a hooked model, with edits, back in row order."""

import re
from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor

from hc_lens.data.batches import Batch
from hc_lens.forward import Inputs, Precision, device_of, inference, inputs_of, run_batch
from hc_lens.hooks import Edit, HookedModel, captured, hooked
from hc_lens.models.resume import can_resume, residual_point, resumed


def predict(
    model: HookedModel,
    data: Inputs,
    *,
    edits: Sequence[Edit] = (),
    batch_size: int = 64,
    max_length: int | None = None,
    precision: Precision = "fp32",
) -> Float[Tensor, "row *output"]:
    """The model's logits for every row, in row order, in fp32 on the CPU; the model in eval mode, without gradients.

    `edits` are in place during the loop and gone afterwards. A classifier gives `row label`; a plain language model gives
    `row pos vocab` (rows of equal length).

    Raises:
        HookError: for an edit whose hook point does not exist or does not fire.
        ValueError: for `batch_size` below 1, or text for a model without a tokenizer.
    """
    batches = list(inputs_of(model, data, max_length).batches(batch_size))
    with inference(model, precision, narrow=True):
        return read_rows(model, batches, lambda logits, batch: logits, edits)


Read = Callable[[Tensor, Batch], Tensor]
"""From a model's output and its batch to one entry per row: Float[Tensor, "batch *output"]."""


def read_rows(
    model: HookedModel, batches: Sequence[Batch], read: Read, edits: Sequence[Edit] = ()
) -> Float[Tensor, "row *output"]:
    """`read(logits, batch)` of every row, put at its `Batch.rows`; to be called under `inference`.

    `batches` hold rows 0..n-1, each once, in any order.

    Raises:
        ValueError: for no batches, or if `read` does not return one entry per row of the batch.
    """
    rows = _Rows(batches)
    with hooked(model, edits):
        for batch in batches:
            rows.put(_read_batch(model, batch.to(device_of(model)), read), batch)
    return rows.values


def read_rows_of_each(
    model: HookedModel,
    batches: Sequence[Batch],
    read: Read,
    edit_sets: Sequence[Sequence[Edit]],
    advance: Callable[[], None],
) -> list[Float[Tensor, "row *output"]]:
    """`read_rows` under each set of edits, with equal results, in less time; `advance` is called after each batch.

    Each batch goes through all sets before the next one: blocks before the first edit of a set give what they give without
    edits, and where the model is a plain stack of blocks they run only once per batch.

    Raises:
        ValueError: as `read_rows`.
    """
    starts = [_first_layer(edits) for edits in edit_sets] if can_resume(model) else [0] * len(edit_sets)
    points = [residual_point(layer) for layer in sorted(set(starts)) if layer]
    results = [_Rows(batches) for _ in edit_sets]
    for batch in batches:
        here = batch.to(device_of(model))
        residuals: dict[str, Tensor] = {}
        if points:
            with captured(model, points) as residuals:
                run_batch(model, here)
        for edits, start, rows in zip(edit_sets, starts, results, strict=True):
            with resumed(model, start, residuals.get(residual_point(start))), hooked(model, edits):
                rows.put(_read_batch(model, here, read), batch)
        advance()
    return [rows.values for rows in results]


def _first_layer(edits: Sequence[Edit]) -> int:
    """The first block that the edits change; 0 if any is elsewhere, or if there are none."""
    found = [re.match(r"blocks\.(\d+)\.(attn\.hook_z|hook_mlp_out)$", edit.point) for edit in edits]
    return min((int(match[1]) if match else 0 for match in found), default=0)


def _read_batch(model: HookedModel, batch: Batch, read: Read) -> Float[Tensor, "batch *output"]:
    values = read(run_batch(model, batch), batch)
    if values.ndim == 0 or values.shape[0] != len(batch):
        raise ValueError(f"a metric must return one value per row: {len(batch)} rows, got shape {tuple(values.shape)}")
    return values.detach().float().cpu()


class _Rows:
    """Values of batches, gathered in row order."""

    def __init__(self, batches: Sequence[Batch]) -> None:
        self._n = sum(len(batch) for batch in batches)
        self._values: Tensor | None = None

    def put(self, values: Float[Tensor, "batch *output"], batch: Batch) -> None:
        if self._values is None:
            self._values = values.new_empty(self._n, *values.shape[1:])
        self._values[batch.rows.cpu()] = values

    @property
    def values(self) -> Float[Tensor, "row *output"]:
        if self._values is None:
            raise ValueError("there are no batches to run: give at least one row")
        return self._values
