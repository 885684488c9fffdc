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

from experiments.shared.base import (
    SEEDS,
    SMOKE_SEEDS,
    SMOKE_SPARSITIES,
    SPARSITIES,
    Base,
    opened_finetuned,
    pruned_base,
)
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, Setting, nli_desk, nli_paper, smoke
from hc_lens import figures
from hc_lens.analysis import ablate, attention_scores, core_head_development
from hc_lens.cache import remembered
from hc_lens.means import ActivationMeans
from hc_lens.questions import Emergence
from hc_lens.questions.emergence import onset_step
from hc_lens.questions.grid import Grid
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.sample import Sample
from hc_lens.sweep import AtCheckpoint, chosen_checkpoints

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
    steps: tuple[int, ...]
    core_seeds: tuple[int, ...]
    seeds: tuple[int, ...]
    sparsity: float
    level: float
    means_rows: int
    sample: Sample
    rows: int
    sparsities: tuple[float, ...] = SPARSITIES


def config(preset: Preset) -> Config:
    """What is run at each scale."""
    if preset == "smoke":
        return Config(smoke(), (), SMOKE_SEEDS, (54, 55), 0.5, 0.6, 500, Sample(20), 20, SMOKE_SPARSITIES)
    if preset == "desk":
        steps = (0, 300, 600, 900, 1_200, 1_500, 1_800, 2_400)
        return Config(nli_desk(), steps, SEEDS, (54, 55, 56), 0.5, 0.75, 10_000, Sample(100, precision="auto"), 40)
    steps = (0, 500, *range(6_500, 54_501, 6_000))
    return Config(nli_paper(), steps, SEEDS, (54, 55, 56), 0.5, 0.25, 100_000, Sample(), 200)


def development(base: Base, found: Sequence[AtCheckpoint], config: Config) -> pd.DataFrame:
    """Attention of the core heads at every checkpoint and, once there is a trained head, what ablating each costs.

    Both tables are kept in the checkpoint's pruning run.
    """
    model, task, heads = base.trained.model, base.trained.task, base.core.heads
    length = config.setting.train.max_length
    options = {"task": task.fingerprint, "heads": [str(head) for head in heads], "rows": config.rows}

    def attention() -> pd.DataFrame:
        pooled = attention_scores(model, task, sample=Sample(config.rows, max_length=length), shuffle=False).pooled()
        return pooled.table(n_bootstrap=500)

    def effects(means: ActivationMeans) -> pd.DataFrame:
        singles = [[head] for head in heads]
        precision = config.setting.precision
        measured = ablate(model, task, means, singles, sample=Sample(config.rows, max_length=length, precision=precision))
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


def experiment(preset: Preset, places: Places) -> Article:
    """Find the core, prune every checkpoint, follow the core heads, and tell."""
    chosen = config(preset)
    setting = chosen.setting
    base = pruned_base(setting, places, sparsities=chosen.sparsities, seeds=chosen.core_seeds)
    grid = Grid(
        (setting.prune(chosen.sparsity),),
        chosen.seeds,
        chosen.steps,
        means_rows=chosen.means_rows,
        directory=places.own / "checkpoints",
        pool=places.pool,
    )
    core = tuple(each.run.path for each in base.pruned)
    question = Emergence(base.core.k, core, chosen.level, tuple(setting.onset_cases), grid=grid)
    run = opened_finetuned(base.trained)
    answer = run.ask(question, chosen.sample)
    found = grid.pruned(run, chosen.sample)
    developed = development(base, found, chosen)
    developing = Section(
        "development",
        "What each core head attends to, and what its ablation costs, at every checkpoint",
        "Overlap attention: share of a word's attention that goes to the same word in the other sentence. Effect: accuracy "
        "that the full model of that checkpoint loses when the head is mean-ablated, mean over cases.",
        figures.core_head_development(developed, onset_step(answer)),
        folded=[text_table(with_interval(developed, "value"), "Core heads over fine-tuning", labels=4)],
    )
    return Article(
        title="When the heuristic core emerges",
        question=QUESTION,
        answer=str(answer["before_onset"]["sentence"].iloc[0]),
        sections=[*answer.sections, developing],
        warnings=[f"step {at.step}, {text}" for at in found for each in at.pruned for text in each.warnings],
        notes=setting.notes,
        provenance=versions(),
        config={
            "seeds": chosen.seeds,
            "sparsity": chosen.sparsity,
            "onset": {"level": chosen.level, "cases": setting.onset_cases},
        },
    )


if __name__ == "__main__":
    run_experiment("core_emergence", QUESTION, experiment)
