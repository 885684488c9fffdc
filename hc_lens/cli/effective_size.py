"""`hc-lens effective-size`: how small a faithful subnetwork is, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from hc_lens.analysis.choices import Curve, Semantics
from hc_lens.cli import output
from hc_lens.cli.grid import GridChoice, ask_of, finetuning_run
from hc_lens.cli.options import Common, parse
from hc_lens.limits import Natural
from hc_lens.questions import EffectiveSize


@dataclass(frozen=True)
class Arguments:
    """Prune the checkpoints of a fine-tuning run at every sparsity: the size of the smallest faithful subnetwork of each."""

    finetuned: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FINETUNED", help_behavior_hint="(required)")] = ""
    """A finished fine-tuning run."""
    steps: tuple[Natural, ...] = ()
    """Which checkpoints; all by default."""
    tolerance: float = 0.03
    """How far from the full model's accuracy is still faithful: 0.03 is three points."""
    semantics: tuple[Semantics, ...] = ("as_coded", "as_written")
    """The rule that the paper's code applies, the one that its text describes, or both."""
    curve: Curve = "raw"
    """raw: the sparsest faithful subnetwork; monotone: it and all less sparse ones must be faithful."""
    published: Path | None = None
    """In place of FINETUNED: a folder with the paper's mnli-acc_over_ft.json and mnli-sparsity-grid-acc.json."""
    grid: tyro.conf.OmitArgPrefixes[GridChoice] = field(default_factory=GridChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Prune and evaluate, and leave the runs, tables and figures in the directory."""
    args = parse(Arguments, "effective-size", words)
    if args.published is not None:
        return _published(args, args.published)
    choice = args.grid
    run = finetuning_run(args.finetuned, "effective-size", args.common.device)
    grid = choice.grid(choice.ascending(), args.steps, args.common, choice.path)
    question = EffectiveSize(args.tolerance, args.semantics, args.curve, grid)
    ask_of(run, question, choice, args.common.out)
    return None


def _published(args: Arguments, folder: Path) -> None:
    """The paper's own curves, from its released accuracies."""
    import pandas as pd

    from hc_lens.analysis.published import published_grid, published_training

    if args.finetuned:
        raise ValueError("give either FINETUNED or --published, not both")
    full = published_training(folder / "mnli-acc_over_ft.json")
    grid = published_grid(folder / "mnli-sparsity-grid-acc.json", failures="failed")
    evaluation = pd.concat([full, grid], ignore_index=True)
    answer = EffectiveSize(args.tolerance, args.semantics, args.curve).of_grid(evaluation)
    directory = args.common.out or Path("runs") / "effective-size-published"
    output.answer(answer, directory)
    output.headline(directory, answer.short)
