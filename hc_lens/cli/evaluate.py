"""`hc-lens evaluate`: the full model and its subnetworks on every case."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import Computing, RunPaths, at_least_one, device_of_name, parse
from hc_lens.cli.origin import model_and_task
from hc_lens.precision import Precision
from hc_lens.stages import evaluate_into, open_pruned

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Arguments:
    """Score the full model and its subnetworks on every ID and OOD case."""

    runs: RunPaths
    """Pruning runs, each evaluated on its own."""
    max_rows: Count | None = None
    """Rows of each case; all by default."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them."""
    batch_size: Count = 64
    """Rows in one forward pass."""
    precision: Precision = "fp32"
    """Of matrix products: fp32, bf16, or auto for whichever is faster here."""
    common: tyro.conf.OmitArgPrefixes[Computing] = field(default_factory=Computing)


def main(words: Sequence[str]) -> None:
    """Evaluate each run, and leave the table in it."""
    args = parse(Arguments, "evaluate", words)

    runs = [open_pruned(path) for path in at_least_one(args.runs, "evaluate")]
    device = device_of_name(args.common.device)

    import pandas as pd

    tables: list[pd.DataFrame] = []
    for path, pruned in zip(args.runs, runs, strict=True):
        model, task = model_and_task(pruned.run, device)
        pruned.means.require_model(model)
        table = evaluate_into(
            pruned,
            model,
            task,
            max_rows=args.max_rows,
            batch_size=args.batch_size,
            precision=args.precision,
            seed=args.seed,
        )
        tables.append(table.assign(run=str(path)))
        cases, subs = output.by_case(table), table[table["subnetwork"] != "full"]
        output.table(cases, f"accuracy by case, {len(pruned.subnetworks)} subnetworks at sparsity {pruned.config.sparsity:g}")
        lost = f"; {pruned.collapse}" if pruned.collapse else ""
        output.headline(path / "evaluation", f"subnetworks: {output.groups(subs)}; {_spread(cases)}{lost}")
    output.keep(pd.concat(tables, ignore_index=True), args.common.out, "evaluation")


def _spread(cases: pd.DataFrame) -> str:
    """The out-of-domain case on which the subnetworks differ most."""
    ood = cases[cases["group"] == "OOD"]
    if ood.empty:
        return "the task has no out-of-domain case"
    spread = ood["max"] - ood["min"]
    widest = ood[spread == spread.max()].iloc[0]
    return f"most apart on {widest['case']}, from {widest['min']:.3f} to {widest['max']:.3f}"
