"""The one forward loop: rows through a hooked model, with edits, back in row order."""

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager

import torch
from jaxtyping import Float
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from torch import Tensor, nn
from transformer_lens import HookedRootModule

from hc_lens.data.batches import Batch
from hc_lens.forward import Inputs, device_of, inputs_of, run_batch
from hc_lens.hooks import Edit, hooked
from hc_lens.models import fused


def predict(
    model: HookedRootModule,
    data: Inputs,
    *,
    edits: Sequence[Edit] = (),
    batch_size: int = 64,
    max_length: int | None = None,
) -> Float[Tensor, "row *output"]:
    """The model's logits for every row, in row order, in fp32 on the CPU; the model in eval mode, without gradients.

    `edits` are in place during the loop and gone afterwards. A classifier gives `row label`; a plain language model gives
    `row pos vocab` (rows of equal length).

    Raises:
        HookError: for an edit whose hook point does not exist or does not fire.
        ValueError: for `batch_size` below 1, or text for a model without a tokenizer.
    """
    batches = list(inputs_of(model, data, max_length).batches(batch_size))
    with inference(model):
        return read_rows(model, batches, lambda logits, batch: logits, edits)


@contextmanager
def inference(model: HookedRootModule) -> Generator[None]:
    """Eval mode, no gradients and fused weights; each module's train mode is restored, also on error.

    Weights are packed once on entry: many passes under one `inference` share it.
    """
    training = [module for module in model.modules() if module.training]
    with ExitStack() as restore:
        restore.callback(_set_training, training)
        model.eval()
        restore.enter_context(torch.no_grad())
        restore.enter_context(fused(model))
        yield


def _set_training(modules: Iterable[nn.Module]) -> None:
    for module in modules:
        module.training = True


def read_rows(
    model: HookedRootModule,
    batches: Sequence[Batch],
    read: Callable[[Tensor, Batch], Tensor],
    edits: Sequence[Edit] = (),
) -> Float[Tensor, "row *output"]:
    """`read(logits, batch)` of every row, put at its `Batch.rows`; to be called under `inference`.

    `batches` hold rows 0..n-1, each once, in any order.

    Raises:
        ValueError: if `read` does not return one entry per row of the batch.
    """
    device = device_of(model)
    n_rows = sum(len(batch) for batch in batches)
    result: Tensor | None = None
    with hooked(model, edits):
        for batch in batches:
            on_device = batch.to(device)
            values = read(run_batch(model, on_device), on_device)
            if values.ndim == 0 or values.shape[0] != len(batch):
                raise ValueError(f"a metric must return one value per row: {len(batch)} rows, got shape {tuple(values.shape)}")
            values = values.detach().float().cpu()
            if result is None:
                result = values.new_empty(n_rows, *values.shape[1:])
            result[batch.rows.cpu()] = values
    if result is None:
        raise ValueError("there are no batches to run: give at least one row")
    return result


@contextmanager
def progress(description: str, total: int) -> Generator[Callable[[], None]]:
    """A progress bar with rate and time left on standard error, advanced by calling what it yields; silent off a terminal."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal, transient=True) as bar:
        task = bar.add_task(description, total=total, rate="")

        def advance() -> None:
            speed = bar.tasks[task].speed
            bar.update(task, advance=1, rate="" if speed is None else f"{speed:.2f}/s")

        yield advance
