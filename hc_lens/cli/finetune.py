"""`hc-lens finetune`: a classifier from a model and a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, TaskChoice, device_of_name, parse, peek
from hc_lens.limits import Count
from hc_lens.runs import digest
from hc_lens.sample import Sample
from hc_lens.study import DEMO, embedded_model
from hc_lens.train import TrainConfig

if TYPE_CHECKING:
    import torch

    from hc_lens.data import Task
    from hc_lens.models import Classifier

Preset = Literal["embedded", "plain", "paper-mnli", "paper-qqp"]

PRESETS: dict[str, TrainConfig] = {
    "embedded": DEMO.train,
    "plain": TrainConfig(),
    "paper-mnli": TrainConfig.paper_mnli(),
    "paper-qqp": TrainConfig.paper_qqp(),
}


@dataclass(frozen=True)
class Arguments:
    """Fine-tune a classifier on a task, with ID and OOD evaluation at every checkpoint."""

    model: str = "embedded"
    """embedded (a small BERT for --task synthetic), minilm, a directory in Hugging Face format, or a hub name."""
    preset: Preset | None = None
    """Where the training options below start from; by default embedded for the embedded model, plain for others."""
    eval_rows: Count | None = 500
    """Rows of each case evaluated at each checkpoint; None for all."""
    training: tyro.conf.OmitArgPrefixes[TrainConfig] = field(default_factory=TrainConfig)
    task: tyro.conf.OmitArgPrefixes[TaskChoice] = field(default_factory=TaskChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Fine-tune, and leave the model in the run's directory."""
    model_name = peek(words, "--model", str, "embedded")
    preset = peek(words, "--preset", str, "embedded" if model_name == "embedded" else "plain")
    start = PRESETS.get(preset, TrainConfig())
    start = with_steps(start, peek(words, "--steps", int, start.steps))
    args = parse(Arguments, "finetune", words, Arguments(training=start))

    from hc_lens.metrics import evaluate
    from hc_lens.train import evaluations, finetune

    device = device_of_name(args.common.device)
    task = args.task.load()
    model = starting_model(args.model, task, device, args.training.seed)
    recipe = {"model": args.model, "task": args.task.as_json(), "config": asdict(args.training)}
    directory = args.common.out or Path("runs") / f"finetune-{digest(recipe)[:12]}"
    output.say(f"fine-tuning {args.model} on {task.name}: {len(task.train)} pairs, {args.training.steps} steps, on {device}")
    finetune(
        model,
        task,
        args.training,
        directory,
        evaluate=partial(evaluate, sample=Sample(args.eval_rows, max_length=args.training.max_length), trained=False),
    )
    table = evaluations(directory)
    output.table(output.last_checkpoint(table), "accuracy of the fine-tuned model")
    output.headline(directory, output.training_headline(table))


def with_steps(config: TrainConfig, steps: int) -> TrainConfig:
    """The configuration for another number of steps: at most a tenth of them are warm-up."""
    return replace(config, steps=steps, warmup_steps=min(config.warmup_steps, steps // 10))


def starting_model(name: str, task: Task, device: torch.device, seed: int) -> Classifier:
    """The model that fine-tuning starts from, with the task's labels.

    Raises:
        ValueError: for the embedded model on other words than its own.
        FileNotFoundError: for a name that is neither a directory nor a hub model.
    """
    from hc_lens.models import load_model, minilm_directory

    if name != "embedded":
        return load_model(minilm_directory() if name == "minilm" else name, labels=task.labels, device=device, seed=seed)
    if not task.name.startswith("synthetic"):
        raise ValueError(
            f"--model embedded knows only the words of --task synthetic, not of {task.name}: give --model minilm or your own"
        )
    return embedded_model(seed).to(device)
