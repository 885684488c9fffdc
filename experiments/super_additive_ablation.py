"""Do core heads hurt more together than one by one, and more out of domain than in-domain?

The Heuristic Core, section 5.3, ablates three core heads together and finds SO-Swap broken. Here: every pair of core heads,
sets grown greedily, the whole core, each against random sets of as many heads of the same layers; what is lost in-domain
against out of domain; whether the full model loses more by a core head than the subnetworks that keep it; and which later heads
depend on the core. The margin (log-odds of the right answer) is read first: accuracy has a floor that hides what is lost beyond
it.

Run: `python -m experiments.super_additive_ablation --preset desk`; the same command resumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from experiments.shared.base import SMOKE_SEEDS, SMOKE_SPARSITIES, Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, nli_desk, nli_paper, smoke
from hc_lens import figures
from hc_lens.data.task import Task
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.stages import Rows, dependence_into, greedy_into, interactions_into, removal_into

QUESTION = "Do core heads hurt more together than one by one, more so out of domain, and which later heads depend on them?"
PLACES = ("ID mean", "OOD mean", "OOD - ID")
SCALE = "margin"


@dataclass(frozen=True)
class Config:
    """The pruned model, the rows of each case, random sets, and how far the greedy set grows."""

    base: Base
    rows: Rows
    controls: int
    greedy: int


def config(preset: Preset, places: Places) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        base = pruned_base(smoke(), places, sparsities=SMOKE_SPARSITIES, seeds=SMOKE_SEEDS)
        return Config(base, Rows(20), 3, 3)
    if preset == "desk":
        return Config(pruned_base(nli_desk(), places), Rows(60, precision="auto"), 5, 5)
    return Config(pruned_base(nli_paper(), places), Rows(500), 50, 5)


@dataclass(frozen=True, eq=False)
class Tables:
    """What was measured: pairs, sets by domain, the greedy path, removal from subnetworks, dependence."""

    pairs: pd.DataFrame
    domains: pd.DataFrame
    greedy: pd.DataFrame
    removal: pd.DataFrame
    dependence: pd.DataFrame


def shown_cases(task: Task, shown: Mapping[str, str]) -> Task:
    """The task with these out-of-domain cases, the paper's four; with all where none are named."""
    return replace(task, ood={case: task.ood[case] for case in shown.values()}) if shown else task


def measure(config: Config) -> Tables:
    """Run every analysis on the first pruning run, which keeps the tables."""
    base = config.base
    pruned, model, core = base.pruned[0], base.trained.model, base.core.heads
    task = shown_cases(base.trained.task, base.trained.setting.shown_cases)
    together = interactions_into(pruned, model, task, core, config.rows, controls=config.controls)
    size = min(config.greedy, len(core))
    return Tables(
        together.pairs,
        together.domains,
        greedy_into(pruned, model, task, core, size, config.rows, controls=config.controls),
        removal_into(pruned, model, task, core, config.rows),
        dependence_into(pruned, model, task, core, config.rows, controls=config.controls),
    )


def whole_core(domains: pd.DataFrame, quantity: str, place: str) -> pd.Series:
    """The row of the largest set, the core."""
    largest = domains["size"] == domains["size"].max()
    rows = domains[largest & (domains["quantity"] == quantity) & (domains["case"] == place) & (domains["scale"] == SCALE)]
    return rows.iloc[0]


def told(tables: Tables) -> str:
    """The answers, on the margin."""
    excess, apart = (whole_core(tables.domains, "excess", place) for place in ("OOD mean", "OOD - ID"))
    inside = whole_core(tables.domains, "excess", "ID mean")
    pairs = tables.pairs[(tables.pairs["case"] == "OOD mean") & (tables.pairs["scale"] == SCALE)]
    more, less = int((pairs["low"] > 0).sum()), int((pairs["high"] < 0).sum())
    removed = tables.removal[(tables.removal["case"] == "OOD mean") & (tables.removal["scale"] == SCALE)]
    removed = removed[removed["head"] != "all together"]
    worse = int((removed["low"] > 0).sum())
    depend = tables.dependence[(tables.dependence["case_group"] == "OOD") & (tables.dependence["through"] == "all paths")]
    alone = depend[(depend["source"] != "all together") & ~depend["among"]]
    strong = alone[(alone["change"] > alone["control_high"])]
    return (
        f"Ablating the whole core costs {_nats(excess)} more than the sum of its heads out of domain, {_nats(inside)} "
        f"in-domain, a difference of {_nats(apart)} (random sets: p = {excess['control_p']:.2g} out of domain). Of "
        f"{len(pairs)} pairs {more} interact positively and {less} negatively out of domain (95 % intervals). {worse} of "
        f"{len(removed)} core heads cost the full model more out of domain than the subnetworks that keep them. {len(strong)} "
        f"of {len(alone)} pairs of a core head and a later head outside the core show a larger change than random heads of "
        "the core head's layer cause."
    )


def _nats(row: pd.Series) -> str:
    return f"{row['value']:+.2f} [{row['low']:+.2f}, {row['high']:+.2f}] nats"


def sections(tables: Tables) -> list[Section]:
    """Figures and tables, in the order of the argument."""
    kept = tables.domains["case"].isin(PLACES) & (tables.domains["size"] == tables.domains["size"].max())
    core = with_interval(tables.domains[kept], "value")
    columns = [
        "quantity",
        "case",
        "scale",
        "value [95 %]",
        "floor_limited",
        "control_mean",
        "control_low",
        "control_high",
        "control_p",
    ]
    mean_pairs = with_interval(tables.pairs[tables.pairs["case"].isin(PLACES)], "interaction")
    removed = with_interval(tables.removal[tables.removal["case"].isin(PLACES)], "difference")
    return [
        Section(
            "pairs",
            "What each pair of core heads costs beyond its two heads",
            "Margin in nats, mean over cases. Orange: more together than one by one. Star: 95 % interval off zero, and outside "
            "random pairs.",
            figures.interaction_matrix(tables.pairs),
            shown=[text_table(core[columns], "The whole core: effect, and excess over the sum of single effects", labels=3)],
            folded=[text_table(mean_pairs, "Every pair", labels=5)],
        ),
        Section(
            "greedy",
            "A set grown by the head that costs most out of domain",
            "Heads were chosen on one half of the rows; shown is the other half. Grey: random sets of as many heads.",
            figures.greedy_path(tables.greedy),
            folded=[text_table(tables.greedy[tables.greedy["case"].isin(PLACES)], "The path", labels=3)],
        ),
        Section(
            "removal",
            "A core head ablated from the full model, against removed from the subnetworks that keep it",
            "`within`: mean effect over subnetworks; `difference`: the full model's effect minus that.",
            None,
            shown=[text_table(removed[removed["scale"] == SCALE], "On the margin (nats)", labels=4)],
            folded=[text_table(removed[removed["scale"] == "accuracy"], "On accuracy (shares)", labels=4)],
        ),
        Section(
            "dependence",
            "Which later heads depend on the core",
            "Change of a later head's output z when a core head is ablated, out of domain, all paths: 1 is as much as ablating "
            "the later head itself. Dot: more than by any random head of the same layer.",
            figures.dependence(
                tables.dependence[(tables.dependence["case_group"] == "OOD") & (tables.dependence["through"] == "all paths")]
            ),
            folded=[text_table(with_interval(tables.dependence, "change"), "Every source and target", labels=3)],
        ),
    ]


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset, places)
    tables = measure(chosen)
    core = chosen.base.core
    return Article(
        title="Core heads ablated together",
        question=QUESTION,
        answer=told(tables),
        sections=sections(tables),
        notes=chosen.base.trained.setting.notes,
        provenance=versions(),
        config={
            "core": [str(head) for head in core.heads],
            "k": core.k,
            "n": core.n,
            "rows of each case": chosen.rows.max_rows,
            "random sets": chosen.controls,
        },
    )


if __name__ == "__main__":
    run_experiment("super_additive_ablation", QUESTION, experiment)
