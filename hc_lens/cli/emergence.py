"""`hc-lens emergence`: when the heuristic core is there, beside when the model generalizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from hc_lens.cli.grid import PruneChoice, ask_of, finetuning_run
from hc_lens.cli.options import Common, parse
from hc_lens.limits import Count, Natural
from hc_lens.questions import Emergence


@dataclass(frozen=True)
class Arguments:
    """Prune every checkpoint of a fine-tuning run: how much of the final core each has, before generalization and after."""

    finetuned: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FINETUNED", help_behavior_hint="(required)")] = ""
    """A finished fine-tuning run."""
    sparsity: float = 0.5
    """Share of units to remove."""
    steps: tuple[Natural, ...] = ()
    """Which checkpoints, the last among them; all by default."""
    k: Count | None = None
    """A core head is kept by at least so many of the final subnetworks; all by default."""
    core: tuple[Path, ...] = ()
    """Pruning runs of the final model whose core to follow, such as one of more seeds; by default that of the last checkpoint's
    own subnetworks, which hold it by construction."""
    level: float = 0.75
    """Accuracy out of domain that marks the onset of generalization."""
    onset_cases: tuple[str, ...] = ()
    """Cases that the onset is judged on, as many of each label; all out-of-domain ones by default."""
    stays: bool = False
    """Accuracy must stay above the level after the onset."""
    pruning: tyro.conf.OmitArgPrefixes[PruneChoice] = field(default_factory=PruneChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Prune, evaluate and compare, and leave the runs, tables and figures in the directory."""
    args = parse(Arguments, "emergence", words)
    choice = args.pruning
    run = finetuning_run(args.finetuned, "emergence", args.common.device)
    grid = choice.grid([args.sparsity], args.steps, args.common)
    question = Emergence(args.k, args.core, args.level, args.onset_cases, args.stays, grid)
    ask_of(run, question, choice, args.common.out)
