"""`hc-lens core`: the heads that the subnetworks share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hc_lens.cli import output
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import RunPaths, at_least_one, parse
from hc_lens.stages import Pruned, core_into, open_pruned

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.report import CoreSummary


@dataclass(frozen=True)
class Arguments:
    """The heads that the subnetworks of one or more pruning runs share, against chance."""

    runs: RunPaths
    """Pruning runs of one model; the core is kept in the first."""
    k: Count | None = None
    """A core head is kept by at least so many subnetworks; all by default."""
    permutations: Count = 10_000
    """Of each run's heads within their layers, for the p-value."""
    seed: Natural = 0
    """Draws the permutations."""
    out: Path | None = None
    """A directory that gets the core's heads as a CSV file, too; the first RUN keeps core.json, which later commands read."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Find the core, and leave it in the first run."""
    args = parse(Arguments, "core", words)

    pruned = [open_pruned(path) for path in at_least_one(args.runs, "core")]

    from hc_lens.analysis import jaccard, spearman

    core = core_into(pruned, args.k, args.permutations, seed=args.seed)
    kept = kept_by(pruned, core)
    output.keep(kept, args.out, "core")
    output.table(kept, "heads of the core, and how many subnetworks of each run keep them")
    for p in pruned:
        if len(p.subnetworks) > 1:
            pairs = jaccard(p.subnetworks).to_numpy()[np.triu_indices(len(p.subnetworks), 1)]
            print(f"{p.run.path}: mean Jaccard similarity of two subnetworks' heads {pairs.mean():.3f}")
    if len(pruned) > 1:
        rank = spearman(pruned[0].subnetworks, pruned[1].subnetworks)
        print(f"rank correlation of head frequencies, first run against second: {rank.rho:.3f} (p = {rank.p_value:.2g})")
    for p in pruned:
        if p.collapse:
            print(f"{p.run.path}: {p.collapse}")
    output.headline(pruned[0].run.path / "core.json", headline(core))


def kept_by(pruned: Sequence[Pruned], core: CoreSummary) -> pd.DataFrame:
    """One row per core head, one column per run."""
    import pandas as pd

    rows = {"head": [str(head) for head in core.heads]}
    counts = {str(p.run.path): [sum(head in sub.heads for sub in p.subnetworks) for head in core.heads] for p in pruned}
    return pd.DataFrame(rows | counts)


def headline(core: CoreSummary) -> str:
    """The size of the core beside what chance gives."""
    return (
        f"{len(core.heads)} heads are kept by at least {core.k} of {core.n} subnetworks; independent subnetworks would share "
        f"{core.expected:.3g}, permuted ones {core.null_low:g} to {core.null_high:g} (p = {core.p_value:.2g})"
    )
