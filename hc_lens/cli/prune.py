"""`hc-lens prune`: one subnetwork per seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Literal

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, Seeds, TaskChoice, device_of_name, parse, peek
from hc_lens.cli.origin import Start
from hc_lens.limits import Count
from hc_lens.means import Ablation
from hc_lens.pruning import Keeping, PruneConfig, kept_outcome, means_into, means_spec, prune_into
from hc_lens.runs import digest


@dataclass(frozen=True)
class Arguments:
    """Train gates over the heads and MLPs of a fine-tuned model: one subnetwork per seed."""

    model: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL", help_behavior_hint="(required)")] = ""
    """A fine-tuning run, a model directory in Hugging Face format, or a hub name (the latter two with --task)."""
    seeds: Seeds = tuple(range(42, 54))
    """One subnetwork each: 42..53, or a list."""
    preset: Literal["desk", "paper"] = "desk"
    """Where the pruning options below start from: the short recipe, or every setting of the paper. With --steps, the phases of
    either take their share of the steps."""
    ablation: Ablation = "mean"
    """What stands in for a removed unit."""
    means_rows: Count | None = 100_000
    """Random training rows that the stand-ins are collected on; None for all. They are kept beside the run and used again."""
    pruning: tyro.conf.OmitArgPrefixes[PruneConfig] = field(default_factory=PruneConfig)
    task: tyro.conf.OmitArgPrefixes[TaskChoice] = field(default_factory=TaskChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Prune, and leave the subnetworks in the run's directory."""
    args = parse(Arguments, "prune", words, _defaults(words))

    if not args.model:
        raise ValueError("no MODEL given: name a fine-tuning run, a model directory or a hub name (see hc-lens prune --help)")
    start = Start.find(args.model, args.task)
    device = device_of_name(args.common.device)

    from hc_lens.pruning import PruneError

    model, task = start.load_classifier(device), start.task
    rows, length = args.means_rows, args.pruning.max_length
    stand_ins = means_spec(model, task.train, rows=rows, max_length=length, kind=args.ablation)
    recipe = {"means": stand_ins, "task": task.fingerprint, "config": args.pruning.as_dict(), "seeds": list(args.seeds)}
    directory = args.common.out or Path("runs") / f"prune-{digest(recipe)[:12]}"
    output.say(f"pruning {args.model} to {args.pruning.sparsity:g} sparsity with {len(args.seeds)} seeds, on {device}")
    place = directory.parent / f"means-{digest(stand_ins)[:12]}"
    means = means_into(place, model, task.train, rows=rows, max_length=length, kind=args.ablation)
    origin = start.origin(directory.parent)
    pruned = prune_into(directory, model, task.train, means, args.pruning, args.seeds, Keeping(origin))
    if not pruned.subnetworks:
        raise PruneError("; ".join([*pruned.warnings, kept_outcome(pruned.run, args.seeds)]))
    for text in pruned.warnings:
        output.say(f"warning: {text}")
    if pruned.collapsed:
        output.say(kept_outcome(pruned.run, args.seeds))
    heads = [len(sub.heads) for sub in pruned.subnetworks]
    mlps = [len(sub.mlps) for sub in pruned.subnetworks]
    output.headline(
        directory,
        f"{len(heads)} subnetworks at sparsity {pruned.subnetworks[0].sparsity:.3f}: they keep {min(heads)} to {max(heads)} of "
        f"{means.n_layers * means.n_heads} heads and {min(mlps)} to {max(mlps)} of {means.n_layers} MLPs"
        + (f"; {pruned.collapse}" if pruned.collapse else ""),
    )


def _defaults(words: Sequence[str]) -> Arguments:
    """The defaults that go with the preset, sparsity and steps asked for: a preset's schedule follows from the latter two."""
    sparsity = peek(words, "--sparsity", float, 0.5)
    paper = peek(words, "--preset", str, "desk") == "paper"
    preset = PruneConfig.paper(sparsity) if paper else PruneConfig.desk(sparsity)
    return Arguments(pruning=with_steps(preset, peek(words, "--steps", int, preset.steps)))


def with_steps(config: PruneConfig, steps: int) -> PruneConfig:
    """The configuration for another number of steps: the ramp and the warm-up take the same share of them."""
    share = steps / config.steps
    ramp, warmup = round(config.ramp_steps * share), round(config.warmup_steps * share)
    return replace(config, steps=steps, ramp_steps=ramp, warmup_steps=warmup)
