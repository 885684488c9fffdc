"""Pre-training on sequences of many tasks: a typed loop in a run directory, with checkpoints that are evaluated by shot.

The directory is a run (`hc_lens.runs`): weights in `checkpoints/step-000500.safetensors`, the table of each checkpoint in
`evaluation/`, the loss in `metrics.jsonl`, the optimizer at the newest checkpoint in `resume.safetensors`.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from hc_lens.forward import dtype_of
from hc_lens.models.fused import fused
from hc_lens.modular.incontext.config import InContextConfig, Training
from hc_lens.modular.incontext.evaluation import accuracy_by_shot
from hc_lens.modular.incontext.sequences import answer_logits, answer_loss, balanced_batch, draw_examples, draw_repeating
from hc_lens.modular.incontext.tasks import ExampleSplit, TaskSplit
from hc_lens.precision import Kind, settled
from hc_lens.progress import progress
from hc_lens.runs import Run
from hc_lens.train import TrainingError
from hc_lens.train.checkpoints import checkpoint_of, keep, name_of, resume, whole


@dataclass(frozen=True)
class InContextRun:
    """A training run in its directory, finished or not."""

    run: Run
    config: InContextConfig

    @property
    def steps(self) -> list[int]:
        """The steps at which there are checkpoints."""
        return [int(file.stem.removeprefix("step-")) for file in sorted(self.run.path.glob("checkpoints/step-*"))]

    @property
    def seconds(self) -> float:
        """CPU seconds that training and evaluation have taken so far."""
        rows = self.run.metrics()
        return float(rows["seconds"].sum()) if "seconds" in rows else 0.0

    def evaluations(self) -> pd.DataFrame:
        """Accuracy by shot at every checkpoint: the columns of `accuracy_by_shot`, and `step`."""
        return pd.concat([self.run.read_table(f"evaluation/{name_of(step)}") for step in self.steps], ignore_index=True)

    def model(self, step: int | None = None) -> HookedTransformer:
        """The model after so many steps; the newest by default."""
        model = self.config.new_model()
        checkpoint_of(self.run, self.steps[-1] if step is None else step).load_into(model)
        return model


Until = Callable[[InContextRun], bool]
"""Whether to stop a run, as it is at a checkpoint."""


def train_in_context(
    config: InContextConfig, directory: Path, *, device: torch.device | None = None, until: Until | None = None
) -> InContextRun:
    """Train one setting; what is there already is not done again.

    Calling again goes on from the newest checkpoint, bit-equal to a run never stopped (on the CPU, same versions and threads).
    With `until`, training stops at the first checkpoint where it says so, and can go on later.

    Raises:
        ValueError: for a setting that cannot be, naming the field.
        TrainingError: for a loss or weight that is not finite, naming the step.
        RunError: if the directory holds another run, is damaged, or is in use.
    """
    tasks, examples = config.data.tasks(), config.data.examples()
    found = InContextRun(Run.at(directory, "modular-in-context", asdict(config)), config)
    loop = _Loop(found, tasks, examples, device or torch.device("cpu"), until)
    with found.run.locked():
        if not whole(found.run, config.training.checkpoint_steps):
            loop.finish()
        loop.evaluate_missing()
    return found


def learning_rate(config: Training, step: int) -> float:
    """The learning rate of the update that follows `step` finished ones."""
    if step < config.warmup_steps:
        return config.lr * (0.01 + 0.99 * step / config.warmup_steps)
    done = (step - config.warmup_steps) / (config.steps - config.warmup_steps)
    return config.lr * (0.1 + 0.45 * (1 + math.cos(math.pi * done)))


@dataclass(frozen=True, eq=False)
class _Loop:
    """One call of `train_in_context`."""

    found: InContextRun
    tasks: TaskSplit
    examples: ExampleSplit
    device: torch.device
    until: Until | None

    def finish(self) -> None:
        """Train from the newest checkpoint to the end, or until told to stop."""
        config, run = self.found.config.training, self.found.run
        model = self.found.config.new_model().to(self.device, print_details=False)
        optimizer = adamw(model, config)
        kind = settled(run, config.precision, model, config.batch_size, model.cfg.n_ctx)
        start = resume(run, model, optimizer, config.checkpoint_steps)
        if not run.file("resume", "safetensors").exists():
            self._keep(model, optimizer, 0, time.process_time())
        with progress(f"in-context training from step {start}", config.steps - start) as advance:
            for end in config.checkpoint_steps:
                if end <= start:
                    continue
                if self.until is not None and self.until(self.found):
                    return
                began = time.process_time()
                self._train(model, optimizer, range(start, end), kind, advance)
                self._keep(model, optimizer, end, began)
                start = end
        run.finish()
        run.file("resume", "safetensors").unlink(missing_ok=True)

    def _train(
        self,
        model: HookedTransformer,
        optimizer: torch.optim.Optimizer,
        steps: range,
        precision: Kind,
        advance: Callable[[], None],
    ) -> None:
        config, data = self.found.config.training, self.found.config.data
        seen, pool = self.tasks.seen.to(self.device), self.examples.train.to(self.device)
        generator = torch.Generator(self.device)
        draw = draw_repeating if data.repeats else draw_examples
        losses: list[Float[Tensor, ""]] = []  # on the device until they are logged: no step waits for its loss
        with fused(model, dtype_of(precision), train_weights=True):
            for step in steps:
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(config, step)
                generator.manual_seed(stream(config.seed, f"batch {step}"))
                rows = config.batch_size // len(seen)
                drawn = draw(pool, rows, data.n_shots, generator)
                tokens = balanced_batch(seen, drawn, data.p)
                loss = answer_loss(answer_logits(model, tokens), tokens)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.detach())
                advance()
                if (step + 1) % config.log_every == 0 or step + 1 == steps.stop:
                    self._log(torch.stack(losses), step + 1)
                    losses = []

    def _log(self, losses: Float[Tensor, " step"], done: int) -> None:
        config, finite = self.found.config.training, losses.isfinite().cpu()
        if not finite.all():
            bad = done - len(losses) + int((~finite).nonzero()[0]) + 1
            raise TrainingError(f"the loss is not finite at step {bad} of {config.steps}; lower lr ({config.lr})")
        self.found.run.log({"step": done, "loss": float(losses.mean()), "lr": learning_rate(config, done - 1)})

    def evaluate_missing(self) -> None:
        """Evaluate the checkpoints whose tables are gone."""
        for step in self.found.steps:
            if not self.found.run.file(f"evaluation/{name_of(step)}", "parquet").exists():
                self._evaluate(self.found.model(step).to(self.device, print_details=False), step)

    def _evaluate(self, model: HookedTransformer, step: int) -> None:
        config, data = self.found.config.training, self.found.config.data

        def table() -> pd.DataFrame:
            found = accuracy_by_shot(model, self.tasks, self.examples, data.n_shots, config.evaluate, data.seed)
            return found.assign(step=step)

        self.found.run.table(f"evaluation/{name_of(step)}", table)

    def _keep(self, model: HookedTransformer, optimizer: torch.optim.Optimizer, step: int, began: float) -> None:
        """Evaluate, then keep the checkpoint: a kill in between repeats the steps since the last one."""
        self._evaluate(model, step)
        self.found.run.log({"step": step, "seconds": time.process_time() - began})
        keep(self.found.run, model, optimizer, step)


def adamw(model: HookedTransformer, config: Training) -> torch.optim.AdamW:
    """AdamW with decay of the matrices, embedding included, and none of the LayerNorms."""
    weights = list(model.parameters())
    groups = [
        {"params": [weight for weight in weights if weight.ndim > 1], "weight_decay": config.weight_decay},
        {"params": [weight for weight in weights if weight.ndim == 1], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, fused=True)


def stream(seed: int, name: str) -> int:
    """A seed of its own for each thing that a run's seed decides."""
    return int.from_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest()[:7], "big")
