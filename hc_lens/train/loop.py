"""Fine-tuning a classifier on a task: a typed loop that leaves checkpoints, evaluates each, and resumes where it was killed.

The directory is a run (`hc_lens.runs`): weights in `checkpoints/step-000500.safetensors`, the table of each checkpoint in
`evaluation/`, the loss in `metrics.jsonl`, until it has finished the state of the optimizer and of the dropout at the newest
checkpoint in `resume.safetensors`, and in the end the model, in transformers format, in `model/`.
"""

import hashlib
import json
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformer_lens import HookedRootModule

from hc_lens.atomic import canonical_json
from hc_lens.data.batches import Batch, Encoded, shuffled_rows
from hc_lens.data.stored import load_stored_task
from hc_lens.data.task import Task
from hc_lens.forward import device_of, inputs_of, mode, run_batch
from hc_lens.metrics import label_order
from hc_lens.models import fingerprint, fused
from hc_lens.models.finite import require_finite_model
from hc_lens.origin import Checkpoint
from hc_lens.precision import Kind, settled
from hc_lens.progress import progress
from hc_lens.runs import Run, RunError
from hc_lens.sample import Sample
from hc_lens.train.checkpoints import (
    checkpoint_of,
    checkpoints,
    cuda_devices,
    is_evaluated,
    keep,
    keep_evaluation,
    keep_model,
    keep_rows,
    name_of,
    resume,
    whole,
)
from hc_lens.train.config import TrainConfig, learning_rate

Evaluate = Callable[[HookedRootModule, Task], pd.DataFrame]
"""What is measured at every checkpoint: one row per case, such as `functools.partial(hc_lens.evaluate, trained=False)` gives
(at step 0 there is no label order to check yet). The keywords of a partial are kept beside its tables, which are computed anew
under others; of another callable it cannot be told."""


class TrainingError(RuntimeError):
    """Training cannot go on: the loss or a weight is not finite. The message names the step and what to change."""


def finetune(
    model: HookedRootModule,
    task: Task,
    config: TrainConfig,
    directory: Path,
    *,
    evaluate: Evaluate | None = None,
) -> list[Checkpoint]:
    """Train all weights of a classifier on the task's training pairs; the model ends with the weights of the last checkpoint.

    Loss: cross-entropy over the model's own label order, into which the task's labels are mapped by name. `evaluate` is called
    at every checkpoint, in eval mode; its tables are read back with `evaluations`. Calling again with the same arguments and
    starting weights goes on from the newest checkpoint, bit-equal to a run never stopped (on the CPU, same versions and
    threads); a finished run is only loaded. Train mode, `requires_grad` and the random state are restored on exit.

    Raises:
        LabelOrderError: if the model's labels are not the task's, naming both.
        TrainingError: for a loss or weight that is not finite, naming the step.
        ValueError: for weights that are not finite to begin with; nothing is written.
        RunError: if the directory holds another run, is damaged, or is in use.
        OSError: if the disk is full, naming the file; nothing is half-written and the run can go on later.
    """
    require_finite_model(model)
    to_model = torch.tensor(label_order(cast("Sequence[str]", model.label_names), task.labels))
    data = inputs_of(model, task.train, config.max_length)
    spec = {
        "config": asdict(config),
        "model": fingerprint(model),
        "labels": list(task.labels),
        "task": {"name": task.name, "fingerprint": task.fingerprint, "encoded": data.fingerprint},
    }
    run = _opened(directory, spec, task)
    with run.locked():
        keep_rows(run, task)
        evaluate = _settled(run, model, evaluate)
        if whole(run, [0, *config.checkpoint_steps]):
            checkpoint_of(run, config.steps).load_into(model)
        else:
            length = round(float(data.lengths.double().mean()))
            kind = settled(run, config.precision, model, config.batch_size, length)
            _Training(run, model, task, config, data, to_model.to(device_of(model)), evaluate, kind).finish()
        keep_model(run, model)
        _evaluate_missing(run, model, task, evaluate)
    return checkpoints(directory)


def _opened(directory: Path, spec: Mapping[str, object], task: Task) -> Run:
    """The run of this specification; where its task is another, the message names the files that have changed."""
    try:
        return Run.at(directory, "finetune", spec)
    except RunError as error:
        if told := "; ".join(_changes(directory / "task", task)):
            raise RunError(f"{error}: {told}") from error
        raise


def _changes(kept: Path, task: Task) -> list[str]:
    """What the files of a task were when it was kept, where they are others now."""
    try:
        before = load_stored_task(kept)
    except RunError:  # an earlier version kept none
        return []
    return before.changed_files if before.fingerprint != task.fingerprint else []


def _evaluate_missing(run: Run, model: HookedRootModule, task: Task, evaluate: Evaluate | None) -> None:
    """Evaluate the checkpoints that have no table: the run was killed, or `evaluate` was not given then, or was another."""
    if evaluate is None:
        return
    kept = checkpoints(run.path)
    missing = [c for c in kept if not is_evaluated(run, c.step, _options(evaluate))]
    for checkpoint in missing:
        checkpoint.load_into(model)
        _evaluate(run, model, task, evaluate, checkpoint.step)
    if missing:
        kept[-1].load_into(model)


def _evaluate(run: Run, model: HookedRootModule, task: Task, evaluate: Evaluate, step: int) -> None:
    options = _options(evaluate)
    if is_evaluated(run, step, options):
        return
    with mode(model, training=False), _own_randomness(model):
        found = evaluate(model, task)
    table = pd.concat([pd.DataFrame({"step": [step] * len(found)}, index=found.index), found], axis=1)
    keep_evaluation(run, step, table, options)


def _settled(run: Run, model: HookedRootModule, evaluate: Evaluate | None) -> Evaluate | None:
    """The same, with the precision that "auto" comes to in the run: all its tables are computed in one."""
    sample = evaluate.keywords.get("sample") if isinstance(evaluate, partial) else None
    if evaluate is None or not isinstance(sample, Sample) or sample.precision != "auto":
        return evaluate
    return partial(evaluate, sample=sample.settled(run, model))


def _options(evaluate: Evaluate) -> dict[str, object] | None:
    """What a partial evaluates with, as JSON has it; None where that cannot be told."""
    if not isinstance(evaluate, partial) or evaluate.args:
        return None
    keywords = dict(evaluate.keywords)
    if isinstance(sample := keywords.pop("sample", None), Sample):
        keywords |= asdict(sample)
    try:
        return cast("dict[str, object]", json.loads(canonical_json(keywords)))
    except ValueError:
        return None


@dataclass(frozen=True, eq=False)
class _Training:
    """One call of `finetune`: everything that stays the same over its steps."""

    run: Run
    model: HookedRootModule
    task: Task
    config: TrainConfig
    data: Encoded
    to_model: Int[Tensor, " label"]
    evaluate: Evaluate | None
    precision: Kind

    def finish(self) -> None:
        """Train from the newest checkpoint to the end."""
        config = self.config
        order = shuffled_rows(
            self.data.lengths,
            config.batch_size,
            config.steps,
            torch.Generator().manual_seed(_stream(config.seed, "data")),
            config.bucket,
        )
        with ExitStack() as restore:
            restore.enter_context(mode(self.model, training=config.dropout))
            restore.enter_context(_trainable(self.model))
            restore.enter_context(_own_randomness(self.model))
            torch.manual_seed(_stream(config.seed, "dropout"))
            optimizer = torch.optim.AdamW(
                self.model.parameters(), lr=config.lr, betas=config.betas, weight_decay=config.weight_decay, fused=True
            )
            start = resume(self.run, self.model, optimizer, [0, *config.checkpoint_steps])
            if start == 0:
                self.run.write_tensors(f"checkpoints/{name_of(0)}", self.model.state_dict())
                self._evaluate(0)
            what = f"fine-tuning from step {start}" if start else "fine-tuning"
            advance = restore.enter_context(progress(what, config.steps - start))
            for end in config.checkpoint_steps:
                if end > start:
                    self._train(optimizer, order[start:end], start, advance)
                    self._keep(optimizer, end)
                    start = end
        keep_model(self.run, self.model)
        self.run.finish()
        # nothing resumes a finished run, and the optimizer's state is twice the size of the model
        self.run.file("resume", "safetensors").unlink(missing_ok=True)

    def _train(
        self, optimizer: torch.optim.Optimizer, order: Int[Tensor, "step batch"], start: int, advance: Callable[[], None]
    ) -> None:
        losses: list[Float[Tensor, ""]] = []  # on the device until they are logged: no step waits for its loss
        with fused(self.model, train_weights=True):
            for step, rows in enumerate(order, start=start):
                for group in optimizer.param_groups:
                    group["lr"] = learning_rate(self.config, step)
                losses.append(self._step(optimizer, self.data.batch(rows).to(self.to_model.device)))
                advance()
                if (step + 1) % self.config.log_every == 0 or step + 1 == start + len(order):
                    self._log(torch.stack(losses), step + 1)
                    losses = []

    def _step(self, optimizer: torch.optim.Optimizer, batch: Batch) -> Float[Tensor, ""]:
        if batch.labels is None:
            raise ValueError(f"task {self.task.name!r}: the training rows have no labels")
        device = self.to_model.device.type
        with torch.autocast(device, dtype=torch.bfloat16, enabled=self.precision == "bf16"):
            logits = run_batch(self.model, batch)
        loss = cross_entropy(logits.float(), self.to_model[batch.labels])
        optimizer.zero_grad()
        loss.backward()
        if self.config.clip is not None:
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip)
        optimizer.step()
        return loss.detach()

    def _log(self, losses: Float[Tensor, " step"], done: int) -> None:
        finite = losses.isfinite().cpu()
        if not finite.all():
            bad = int((~finite).nonzero()[0])
            step = done - len(losses) + bad + 1
            advice = f"lower lr ({self.config.lr}), lengthen warmup_steps ({self.config.warmup_steps}) or set clip"
            if step == 1:
                advice = (
                    f"no weight had moved yet, so look at the model's logits, or use precision 'fp32' (now {self.precision!r})"
                )
            raise TrainingError(f"the loss is {float(losses[bad])} at step {step} of {self.config.steps}; {advice}")
        self.run.log({"step": done, "loss": float(losses.mean()), "lr": learning_rate(self.config, done - 1)})

    def _keep(self, optimizer: torch.optim.Optimizer, step: int) -> None:
        for name, weight in self.model.named_parameters():
            if not weight.isfinite().all():
                raise TrainingError(
                    f"the weight {name} is not finite after step {step}; lower lr ({self.config.lr}) or set clip"
                )
        keep(self.run, self.model, optimizer, step)
        self._evaluate(step)

    def _evaluate(self, step: int) -> None:
        if self.evaluate is not None:
            _evaluate(self.run, self.model, self.task, self.evaluate, step)


def _stream(seed: int, name: str) -> int:
    """A seed of its own for each thing that a run's seed decides."""
    return int.from_bytes(hashlib.sha256(f"{name} {seed}".encode()).digest()[:7], "big")


@contextmanager
def _own_randomness(model: HookedRootModule) -> Generator[None, None, None]:
    """What is drawn inside leaves the global random state outside as it was."""
    with torch.random.fork_rng(cuda_devices(model)):
        yield


@contextmanager
def _trainable(model: HookedRootModule) -> Generator[None, None, None]:
    """Gradients for all weights; which had them before is restored, and none are left behind."""
    before = [(weight, weight.requires_grad) for weight in model.parameters()]
    model.requires_grad_(True)
    try:
        yield
    finally:
        for weight, had in before:
            weight.requires_grad_(had)
            weight.grad = None
