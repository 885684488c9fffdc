"""The one forward loop: rows through a hooked model, with edits, back in row order."""

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from hc_lens.data.batches import Batch
from hc_lens.data.sampling import some_rows
from hc_lens.forward import Inputs, device_of, inference, inputs_of, run_batch
from hc_lens.hooks import Edit, HookedModel, hooked
from hc_lens.metrics.edited_passes import each_output
from hc_lens.sample import ALL_ROWS, Sample


def predict(
    model: HookedModel,
    data: Inputs,
    sample: Sample = ALL_ROWS,
    *,
    edits: Sequence[Edit] = (),
) -> Float[Tensor, "row *output"]:
    """The model's logits for every row of the sample, in row order, in fp32 on the CPU; in eval mode, without gradients.

    `edits` are in place during the loop and gone afterwards. A classifier gives `row label`; a plain language model gives
    `row pos vocab` (rows of equal length).

    Raises:
        HookError: for an edit whose hook point does not exist or does not fire.
        ValueError: for text and a model without a tokenizer.
    """
    encoded = inputs_of(model, data, sample.max_length)
    batches = encoded.batches(sample.batch_size, some_rows(len(encoded), sample.max_rows, sample.seed))
    with inference(model, sample.precision, narrow=True):
        return read_rows(model, batches, lambda logits, batch: logits, edits)


Read = Callable[[Tensor, Batch], Tensor]
"""From a model's output and its batch to one entry per row: Float[Tensor, "batch *output"]."""


def read_rows(
    model: HookedModel, batches: Sequence[Batch], read: Read, edits: Sequence[Edit] = ()
) -> Float[Tensor, "row *output"]:
    """`read(logits, batch)` of every row, in ascending order of `Batch.rows`; to be called under `inference`.

    `batches` hold each row of the data at most once, in any order.

    Raises:
        ValueError: for no batches, or if `read` does not return one entry per row of the batch.
    """
    rows = _Rows()
    with hooked(model, edits):
        for batch in batches:
            here = batch.to(device_of(model))
            rows.put(_read(read, run_batch(model, here), here), batch)
    return rows.values


def read_rows_of_each(
    model: HookedModel,
    batches: Sequence[Batch],
    read: Read,
    edit_sets: Sequence[Sequence[Edit]],
    advance: Callable[[], None],
    base: Sequence[Edit] = (),
) -> list[Float[Tensor, "row *output"]]:
    """`read_rows` under each set of edits on top of `base`, in less time (see `each_output`); equal up to rounding.

    Each batch goes through all sets before the next one; `advance` is called after each batch.

    Raises:
        ValueError: as `read_rows`.
    """
    results = [_Rows() for _ in edit_sets]
    for batch in batches:
        here = batch.to(device_of(model))
        for place, output in each_output(model, here, edit_sets, base):
            results[place].put(_read(read, output, here), batch)
        advance()
    return [rows.values for rows in results]


def _read(read: Read, output: Float[Tensor, "batch *output"], batch: Batch) -> Float[Tensor, "batch *read"]:
    values = read(output, batch)
    if values.ndim == 0 or values.shape[0] != len(batch):
        raise ValueError(f"a metric must return one value per row: {len(batch)} rows, got shape {tuple(values.shape)}")
    return values.detach().float().cpu()


class _Rows:
    """Values of batches, gathered in row order."""

    def __init__(self) -> None:
        self._rows: list[Tensor] = []
        self._values: list[Tensor] = []

    def put(self, values: Float[Tensor, "batch *output"], batch: Batch) -> None:
        self._rows.append(batch.rows.cpu())
        self._values.append(values)

    @property
    def values(self) -> Float[Tensor, "row *output"]:
        if not self._values:
            raise ValueError("there are no batches to run: give at least one row")
        return torch.cat(self._values)[torch.cat(self._rows).argsort()]
