"""`hc-lens sweep-sparsity`: what pruning harder and harder costs on ID and OOD cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import tyro

from hc_lens.cli.grid import GridChoice, ask_of, finetuning_run
from hc_lens.cli.options import Common, parse
from hc_lens.questions import SparsitySweep


@dataclass(frozen=True)
class Arguments:
    """Prune the final model of a fine-tuning run at every sparsity: accuracy by case, and where it falls."""

    finetuned: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FINETUNED", help_behavior_hint="(required)")] = ""
    """A finished fine-tuning run."""
    drop: float = 0.03
    """How far below the full model an accuracy has fallen: 0.03 is three points."""
    grid: tyro.conf.OmitArgPrefixes[GridChoice] = field(default_factory=GridChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Prune and evaluate, and leave the runs, tables and the figure in the directory."""
    args = parse(Arguments, "sweep-sparsity", words)
    question, choice = SparsitySweep(args.drop), args.grid
    run = finetuning_run(args.finetuned, "sweep-sparsity", args.common.device)
    grid = choice.grid(choice.ascending(), (), args.common, choice.path)
    ask_of(run, replace(question, grid=grid), choice, args.common.out)
