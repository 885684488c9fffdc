"""`hc-lens demo`: the whole line on embedded data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, PoolChoice, Seeds, TaskChoice, device_of_name, parse
from hc_lens.cli.prune import with_steps as with_pruning_steps
from hc_lens.limits import Count, Natural
from hc_lens.precision import Precision
from hc_lens.questions import Accuracy, HeuristicCore
from hc_lens.runs import digest
from hc_lens.study import DEMO, StudyConfig, embedded_model, run_study


@dataclass(frozen=True)
class Arguments:
    """Fine-tune a small model on the embedded task, prune it with many seeds, find and ablate the core, write the report.

    Needs no network and no data; under three minutes on two CPU cores.
    """

    minority: float = 0.06
    """Share of training pairs that break the overlap heuristic: the more, the sooner the model generalizes."""
    seed: Natural = 0
    """Of the data and of the model's first weights."""
    seeds: Seeds = DEMO.seeds
    """One subnetwork each, at every sparsity."""
    sparsities: tuple[float, ...] = tuple(config.sparsity for config in DEMO.prune)
    """Shares of heads and MLPs to remove."""
    train_steps: Count = DEMO.train.steps
    """Steps of fine-tuning."""
    prune_steps: Count = DEMO.prune[0].steps
    """Steps of pruning."""
    precision: Precision = DEMO.train.precision
    """Of training and pruning: fp32, bf16, or auto for whichever is faster on this machine."""
    pool: tyro.conf.OmitArgPrefixes[PoolChoice] = field(default_factory=PoolChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Run it, and leave every step in its own directory beside the report."""
    args = parse(Arguments, "demo", words)
    device, pool = device_of_name(args.common.device), args.pool.on(args.common.device)
    config, choice = study_config(args), TaskChoice(task="synthetic", minority=args.minority, task_seed=args.seed)
    recipe = {"config": asdict(config), "task": choice.as_json()}
    out = args.common.out or Path("runs") / f"demo-{digest(recipe)[:12]}"
    output.say(f"demo in {out}, on {device}; a second call goes on where this one stops")
    task = choice.load()
    study = run_study(embedded_model(args.seed).to(device), task, config, out, pool=pool)
    for answer in study.run.answers():
        if isinstance(answer.question, (Accuracy, HeuristicCore)):
            output.answer(answer, None)
    print(f"\n{study.core.short}: {', '.join(map(str, study.core.heads))}")
    output.headline(study.report, study.headline)


def study_config(args: Arguments) -> StudyConfig:
    """The demo's configuration with what was asked for."""
    from hc_lens.cli.finetune import with_steps

    pruning = replace(with_pruning_steps(DEMO.prune[0], args.prune_steps), precision=args.precision)
    return replace(
        DEMO,
        train=replace(with_steps(DEMO.train, args.train_steps), precision=args.precision),
        prune=tuple(replace(pruning, sparsity=sparsity) for sparsity in args.sparsities),
        seeds=args.seeds,
    )
