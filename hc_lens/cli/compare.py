"""`hc-lens compare`: pruning runs side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.cli import output
from hc_lens.cli.grid import keep_figure
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import RunPaths, each_once, parse
from hc_lens.stages import Pruned, evaluation_of, open_pruned
from hc_lens.stages.members import require_different_runs

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.analysis import Comparison, SharedCore


@dataclass(frozen=True)
class Arguments:
    """Compare pruning runs of one model (two sparsities), or of models of the same shape (fine-tuning seeds, checkpoints)."""

    runs: RunPaths
    """Two pruning runs or more. Head L4.H0 of one must be that of the other: the models come from one pretrained model."""
    k: Count | None = None
    """A core head is kept by at least so many of a run's subnetworks; all by default."""
    seed: Natural = 0
    """Draws the bootstrap of the intervals."""
    out: Path | None = None
    """A directory that gets the tables as CSV files and the figures as HTML; the runs are only read."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Compare the runs' heads, cores and accuracies."""
    args = parse(Arguments, "compare", words)

    paths = each_once(args.runs)
    if len(paths) < 2:
        raise ValueError(f"give two different RUNs or more, got {len(args.runs)} (see hc-lens compare --help)")
    pruned = [open_pruned(path) for path in paths]
    require_different_runs(pruned)
    names = _names(paths)

    from hc_lens.analysis import shared_over

    cores = shared_over([p.subnetworks for p in pruned], args.k, names)
    _show_cores(cores, args.out)
    _show_pairs(pruned, cores, args)
    _show_accuracy(pruned, names, args.out)
    text = _headline(cores, len({p.means.model for p in pruned}))
    if args.out is None:
        print(f"\n{text}")
    else:
        output.headline(args.out, text)


def _names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The end of each path, as long as it takes to tell the runs apart."""
    parts = [path.resolve().parts for path in paths]
    for length in range(1, max(map(len, parts))):
        ends = tuple("/".join(each[-length:]) for each in parts)
        if len(set(ends)) == len(ends):
            return ends
    return tuple(str(path.resolve()) for path in paths)


def _show_cores(cores: SharedCore, out: Path | None) -> None:
    import pandas as pd

    rows = pd.DataFrame(
        {
            "run": cores.names,
            "k": [core.k for core in cores.cores],
            "n": [core.n for core in cores.cores],
            "core": [len(core.heads) for core in cores.cores],
            "heads": [" ".join(map(str, core.heads)) for core in cores.cores],
        }
    )
    output.table(rows, "heads that at least k of the n subnetworks of a run keep")
    output.keep(rows, out, "cores")
    output.keep(cores.frequency, out, "core_frequency")
    if len(cores.names) > 2:
        print(f"\nJaccard similarity of the cores\n{cores.jaccard.to_string(float_format=lambda value: f'{value:.3f}')}")
    if out is not None:
        from hc_lens.figures import jaccard_heatmap

        keep_figure(jaccard_heatmap(cores.jaccard), out, "core_jaccard")


def _show_pairs(pruned: Sequence[Pruned], cores: SharedCore, args: Arguments) -> None:
    """How alike each two runs are."""
    import pandas as pd

    from hc_lens.analysis import compare_runs

    tables: list[pd.DataFrame] = []
    for i, j in combinations(range(len(pruned)), 2):
        names = (cores.names[i], cores.names[j])
        found = compare_runs(pruned[i].subnetworks, pruned[j].subnetworks, args.k, names, seed=args.seed)
        output.table(found.pairs, f"Jaccard similarity of the heads of two subnetworks: {names[0]} and {names[1]}")
        print(f"rank correlation of head frequencies: {found.rank.rho:.3f} (p = {found.rank.p_value:.2g})")
        tables.append(found.pairs.assign(first=names[0], second=names[1], rank=found.rank.rho))
        if args.out is not None:
            _draw(found, names, (len(pruned[i].subnetworks), len(pruned[j].subnetworks)), args.out, f"{i + 1}-{j + 1}")
    output.keep(pd.concat(tables, ignore_index=True), args.out, "jaccard")


def _draw(found: Comparison, names: tuple[str, str], sizes: tuple[int, int], out: Path, which: str) -> None:
    from hc_lens.figures import frequency_scatter, jaccard_heatmap

    keep_figure(frequency_scatter(found.frequency, names), out, f"frequency_{which}")
    keep_figure(jaccard_heatmap(found.similarity, sizes), out, f"jaccard_{which}")


def _show_accuracy(pruned: Sequence[Pruned], names: Sequence[str], out: Path | None) -> None:
    """Each later run's accuracies against the first's."""
    import pandas as pd

    from hc_lens.analysis import accuracy_difference

    if missing := [
        name for p, name in zip(pruned, names, strict=True) if not p.run.file("evaluation/full", "parquet").exists()
    ]:
        output.say(f"{missing[0]} was not evaluated (hc-lens evaluate): accuracies are not compared")
        return
    first, *later = [evaluation_of(p) for p in pruned]
    tables: list[pd.DataFrame] = []
    for p, name, evaluation in zip(pruned[1:], names[1:], later, strict=True):
        if not {*first["case"]} & {*evaluation["case"]}:
            output.say(f"{names[0]} and {name} have no case in common: their accuracies are not compared")
            continue
        table = accuracy_difference(first, evaluation)
        if same := _same_rows(pruned[0], p):
            agreement = accuracy_difference(first, evaluation, column="agreement")
            table = table.assign(agreement_difference=agreement["difference"])
        else:
            output.say(f"{names[0]} and {name} were evaluated on other rows: their differences hold that difference, too")
        shown = table.drop(columns=["n_first", "n_second"])
        output.table(shown, f"accuracy of {name} minus {names[0]}, means over seeds, Welch's 95 % interval")
        tables.append(table.assign(run=name, against=names[0], same_rows=same))
    if tables:
        output.keep(pd.concat(tables, ignore_index=True), out, "accuracy_difference")


def _same_rows(first: Pruned, second: Pruned) -> bool:
    """Whether both were evaluated on the same rows of the same task."""
    options = [p.run.read_json("evaluation/full.options") for p in (first, second)]
    told = [{name: value for name, value in each.items() if name != "precision"} for each in options if isinstance(each, dict)]
    return len(told) == 2 and told[0] == told[1]


def _headline(cores: SharedCore, models: int) -> str:
    sizes = ", ".join(str(len(core.heads)) for core in cores.cores)
    of = "one model" if models == 1 else f"{models} models"
    low, high = cores.chance.interval
    shared = " ".join(map(str, cores.heads)) or "none"
    return (
        f"{len(cores.heads)} heads are in the cores ({sizes} heads) of all {len(cores.names)} runs, of {of}: {shared}; by "
        f"chance {cores.chance.mean:.2g} ({low:g} to {high:g}, p = {cores.p_value:.2g})"
    )
