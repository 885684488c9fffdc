"""`hc-lens modular icl`: one setting of in-context learning modulo p, its accuracy by shot and its phase."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, device_of_name, parse
from hc_lens.limits import Count, Natural
from hc_lens.modular.incontext.config import Data, InContextConfig, ModelConfig, TaskRule, Training
from hc_lens.precision import Precision
from hc_lens.runs import digest

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Arguments:
    """Train a transformer on tasks z = a x + b y mod p, and ask it for answers after 0, 1, 2, ... examples.

    Four sets: tasks seen in training or not, examples (x, y) seen in training or not. The defaults are small; the paper's
    setting is --p 29 --tasks 512 --fraction 0.6 --shots 32 --width 512 --init-std 0.02 --steps 200000 --batch 1024 --lr 1.5e-4
    --weight-decay 2 --warmup 10000.
    """

    p: Count = 5
    """The modulus, a prime."""
    tasks: Count = 20
    """Tasks of pre-training, of p^2."""
    rule: TaskRule = "parallelogram"
    """How they are chosen: in fours that share their coefficients, or at random."""
    fraction: float = 0.7
    """Share of the p^2 pairs (x, y) that training examples are drawn from."""
    shots: Natural = 12
    """Examples in a sequence."""
    repeats: bool = False
    """Let an example come again in its sequence, in training."""
    depth: Count = 2
    """Blocks."""
    width: Count = 32
    """Of the residual stream."""
    heads: Count = 4
    """In each block."""
    init_std: float = 0.1
    """Of the first weights."""
    steps: Count = 2_000
    """Training steps."""
    batch: Count = 120
    """Sequences in a step, a multiple of the tasks."""
    lr: float = 3e-3
    """Highest learning rate."""
    weight_decay: float = 0.1
    """Decoupled, of matrices."""
    warmup: Natural = 200
    """Steps of warm-up."""
    every: Count = 500
    """Steps between checkpoints, each of which is evaluated."""
    seed: Natural = 0
    """Of tasks, examples, weights and batches."""
    precision: Precision = "fp32"
    """Of matrix products and attention: fp32, bf16, or auto for whichever is faster here."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Train the setting, or go on with it, and print what it can do."""
    args = parse(Arguments, "modular icl", words)
    config = setting(args)

    from hc_lens.modular.incontext.training import train_in_context

    directory = args.common.out or Path("runs") / f"modular-icl-{digest(asdict(config))[:12]}"
    device = device_of_name(args.common.device)
    output.say(f"{args.tasks} of {args.p**2} tasks modulo {args.p}, {args.steps} steps, on {device}, in {directory}")
    found = train_in_context(config, directory, device=device)
    evaluation = found.evaluations()
    last = evaluation[evaluation["step"] == evaluation["step"].max()]
    output.table(by_shot(last), "accuracy by the number of examples before the query")
    output.headline(directory, headline(last, config))


def setting(args: Arguments) -> InContextConfig:
    """The configuration that was asked for; at most a tenth of the steps are warm-up.

    Raises:
        ValueError: naming the field that cannot be.
    """
    training = Training(
        steps=args.steps,
        batch_size=args.batch,
        lr=args.lr,
        weight_decay=args.weight_decay,
        warmup_steps=min(args.warmup, args.steps // 10),
        checkpoint_every=args.every,
        evaluate=1_000,
        seed=args.seed,
        precision=args.precision,
    )
    return InContextConfig(
        Data(args.p, args.tasks, args.fraction, args.shots, args.rule, args.repeats, args.seed),
        ModelConfig(args.depth, args.width, args.heads, args.init_std),
        training,
    )


def by_shot(last: pd.DataFrame) -> pd.DataFrame:
    """One row per number of examples, one column per set; empty where a set has no longer sequences."""
    from hc_lens.modular.incontext.evaluation import EvaluationSet

    names = [str(EvaluationSet(*of)) for of in zip(last["tasks"], last["examples"], strict=True)]
    table = last.assign(set=names, examples=last["shot"] - 1).pivot(index="examples", columns="set", values="accuracy")
    return table[list(dict.fromkeys(names))].reset_index()


def headline(last: pd.DataFrame, config: InContextConfig) -> str:
    """The phase, and the accuracies that make it."""
    from hc_lens.modular.incontext.evaluation import THRESHOLD, last_shot, phase_of

    accuracies = last_shot(last)
    said = ", ".join(f"{accuracy:.3f} on {of}" for of, accuracy in accuracies.items())
    return f"phase: {phase_of(accuracies)} (from {THRESHOLD:g} on): {said}; chance {1 / config.data.p:.3f}"
