"""`hc-lens effective-size`: how small a faithful subnetwork is, checkpoint by checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from hc_lens.analysis.choices import Curve, Semantics
from hc_lens.cli import output
from hc_lens.cli.grid import GridChoice, Gridded, checkpoints_of, keep_figure, prune_grid
from hc_lens.cli.numbers import Natural
from hc_lens.cli.options import Common, parse

if TYPE_CHECKING:
    import pandas as pd


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

    gridded = _published(args) if args.published is not None else _pruned(args)

    import pandas as pd

    from hc_lens.analysis.effective_size import effective_size
    from hc_lens.figures import effective_size_curves

    output.keep(gridded.evaluation, gridded.directory, "accuracy_by_checkpoint")
    sizes: list[pd.DataFrame] = []
    for semantics in dict.fromkeys(args.semantics):
        table = effective_size(gridded.evaluation, semantics=semantics, tolerance=args.tolerance, curve=args.curve)
        sizes.append(table)
        keep_figure(effective_size_curves(table), gridded.directory, f"effective_size_{semantics}")
        output.table(_by_step(table), f"effective size in %, {semantics.replace('_', ' ')}, {args.curve} curve")
    output.keep(pd.concat(sizes, ignore_index=True), gridded.directory, "effective_size")
    output.headline(gridded.directory, _headline(sizes[0]))


def _pruned(args: Arguments) -> Gridded:
    chosen = checkpoints_of(args.finetuned, "effective-size", args.steps or None)
    return prune_grid("effective-size", args.finetuned, chosen, args.grid, args.common)


def _published(args: Arguments) -> Gridded:
    import pandas as pd

    from hc_lens.analysis.published import published_grid, published_training

    folder = args.published
    if args.finetuned or folder is None:
        raise ValueError("give either FINETUNED or --published, not both")
    full = published_training(folder / "mnli-acc_over_ft.json")
    grid = published_grid(folder / "mnli-sparsity-grid-acc.json", failures="failed")
    return Gridded(args.common.out or Path("runs") / "effective-size-published", pd.concat([full, grid], ignore_index=True))


def _by_step(table: pd.DataFrame) -> pd.DataFrame:
    """One row per checkpoint: the size on each set with its interval, and the full model's accuracy."""
    import pandas as pd

    wide = table.pivot(index="step", columns="set", values=["size", "low", "high", "full"])
    columns: dict[str, object] = {}
    for name in (name for name in ("ID", "OOD", "mixed") if name in set(table["set"])):
        of_set = wide.xs(name, axis=1, level="set")
        columns[name] = of_set["size"].round(1)
        columns[f"{name} interval"] = [
            "" if pd.isna(low) else f"{low:.1f}..{high:.1f}" for low, high in zip(of_set["low"], of_set["high"], strict=True)
        ]
        columns[f"full {name}"] = of_set["full"]
    return pd.DataFrame(columns, index=wide.index).reset_index()


def _headline(table: pd.DataFrame) -> str:
    from hc_lens.figures.style import percent

    ends = [table["step"].min(), table["step"].max()]
    kept = table[table["step"].isin(ends)].pivot(index="set", columns="step", values="size")
    names = {"ID": "in-domain", "OOD": "out of domain", "mixed": "mixed"}
    told = ", ".join(
        f"{label} " + " to ".join(f"{kept.loc[name, step]:.1f}" for step in dict.fromkeys(ends))
        for name, label in names.items()
        if name in kept.index
    )
    floors = table[table["floor"]].groupby("set")["step"].nunique()
    worthless = "".join(
        f"; {names[str(name)]}, the full model is below {percent(float(table['tolerance'].iloc[0]))} at {count} of "
        f"{table['step'].nunique()} checkpoints, where any subnetwork is faithful"
        for name, count in floors.items()
    )
    when = f"step {ends[0]}" if ends[0] == ends[1] else f"steps {ends[0]} to {ends[1]}"
    return f"effective size in %, {table['semantics'].iloc[0].replace('_', ' ')}, {when}: {told}{worthless}"
