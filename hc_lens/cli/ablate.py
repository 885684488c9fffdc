"""`hc-lens ablate`: what heads do alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.heads import chosen_heads
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import Computing, RunPath, device_of_name, parse
from hc_lens.cli.origin import model_and_task
from hc_lens.cli.together import Asked, Together, measure
from hc_lens.precision import Precision
from hc_lens.stages import ablate_into, open_pruned
from hc_lens.stages.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.units import Head


@dataclass(frozen=True)
class Arguments:
    """Mean-ablate every head of the full model alone, and the core together: what it costs on ID and OOD cases."""

    run: RunPath
    """A pruning run whose core was found, or any pruning run with --heads."""
    heads: tuple[str, ...] = ()
    """A set to ablate together, as L4.H0 L5.H2, in place of the core."""
    controls: Natural = 20
    """Random sets of as many heads from the same layers, for comparison."""
    max_rows: Count | None = 500
    """Rows of each case; None for all."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them, the random sets, and the bootstrap of the intervals."""
    batch_size: Count = 64
    """Rows in one forward pass."""
    precision: Precision = "fp32"
    """Of matrix products: fp32, bf16, or auto for whichever is faster here."""
    together: tyro.conf.OmitArgPrefixes[Together] = field(default_factory=Together)
    common: tyro.conf.OmitArgPrefixes[Computing] = field(default_factory=Computing)


def main(words: Sequence[str]) -> None:
    """Ablate, and leave the tables in the run."""
    args = parse(Arguments, "ablate", words)
    pruned = open_pruned(args.run)
    heads = chosen_heads(pruned, args.heads)
    device = device_of_name(args.common.device)
    model, task = model_and_task(pruned.run, device)
    pruned.means.require_model(model)
    name = "chosen heads" if args.heads else "core"
    tables = ablate_into(
        pruned,
        model,
        task,
        {name: heads},
        max_rows=args.max_rows,
        controls=args.controls,
        batch_size=args.batch_size,
        precision=args.precision,
        seed=args.seed,
    )
    output.keep(tables.effects, args.common.out, "effects")
    output.keep(tables.additivity, args.common.out, "additivity")
    effects = tables.effects[tables.effects["scale"] == "accuracy"]
    output.table(_wide(effects, [str(head) for head in heads]), "accuracy lost when a head, or all of them, is ablated")
    if not tables.additivity.empty:
        output.table(
            tables.additivity[["case", "scale", "joint", "summed", "excess", "low", "high", "floor_limited", "control_mean"]],
            "loss together (joint) and minus the sum of single losses (excess)",
        )
    rows = Rows(args.max_rows, args.seed, args.batch_size, args.precision)
    told = measure(Asked(pruned, model, task, heads, rows, args.controls, args.common.out), args.together)
    output.headline(args.run, "; ".join([_headline(effects, name, heads), *told]))


def _wide(effects: pd.DataFrame, heads: Sequence[str]) -> pd.DataFrame:
    """One row per case; a column for each of these heads, for the mean of the others, and for the sets."""
    single = effects[effects["size"] == 1]
    others = single[~single["group"].isin(heads)].groupby("case", sort=False)["effect"].mean()
    shown = effects[effects["group"].isin(heads) | (effects["size"] > 1)]
    wide = shown.pivot_table(index="case", columns="group", values="effect", sort=False)
    return wide.assign(**{"other heads": others}).reset_index()


def _headline(effects: pd.DataFrame, name: str, heads: Sequence[Head]) -> str:
    group = name if len(heads) > 1 else str(heads[0])
    lost = effects[effects["group"] == group].groupby("case_group")["effect"].mean()
    told = ", ".join(f"{100 * value:.1f} points {label}" for label, value in lost.items())
    return f"ablating {'the ' if len(heads) > 1 else ''}{group} ({', '.join(map(str, heads))}) costs {told}"
