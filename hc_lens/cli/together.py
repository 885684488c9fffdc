"""What `hc-lens ablate` can ask besides: an estimate, pairs, greedy sets, removal from subnetworks, who depends on heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from hc_lens import figures
from hc_lens.cli import output
from hc_lens.cli.grid import keep_figure
from hc_lens.cli.numbers import Natural
from hc_lens.data.task import Task
from hc_lens.stages import Pruned
from hc_lens.stages.estimate import estimate_into
from hc_lens.stages.interaction import dependence_into, greedy_into, interactions_into, removal_into
from hc_lens.stages.rows import Rows
from hc_lens.units import Head

if TYPE_CHECKING:
    from hc_lens.models import Classifier

_SHOWN = 10
"""Units of the estimate that are printed; all are kept."""
_PLACES = ("ID mean", "OOD mean", "OOD - ID")


@dataclass(frozen=True)
class Together:
    """What else to measure of the heads."""

    estimate: bool = False
    """Estimate what every head and MLP costs from one backward pass, and how well that ranks the heads."""
    pairs: bool = False
    """Ablate every pair: which heads make up for each other, in domain and out of domain."""
    greedy: Natural = 0
    """Grow a set of so many heads, each time by the one that costs most out of domain; 0 for none."""
    greedy_from: Literal["core", "all"] = "core"
    """Heads that --greedy chooses from: the core (or --heads), or all of the model."""
    removal: bool = False
    """Remove the heads from every subnetwork of the run, too: does the full model lose more out of domain?"""
    dependence: bool = False
    """How much the output of every later head changes without them."""


@dataclass(frozen=True)
class Asked:
    """The run, its model and task, the heads, the rows, and where tables and figures go besides the run."""

    pruned: Pruned
    model: Classifier
    task: Task
    heads: tuple[Head, ...]
    rows: Rows
    controls: Natural
    out: Path | None


def measure(asked: Asked, options: Together) -> list[str]:
    """Measure what the options ask for, print it, and say each result in half a sentence."""
    told: list[str] = []
    if options.estimate:
        told.append(_estimate(asked))
    if options.pairs:
        told.append(_pairs(asked))
    if options.greedy:
        told.append(_greedy(asked, options))
    if options.removal:
        told.append(_removal(asked))
    if options.dependence:
        told.append(_dependence(asked))
    return told


def _estimate(asked: Asked) -> str:
    tables = estimate_into(asked.pruned, asked.model, asked.task, asked.rows)
    output.keep(tables.estimates, asked.out, "estimates")
    wide = tables.estimates.pivot_table(index="group", columns="case", values="effect", sort=False)
    costliest = wide.mean(axis=1).sort_values(ascending=False).index[:_SHOWN]
    title = f"estimated cost of each head and MLP on the margin (nats): the {len(costliest)} of {len(wide)} that cost most"
    output.table(wide.loc[costliest].rename_axis("unit").reset_index(), title)
    if tables.agreement.empty:
        return f"by the estimate {costliest[0]} costs most"
    output.keep(tables.agreement, asked.out, "agreement")
    output.table(tables.agreement, "rank correlation of the estimate with the exact ablation of every head")
    found = tables.agreement["spearman"]
    return f"the estimate ranks the heads as ablation does to {found.min():.2f}..{found.max():.2f} (Spearman, by case)"


def _pairs(asked: Asked) -> str:
    from hc_lens.analysis import interaction_matrix

    tables = interactions_into(asked.pruned, asked.model, asked.task, asked.heads, asked.rows, controls=asked.controls)
    output.keep(tables.pairs, asked.out, "interactions")
    output.keep(tables.domains, asked.out, "domains")
    if asked.out is not None:
        keep_figure(figures.interaction_matrix(tables.pairs), asked.out, "interaction_matrix")
    places = [place for place in _PLACES if (tables.pairs["case"] == place).any()]
    for place in places:
        matrix = interaction_matrix(tables.pairs, place).rename_axis("head").reset_index()
        output.table(matrix, f"{place}: margin (nats) that a pair costs beyond its two heads; alone on the diagonal")
    wide = tables.domains[tables.domains["case"].isin(places) & (tables.domains["size"] > 2)]
    columns = ["set", "quantity", "case", "scale", "value", "low", "high", "floor_limited", "control_mean", "control_p"]
    if len(wide):
        output.table(wide[columns], "all together: effect, and excess over the sum of single effects")
    place = places[min(1, len(places) - 1)]
    shown = tables.pairs[(tables.pairs["case"] == place) & (tables.pairs["scale"] == "margin")]
    apart = int(((shown["low"] > 0) | (shown["high"] < 0)).sum())
    most = shown.iloc[int(shown["interaction"].abs().argmax())]
    strongest = f"{most['a']} and {most['b']} most ({most['interaction']:+.2f} nats)"
    return f"{apart} of {len(shown)} pairs interact ({place}, 95 %), {strongest}"


def _greedy(asked: Asked, options: Together) -> str:
    from hc_lens.analysis import single_heads

    every = [head for (head,) in single_heads(asked.pruned.means)]
    candidates: Sequence[Head] = every if options.greedy_from == "all" else asked.heads
    table = greedy_into(asked.pruned, asked.model, asked.task, candidates, options.greedy, asked.rows, controls=asked.controls)
    output.keep(table, asked.out, "greedy")
    if asked.out is not None:
        keep_figure(figures.greedy_path(table), asked.out, "greedy_path")
    shown = table[(table["case"] == "OOD mean") & (table["scale"] == "margin")]
    columns = ["size", "added", "joint", "joint_low", "joint_high", "chosen", "summed", "excess", "low", "high", "control_mean"]
    output.table(shown[columns], "the set that costs most out of domain, head by head (margin, rows that did not choose it)")
    last = shown.iloc[-1]
    heads = ", ".join(shown["added"])
    return f"greedily {heads} cost most out of domain: {last['joint']:.2f} nats together, {last['summed']:.2f} one by one"


def _removal(asked: Asked) -> str:
    table = removal_into(asked.pruned, asked.model, asked.task, asked.heads, asked.rows)
    output.keep(table, asked.out, "removal")
    places = table["case"].isin(_PLACES)
    columns = ["head", "case", "scale", "subnetworks", "full_effect", "within", "difference", "low", "high", "floor_limited"]
    output.table(
        table[places][columns], "cost in the full model, and of removal from the subnetworks that keep the head (within)"
    )
    place = "OOD mean" if (table["case"] == "OOD mean").any() else "ID mean"
    shown = table[(table["case"] == place) & (table["scale"] == "margin")].iloc[-1]
    return (
        f"ablating {shown['head']} costs the full model {shown['difference']:+.2f} nats ({shown['low']:+.2f} to "
        f"{shown['high']:+.2f}) against its subnetworks ({place})"
    )


def _dependence(asked: Asked) -> str:
    table = dependence_into(asked.pruned, asked.model, asked.task, asked.heads, asked.rows, controls=asked.controls)
    output.keep(table, asked.out, "dependence")
    group = "OOD" if (table["case_group"] == "OOD").any() else "ID"
    here = table[table["case_group"] == group]
    whole = here[here["through"] == "all paths"]
    if asked.out is not None:
        keep_figure(figures.dependence(whole), asked.out, "dependence")
    most = here.sort_values("change", ascending=False).groupby(["source", "through"], sort=False).head(3)
    columns = ["source", "through", "layer", "head", "among", "change", "low", "high", "control_mean", "control_high"]
    output.table(most[columns], f"later heads whose output changes most without a head ({group}; 1: as if ablated itself)")
    last = whole[whole["source"] == whole["source"].iloc[-1]]
    others = last[~last["among"]]
    beyond = int((others["low"] > others["control_high"]).sum())
    return f"{beyond} of {len(others)} later heads change more without {last['source'].iloc[0]} than without random heads"
