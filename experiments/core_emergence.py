"""When does the heuristic core appear in fine-tuning: before the model generalizes, or with it?

The Heuristic Core, section 6, claims that all core heads are in the subnetworks of the checkpoint just before the model starts
to generalize. Every checkpoint, step 0 (the pretrained encoder) included, is pruned with seeds that took no part in finding the
core, and we ask how much of the core their subnetworks hold, against chance; how each core head's attention to repeated words
and the cost of its ablation develop; and whether the core is whole at the last checkpoint before the onset of generalization.

Run: `python -m experiments.core_emergence --preset desk`; the same command resumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pandas as pd

from experiments.shared.base import SEEDS, SMOKE_SEEDS, SMOKE_SPARSITIES, SPARSITIES, Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, Setting, nli_desk, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis import (
    Emergence,
    ablate,
    attention_scores,
    core_emergence,
    core_head_development,
    onset,
    whole_before_onset,
)
from hc_lens.analysis.generalization import BeforeOnset
from hc_lens.means import ActivationMeans
from hc_lens.report import Article, Section, p_text, text_table, with_interval
from hc_lens.stages import Measuring, core_of, remembered
from hc_lens.sweep import (
    AtCheckpoint,
    chosen_checkpoints,
    over_checkpoints,
    prune_checkpoints_into,
    subnetworks_by_step,
)
from hc_lens.train import evaluations

QUESTION = (
    "Are all heads of the heuristic core already in the subnetworks of the checkpoint just before the model starts to "
    "generalize, and how do they get there?"
)


@dataclass(frozen=True)
class Config:
    """What is pruned, and what counts as generalizing.

    Attributes:
        core_seeds, sparsities: of the subnetworks whose shared heads are the core.
        seeds: of the checkpoints' subnetworks: others than the core's, so that the final checkpoint is no special case.
        level: accuracy, averaged over the setting's onset cases, that marks the onset.
        rows: of each case, for attention and ablation at every checkpoint.
    """

    setting: Setting
    steps: tuple[int, ...] | None
    core_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    sparsity: float
    level: float
    measuring: Measuring
    rows: int
    sparsities: tuple[float, ...] = SPARSITIES


def config(preset: Preset) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        return Config(smoke(), None, SMOKE_SEEDS, (54, 55), 0.5, 0.6, Measuring(500, 20), 20, SMOKE_SPARSITIES)
    if preset == "desk":
        steps = (0, 300, 600, 900, 1_200, 1_500, 1_800, 2_400)
        return Config(nli_desk(), steps, SEEDS, (54, 55, 56), 0.5, 0.75, Measuring(10_000, 100, "auto"), 40)
    steps = (0, 500, *range(6_500, 54_501, 6_000))
    return Config(nli_paper(), steps, SEEDS, (54, 55, 56), 0.5, 0.25, Measuring(100_000), 200)


def development(base: Base, found: Sequence[AtCheckpoint], config: Config) -> pd.DataFrame:
    """Attention of the core heads at every checkpoint and, once there is a trained head, what ablating each costs.

    Both tables are kept in the checkpoint's pruning run.
    """
    model, task, heads = base.trained.model, base.trained.task, base.core.heads
    length = config.setting.train.max_length
    options = {"task": task.fingerprint, "heads": [str(head) for head in heads], "rows": config.rows}

    def attention() -> pd.DataFrame:
        pooled = attention_scores(model, task, max_rows=config.rows, max_length=length, shuffle=False).pooled()
        return pooled.table(n_bootstrap=500)

    def effects(means: ActivationMeans) -> pd.DataFrame:
        singles = [[head] for head in heads]
        precision = config.setting.precision
        measured = ablate(model, task, means, singles, max_rows=config.rows, max_length=length, precision=precision)
        return measured.table(n_bootstrap=500)

    scores: list[pd.DataFrame] = []
    losses: list[pd.DataFrame] = []
    checkpoints = {checkpoint.step: checkpoint for checkpoint in chosen_checkpoints(base.trained.finetuned)}
    for at in found:
        checkpoints[at.step].load_into(model)
        run, means = at.pruned[0].run, at.pruned[0].means
        scores.append(remembered(run, "core-attention", options, attention).assign(step=at.step))
        if at.step > 0:
            table = remembered(run, "core-effects", options, partial(effects, means))
            losses.append(table.assign(step=at.step))
    return core_head_development(heads, pd.concat(scores, ignore_index=True), pd.concat(losses, ignore_index=True))


def run(config: Config, places: Places) -> Article:
    """Find the core, prune every checkpoint, follow the core heads, and tell."""
    base = pruned_base(config.setting, places, sparsities=config.sparsities, seeds=config.core_seeds)
    core = core_of(base.pruned, base.core.k)
    chosen = chosen_checkpoints(base.trained.finetuned, config.steps)
    pruning = [config.setting.prune(config.sparsity)]
    out = places.own / "checkpoints"
    found = prune_checkpoints_into(out, base.trained.task, chosen, pruning, config.seeds, config.measuring, places.pool)
    emergence = core_emergence(subnetworks_by_step(found), core=core)
    training = evaluations(base.trained.finetuned)
    start = onset(training, level=config.level, cases=config.setting.onset_cases or None)
    return article(
        Measured(
            config,
            base,
            emergence,
            whole_before_onset(emergence, start),
            training,
            development(base, found, config),
            over_checkpoints(found),
            tuple(f"step {at.step}, {text}" for at in found for run in at.pruned for text in run.warnings),
        )
    )


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that the report tells: `training` is the full model's evaluation, `subnetworks` theirs, by checkpoint."""

    config: Config
    base: Base
    emergence: Emergence
    before: BeforeOnset
    training: pd.DataFrame
    development: pd.DataFrame
    subnetworks: pd.DataFrame
    warnings: tuple[str, ...]


def recall_section(found: Measured) -> Section:
    """How much of the core is in each checkpoint's subnetworks, beside accuracy."""
    core, steps, onset_found = found.base.core, found.emergence.steps, found.before.onset
    recall = with_interval(steps, "recall", percent=True).assign(p_value=steps["p_value"].map(p_text))
    columns = ["step", "n", "heads", "recall (%) [95 %]", "chance", "p_value", "jaccard_final", "rank"]
    cores = found.emergence.cores.assign(p_value=found.emergence.cores["p_value"].map(p_text))
    accuracy = accuracy_table(found)
    return Section(
        "emergence",
        "Recall of the core over fine-tuning",
        f"Core: {len(core.heads)} heads kept by {core.k} of {core.n} subnetworks of the final model "
        f"({' '.join(map(str, core.heads))}). Each checkpoint was pruned with {len(found.config.seeds)} other seeds. Chance: "
        "random subnetworks with as many heads in each layer.",
        figures.emergence_curves(
            found.training, steps, onset=onset_found.step, level=found.config.level, cases=onset_found.cases
        ),
        shown=[
            text_table(recall[columns], "The core in each checkpoint's subnetworks", percent=["chance"], digits={"heads": 1})
        ],
        folded=[
            text_table(accuracy, "Mean accuracy over cases (%)", percent=[str(c) for c in accuracy.columns[1:]]),
            text_table(cores, "The core of each checkpoint's own subnetworks"),
        ],
    )


def accuracy_table(found: Measured) -> pd.DataFrame:
    """Mean accuracy over cases of the full model and of its subnetworks, in domain and out of domain, by checkpoint."""
    full = found.training[found.training["step"].isin(found.emergence.steps["step"])]
    pruned = found.subnetworks[found.subnetworks["subnetwork"] != "full"]
    means = [
        each.groupby(["step", "group"])["accuracy"].mean().unstack().add_prefix(f"{name} ")
        for name, each in (("full", full), ("subnetworks", pruned))
    ]
    return pd.concat(means, axis=1).reset_index()


def head_sections(found: Measured) -> list[Section]:
    """When each core head enters, and how it develops."""
    heads, start = found.emergence.heads, found.before.onset.step
    return [
        Section(
            "entry",
            "When each core head enters",
            "How many of the checkpoint's subnetworks keep each core head.",
            figures.core_entry(heads, start),
            folded=[text_table(heads, "Subnetworks that keep each core head", labels=3)],
        ),
        Section(
            "development",
            "What each core head attends to, and what its ablation costs, at every checkpoint",
            "Overlap attention: share of a word's attention that goes to the same word in the other sentence. Effect: accuracy "
            "that the full model of that checkpoint loses when the head is mean-ablated, mean over cases.",
            figures.core_head_development(found.development, start),
            folded=[text_table(with_interval(found.development, "value"), "Core heads over fine-tuning", labels=4)],
        ),
    ]


def article(found: Measured) -> Article:
    """The report."""
    config = found.config
    return Article(
        title="When the heuristic core emerges",
        question=QUESTION,
        answer=found.before.sentence,
        sections=[recall_section(found), *head_sections(found)],
        warnings=found.warnings,
        notes=config.setting.notes,
        provenance=versions(),
        config={
            "seeds": config.seeds,
            "sparsity": config.sparsity,
            "onset": {"level": config.level, "cases": found.before.onset.cases},
        },
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("core_emergence", QUESTION, experiment)
