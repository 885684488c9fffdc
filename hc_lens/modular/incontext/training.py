"""Pre-training on sequences of many tasks: a typed loop in a run directory, with checkpoints that are evaluated by shot.

The directory is a run (`hc_lens.runs`): weights in `checkpoints/step-000500.safetensors`, the table of each checkpoint in
`evaluation/`, the loss in `metrics.jsonl`, the optimizer at the newest checkpoint in `resume.safetensors`.
"""

import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, get_args

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedTransformer

from hc_lens.forward import dtype_of
from hc_lens.limits import require_not_negative, require_positive
from hc_lens.models.fused import fused
from hc_lens.modular.incontext.evaluation import accuracy_by_shot
from hc_lens.modular.incontext.model import ModelConfig, new_transformer
from hc_lens.modular.incontext.sequences import answer_logits, answer_loss, balanced_batch, draw_examples, draw_repeating
from hc_lens.modular.incontext.tasks import ExampleSplit, TaskSplit, parallelogram_tasks, random_tasks, split_examples
from hc_lens.precision import Kind, Precision, require_precision, settled
from hc_lens.progress import progress
from hc_lens.runs import Run
from hc_lens.train import TrainingError
from hc_lens.train.checkpoints import checkpoint_of, keep, name_of, resume, whole

TaskRule = Literal["parallelogram", "random"]
"""How the tasks of pre-training are chosen: see `parallelogram_tasks` and `random_tasks`."""


@dataclass(frozen=True)
class Data:
    """Which tasks and examples; the defaults are the paper's.

    Attributes:
        p: the modulus, a prime.
        n_tasks: tasks of pre-training, fewer than p^2.
        fraction: of the p^2 pairs (x, y), those that training examples are drawn from.
        n_shots: examples in a sequence.
        rule: how tasks are chosen.
        repeats: whether an example may come again in its sequence in training, where p is small and looking it up is a first
            step to matching ratios; in evaluation none does.
        seed: of both choices.
    """

    p: int = 29
    n_tasks: int = 512
    fraction: float = 0.6
    n_shots: int = 32
    rule: TaskRule = "parallelogram"
    repeats: bool = False
    seed: int = 0

    def tasks(self) -> TaskSplit:
        """The seen and the unseen tasks.

        Raises:
            ValueError: as `parallelogram_tasks` and `random_tasks`, and for an unknown rule.
        """
        if self.rule not in get_args(TaskRule):
            raise ValueError(f"rule must be one of {list(get_args(TaskRule))}, got {self.rule!r}")
        choose = parallelogram_tasks if self.rule == "parallelogram" else random_tasks
        return choose(self.p, self.n_tasks, self.seed)

    def examples(self) -> ExampleSplit:
        """The train and the test pairs.

        Raises:
            ValueError: as `split_examples`, and if there are not as many training pairs as a sequence has examples.
        """
        split = split_examples(self.p, self.fraction, self.seed)
        if not 2 <= self.n_shots <= len(split.train):
            raise ValueError(
                f"n_shots must be in 2..{len(split.train)}, the different training pairs at p = {self.p} and fraction = "
                f"{self.fraction}, got {self.n_shots}"
            )
        return split


@dataclass(frozen=True)
class Training:
    """How to train, with AdamW (decoupled decay, of matrices only); the defaults are the paper's.

    `lr` rises linearly over `warmup_steps` from a hundredth, then falls by a cosine to a tenth at `steps`. A batch of
    `batch_size` holds equally many sequences of every task. Checkpoints are kept and evaluated, `evaluate` sequences of each of
    the four sets, at step 0, every `checkpoint_every` steps and at the end; the mean loss is logged every `log_every`. `seed`
    decides the first weights and the batches. `precision` is that of matrix products and attention.

    Raises:
        ValueError: naming the field that is out of its range.
    """

    steps: int = 200_000
    batch_size: int = 1024
    lr: float = 1.5e-4
    weight_decay: float = 2.0
    betas: tuple[float, float] = (0.9, 0.98)
    warmup_steps: int = 10_000
    checkpoint_every: int = 5_000
    log_every: int = 100
    evaluate: int = 2_048
    seed: int = 0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "checkpoint_every", "log_every", "evaluate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        require_positive("lr", self.lr)
        require_not_negative("weight_decay", self.weight_decay)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(f"warmup_steps must be in 0..steps - 1 = {self.steps - 1}, got {self.warmup_steps}")
        require_precision(self.precision)

    @property
    def checkpoint_steps(self) -> list[int]:
        """The steps at which weights are kept."""
        return [*range(0, self.steps, self.checkpoint_every), self.steps]


@dataclass(frozen=True)
class InContextConfig:
    """One setting: data, model and training.

    Raises:
        ValueError: if a batch cannot hold equally many sequences of every task.
    """

    data: Data = field(default_factory=Data)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        if self.training.batch_size % self.data.n_tasks:
            raise ValueError(
                f"batch_size must be a multiple of n_tasks, for a batch holds equally many sequences of each of the "
                f"{self.data.n_tasks} tasks, got {self.training.batch_size}"
            )

    def new_model(self) -> HookedTransformer:
        """The model before training, on the CPU."""
        return new_transformer(self.model, self.data.p, self.data.n_shots, _stream(self.training.seed, "weights"))


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
                generator.manual_seed(_stream(config.seed, f"batch {step}"))
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


def _stream(seed: int, name: str) -> int:
    """A seed of its own for each thing that a run's seed decides."""
    return int.from_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest()[:7], "big")
