"""`hc-lens sweep-sparsity`: what pruning harder and harder costs on ID and OOD cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated

import tyro

from hc_lens.cli import output
from hc_lens.cli.grid import GridChoice, checkpoints_of, keep_figure, prune_grid
from hc_lens.cli.options import Common, parse

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.statistics import SeedMean


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

    if not 0 < args.drop < 1:
        raise ValueError(f"--drop is an accuracy in (0, 1), got {args.drop}")
    final = checkpoints_of(args.finetuned, "sweep-sparsity")[-1:]
    gridded = prune_grid("sweep-sparsity", args.finetuned, final, args.grid, args.common)

    from hc_lens.analysis.sweep import fall_gap, falls_at, sparsity_trend
    from hc_lens.figures import accuracy_vs_sparsity

    sweep = gridded.evaluation
    trend = sparsity_trend(sweep)
    falls = falls_at(sweep, drop=args.drop)
    told = trend.drop(columns="n").merge(falls.drop(columns=["low", "high"]), on=["case", "group"])
    output.keep(sweep, gridded.directory, "accuracy_by_sparsity")
    output.keep(told, gridded.directory, "sparsity_trend")
    keep_figure(accuracy_vs_sparsity(sweep), gridded.directory, "accuracy_vs_sparsity")
    output.table(_by_sparsity(sweep), f"mean accuracy over {len(args.grid.seeds)} seeds, by sparsity")
    output.table(told, f"rank correlation with sparsity, and the sparsity at which accuracy first falls by {args.drop:g}")
    both = set(falls["group"]) == {"ID", "OOD"}
    output.headline(gridded.directory, _headline(trend, fall_gap(sweep, drop=args.drop) if both else None, args.drop))


def _by_sparsity(sweep: pd.DataFrame) -> pd.DataFrame:
    """One row per case, the full model's accuracy, then one column per sparsity."""
    whole = sweep[sweep["subnetwork"] == "full"].set_index("case")
    pruned = sweep[sweep["subnetwork"] != "full"]
    wide = pruned.pivot_table(index="case", columns="target", values="accuracy", sort=False)
    wide.columns = [f"{target:g}" for target in wide.columns]
    targets = [f"{target:g}" for target in sorted(pruned["target"].unique())]  # one of which every seed collapsed stays empty
    return whole[["group"]].assign(full=whole["accuracy"]).join(wide.reindex(columns=targets)).reset_index()


def _headline(trend: pd.DataFrame, gap: SeedMean | None, drop: float) -> str:
    from hc_lens.analysis.sweep import MEAN

    means = trend[trend["case"] == MEAN].set_index("group")["rho"]
    ranks = ", ".join(f"{rho:.2f} {group}" for group, rho in means.items())
    told = f"rank correlation of accuracy with sparsity {ranks}"
    if gap is None:
        return told
    if gap.n == 0:
        return f"{told}; no seed falls by {drop:g} both in-domain and out of domain"
    interval = "" if gap.n == 1 else f" [{gap.low:+.2f}, {gap.high:+.2f}]"
    return f"{told}; in-domain falls by {drop:g} at a sparsity {gap.mean:+.2f}{interval} from out of domain ({gap.n} seeds)"
