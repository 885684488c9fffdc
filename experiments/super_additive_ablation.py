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
from hc_lens.data.task import Task
from hc_lens.questions import Dependence, Greedy, Pairs, Removal
from hc_lens.questions.question import Answer
from hc_lens.report import Article
from hc_lens.sample import Sample

QUESTION = "Do core heads hurt more together than one by one, more so out of domain, and which later heads depend on them?"
SCALE = "margin"


@dataclass(frozen=True)
class Config:
    """The pruned model, the rows of each case, random sets, and how far the greedy set grows."""

    base: Base
    sample: Sample
    controls: int
    greedy: int


def config(preset: Preset, places: Places) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        base = pruned_base(smoke(), places, sparsities=SMOKE_SPARSITIES, seeds=SMOKE_SEEDS)
        return Config(base, Sample(20), 3, 3)
    if preset == "desk":
        return Config(pruned_base(nli_desk(), places), Sample(60, precision="auto"), 5, 5)
    return Config(pruned_base(nli_paper(), places), Sample(500), 50, 5)


def shown_cases(task: Task, shown: Mapping[str, str]) -> Task:
    """The task with these out-of-domain cases, the paper's four; with all where none are named."""
    return replace(task, ood={case: task.ood[case] for case in shown.values()}) if shown else task


def ask(config: Config) -> dict[str, Answer]:
    """Every question, by name."""
    base = config.base
    run = base.opened(shown_cases(base.trained.task, base.trained.setting.shown_cases))
    heads = tuple(map(str, base.core.heads))
    questions = (
        Pairs(heads, config.controls),
        Greedy(min(config.greedy, len(heads)), heads=heads, controls=config.controls),
        Removal(heads),
        Dependence(heads, config.controls),
    )
    return {question.name: run.ask(question, config.sample) for question in questions}


def whole_core(domains: pd.DataFrame, quantity: str, place: str) -> pd.Series:
    """The row of the largest set, the core."""
    largest = domains["size"] == domains["size"].max()
    rows = domains[largest & (domains["quantity"] == quantity) & (domains["case"] == place) & (domains["scale"] == SCALE)]
    return rows.iloc[0]


def told(answers: Mapping[str, Answer]) -> str:
    """The answers, on the margin."""
    excess, apart = (whole_core(answers["pairs"]["domains"], "excess", place) for place in ("OOD mean", "OOD - ID"))
    inside = whole_core(answers["pairs"]["domains"], "excess", "ID mean")
    pairs = answers["pairs"]["interactions"].query("case == 'OOD mean' and scale == @SCALE")
    more, less = int((pairs["low"] > 0).sum()), int((pairs["high"] < 0).sum())
    removed = answers["removal"]["removal"].query("case == 'OOD mean' and scale == @SCALE and head != 'all together'")
    worse = int((removed["low"] > 0).sum())
    depend = answers["dependence"]["dependence"].query("case_group == 'OOD' and through == 'all paths'")
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


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    chosen = config(preset, places)
    answers = ask(chosen)
    core = chosen.base.core
    return Article(
        title="Core heads ablated together",
        question=QUESTION,
        answer=told(answers),
        sections=[section for answer in answers.values() for section in answer.sections],
        notes=chosen.base.trained.setting.notes,
        provenance=versions(),
        config={
            "core": [str(head) for head in core.heads],
            "k": core.k,
            "n": core.n,
            "rows of each case": chosen.sample.max_rows,
            "random sets": chosen.controls,
        },
    )


if __name__ == "__main__":
    run_experiment("super_additive_ablation", QUESTION, experiment)
