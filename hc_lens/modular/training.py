"""Training a network on pairs modulo a prime with AdamW, by default on all of them at every step, into a run directory.

The run (`hc_lens.runs`) holds weights in `checkpoints/step-000500.safetensors`, what was measured in `metrics.jsonl`, and,
until it has finished, the optimizer's state at the newest checkpoint in `resume.safetensors`.
"""

import math
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from hc_lens.forward import device_of, mode
from hc_lens.modular.config import FitConfig, LossName
from hc_lens.modular.networks import Network, answers, neuron_count
from hc_lens.progress import progress
from hc_lens.runs import Run
from hc_lens.train import TrainingError
from hc_lens.train.checkpoints import checkpoint_of, cuda_devices, keep, resume, whole

Measure = Callable[[Network], Mapping[str, float | None]]
"""What is logged along the way, in eval mode and without gradients: values by name, None where there is none."""


_IN_CACHE = 2**19
"""Activations of a hidden layer held at once: 2 MiB."""


def targets_of(labels: Int[Tensor, " pair"], p: int, loss: LossName) -> Num[Tensor, "pair *output"]:
    """What a loss compares answers with, made once: one-hot rows, or the labels themselves."""
    return functional.one_hot(labels, p).float() if loss == "mse" else labels


def loss_of(logits: Float[Tensor, "batch residue"], targets: Num[Tensor, "batch *output"]) -> Float[Tensor, ""]:
    """The mean loss of answers to these targets, of whichever kind they are."""
    if targets.is_floating_point():
        return functional.mse_loss(logits, targets)
    return functional.cross_entropy(logits, targets)


def training_step(
    model: Network,
    optimizer: torch.optim.Optimizer,
    numbers: Int[Tensor, "batch term"],
    targets: Num[Tensor, "batch *output"],
) -> None:
    """One update of all weights, from the mean loss over these pairs."""
    optimizer.zero_grad()
    size = rows_at_once(model, len(targets))
    for some, theirs in zip(numbers.split(size), targets.split(size), strict=True):
        loss = loss_of(answers(model, some), theirs) * (len(theirs) / len(targets))
        loss.backward()
    optimizer.step()


def rows_at_once(model: Network, n: int) -> int:
    """How many of n pairs go through the network together: on a CPU, as many as keep their activations in its cache.

    Writing activations to memory and reading them back otherwise takes longer than the products. BatchNorm needs all pairs.
    """
    if device_of(model).type != "cpu" or any(isinstance(module, torch.nn.BatchNorm1d) for module in model.modules()):
        return n
    return min(n, max(1, _IN_CACHE // neuron_count(model)))


def fit(
    model: Network,
    numbers: Int[Tensor, "pair term"],
    labels: Int[Tensor, " pair"],
    p: int,
    config: FitConfig,
    run: Run,
    measure: Measure,
) -> pd.DataFrame:
    """Train all weights and return what was measured: a row at step 0, every `measure_every` and the end, `loss` included.

    The model ends with the weights of the last step. A run that was killed goes on from its newest checkpoint, bit-equal to one
    never stopped (same versions and threads); a finished one is only loaded.

    Raises:
        TrainingError: if the loss is not finite, naming the step.
        RunError: if the run is damaged or in use.
    """
    with run.locked():
        if whole(run, config.checkpoint_steps):
            checkpoint_of(run, config.steps).load_into(model)
        else:
            device = device_of(model)
            targets = targets_of(labels, p, config.loss).to(device)
            _Fit(run, model, numbers.to(device), targets, config, measure).finish()
    return run.metrics()


@contextmanager
def denormals_flushed() -> Generator[None, None, None]:
    """Weights that decay has killed become denormal numbers, which are many times slower to compute with: take them as zero."""
    torch.set_flush_denormal(True)
    try:
        yield
    finally:
        torch.set_flush_denormal(False)


@dataclass(frozen=True, eq=False)
class _Fit:
    """One call of `fit`: everything that stays the same over its steps."""

    run: Run
    model: Network
    numbers: Int[Tensor, "pair term"]
    targets: Num[Tensor, "pair *output"]
    config: FitConfig
    measure: Measure

    def finish(self) -> None:
        config = self.config
        with ExitStack() as stack:
            stack.enter_context(mode(self.model, training=True))
            stack.enter_context(torch.random.fork_rng(cuda_devices(self.model)))
            stack.enter_context(denormals_flushed())
            torch.manual_seed(config.seed)
            optimizer = torch.optim.AdamW(
                self.model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
            )
            start = resume(self.run, self.model, optimizer, config.checkpoint_steps)
            if start == 0:
                self._log(0)
            advance = stack.enter_context(progress("training", config.steps - start))
            for end in config.checkpoint_steps:
                for step in range(start, end):
                    rows = _rows(len(self.targets), config, step)
                    training_step(self.model, optimizer, self.numbers[rows], self.targets[rows])
                    advance()
                    if (step + 1) % config.measure_every == 0 or step + 1 == config.steps:
                        self._log(step + 1)
                if end > start:
                    keep(self.run, self.model, optimizer, end)
                    start = end
        for weight in self.model.parameters():
            weight.grad = None
        self.run.finish()
        self.run.file("resume", "safetensors").unlink(missing_ok=True)  # nothing resumes a finished run

    @torch.no_grad()
    def _log(self, step: int) -> None:
        with mode(self.model, training=False):
            loss = float(loss_of(answers(self.model, self.numbers), self.targets))
            if not math.isfinite(loss):
                raise TrainingError(f"the loss is {loss} at step {step} of {self.config.steps}; lower lr ({self.config.lr})")
            self.run.log({"step": step, "loss": loss, **self.measure(self.model)})


def _rows(n: int, config: FitConfig, step: int) -> Int[Tensor, " batch"] | slice:
    """The pairs of a step: all, or the next `batch_size` of this pass over them."""
    if config.batch_size is None or config.batch_size >= n:
        return slice(None)  # a view of the data, no copy
    epoch, place = divmod(step, n // config.batch_size)
    order = torch.randperm(n, generator=torch.Generator().manual_seed(config.seed * 1_000_003 + epoch))
    return order[place * config.batch_size : (place + 1) * config.batch_size]
