"""The whole line as one resumable run: fine-tune, prune many seeds at several sparsities, find the core, ablate it, report.

`out/` holds one run directory per step (`finetune/`, `prune-0.5/`, ...) and `report.html`, `report.md`. The same call goes on
where an earlier one was stopped and computes nothing twice.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.limits import require_at_least_one, require_not_negative
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig, Pruned, pruned_evaluation, pruned_outcome
from hc_lens.questions import Ablation
from hc_lens.questions.kept_core import CoreSummary, core_into, core_of
from hc_lens.questions.opened import OpenRun
from hc_lens.questions.page import QUESTION, run_article
from hc_lens.runs import Run
from hc_lens.sample import Measuring, Sample
from hc_lens.sweep import Pool, PruneJob, run_jobs, split
from hc_lens.train import TrainConfig

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.precision import Precision
    from hc_lens.report import Article

_log = logging.getLogger("hc_lens")


@dataclass(frozen=True)
class StudyConfig:
    """What the line does at each step.

    Attributes:
        prune: one pruning configuration per sparsity.
        seeds: one subnetwork each, at every sparsity.
        checkpoint_rows, evaluation_rows, ablation_rows: rows of each case that checkpoints, subnetworks and ablations are
            scored on; None for all.
        means_rows: random training rows that the means are collected on (the paper's were the first 100,000).
        controls: random layer-matched head sets that each joint ablation is compared with.
        smallest_core: the core is what all subnetworks keep; if that is fewer heads than this, the strictest k-of-n rule that
            gives as many, which the report states.
        precision: of evaluation and ablation; training and pruning have their own.
        top: size of the second set ablated jointly, the core heads that cost most out of domain one by one (3 in the paper).
    """

    train: TrainConfig
    prune: tuple[PruneConfig, ...]
    seeds: tuple[int, ...] = tuple(range(42, 54))
    checkpoint_rows: int | None = 200
    evaluation_rows: int | None = None
    ablation_rows: int | None = 500
    means_rows: int = 100_000
    controls: int = 20
    smallest_core: int = 3
    top: int = 3
    precision: Precision = "fp32"
    title: str = "Subnetworks and their heuristic core"
    question: str = QUESTION

    def __post_init__(self) -> None:
        sparsities = [config.sparsity for config in self.prune]
        if not sparsities or len(set(sparsities)) != len(sparsities):
            raise ValueError(f"prune: needs one configuration per sparsity, all different, got sparsities {sparsities}")
        for name in ("checkpoint_rows", "evaluation_rows", "ablation_rows", "means_rows", "smallest_core"):
            require_at_least_one(name, getattr(self, name))
        require_not_negative("controls", self.controls)
        if self.top < 2:
            raise ValueError(f"top: a joint ablation needs at least 2 heads, got {self.top}")


@dataclass(frozen=True, eq=False)
class Study:
    """A finished study: its pruning runs, opened together, its core, and its report with the page's path."""

    run: OpenRun
    core: CoreSummary
    article: Article
    report: Path

    @property
    def pruned(self) -> tuple[Pruned, ...]:
        """The pruning runs that have subnetworks."""
        return self.run.alive

    @property
    def headline(self) -> str:
        """The answer in one line."""
        return self.article.answer


Notes = Callable[["pd.DataFrame"], Sequence[str]]
"""Remarks to print in the report, from the evaluation table."""


def run_study(
    model: Classifier,
    task: Task,
    config: StudyConfig,
    out: Path,
    *,
    report: Path | None = None,
    notes: Notes = lambda evaluation: (),
    pool: Pool | None = None,
) -> Study:
    """Run the whole line on a classifier, which ends up with the fine-tuned weights; the report goes to `out` unless told.

    `pool` says how many processes prune; this one does by default.

    Raises:
        RunError: if `out` holds something else, or another process works on it.
        LabelOrderError: if the model's labels are not the task's.
        TrainingError: as `finetune`.
        PruneError: if every seed collapsed at every sparsity.
        SweepError: if pruning failed, naming sparsity, seeds and the reason.
    """
    from hc_lens.pruning import PruneError
    from hc_lens.report import write_article

    outcomes = prune_study(model, task, config, out, pool)
    pruned = tuple(each for each in outcomes if each.subnetworks)
    if not pruned:
        raise PruneError("; ".join(text for each in outcomes for text in each.warnings))
    core = strictest_core(pruned, config.smallest_core)
    run = OpenRun(outcomes, Run.open(out / "finetune"), lambda: (model, task))
    run.ask(Ablation(controls=config.controls, top=config.top), Sample(config.ablation_rows, precision=config.precision))
    remarks = notes(pruned_evaluation(pruned))
    article = run_article(run, title=config.title, question=config.question, notes=remarks)
    return Study(run, core, article, write_article(article, out if report is None else report))


def prune_study(model: Classifier, task: Task, config: StudyConfig, out: Path, pool: Pool | None = None) -> tuple[Pruned, ...]:
    """The first half of the line: fine-tune, collect means, prune at every sparsity, evaluate.

    A sparsity at which every seed collapsed has no subnetworks, and says why.

    Raises:
        RunError, LabelOrderError, TrainingError, SweepError: as `run_study`.
    """
    from hc_lens.forward import device_of

    pool = pool or Pool(device=str(device_of(model)))
    finetune_study(model, task, config.train, out, rows=config.checkpoint_rows, precision=config.precision)
    source = Origin.of(Run.open(out / "finetune"))
    how = Measuring(config.means_rows, config.evaluation_rows, config.precision)
    jobs = [
        PruneJob(source, _place(out, prune), out / "means", prune, group, how)
        for prune in config.prune
        for group in split(config.seeds, len(config.prune), pool.wanted)
    ]
    run_jobs(out, jobs, pool)
    return tuple(pruned_outcome(_place(out, prune), seeds=config.seeds) for prune in config.prune)


def _place(out: Path, prune: PruneConfig) -> Path:
    return out / f"prune-{prune.sparsity:g}"


def finetune_study(
    model: Classifier, task: Task, train: TrainConfig, out: Path, *, rows: int | None, precision: Precision
) -> Path:
    """Fine-tune into `out/finetune`, every checkpoint scored on `rows` of each case (None: all); returns that run's directory.

    The model goes to `model/` in it, the task to `task/`.

    Raises:
        RunError, LabelOrderError, TrainingError: as `finetune`.
    """
    from hc_lens.metrics import evaluate
    from hc_lens.train import finetune

    sample = Sample(rows, max_length=train.max_length, precision=precision)
    score = partial(evaluate, sample=sample, trained=False)
    finetune(model, task, train, out / "finetune", evaluate=score)
    return out / "finetune"


def embedded_model(seed: int = 0) -> Classifier:
    """The embedded task's classifier before training: a post-LN BERT, 4 layers x 8 heads, with a word-level tokenizer."""
    from hc_lens.data.synthetic import LABELS, synthetic_config, synthetic_tokenizer
    from hc_lens.models import new_model

    return new_model(synthetic_config(LABELS), tokenizer=synthetic_tokenizer(), seed=seed)


DEMO = StudyConfig(
    train=TrainConfig(steps=1200, batch_size=64, lr=5e-4, warmup_steps=100, max_length=32, checkpoint_every=150),
    # In a third of the desk recipe's 600 steps its multipliers overshoot. Slower ones, faster gates, more steps at the target:
    # at most 6 % of the gates undecided, no target missed (6 seeds, both sparsities).
    prune=tuple(
        replace(
            PruneConfig.desk(sparsity, steps=200),
            ramp_steps=120,
            batch_size=16,
            lr_gates=0.15,
            lr_multipliers=0.2,
            max_length=32,
        )
        for sparsity in (0.5, 0.7)
    ),
    checkpoint_rows=100,
    evaluation_rows=200,
    ablation_rows=100,
    means_rows=2_000,
    title="Demo: subnetworks of a small BERT on the embedded task",
)
"""The embedded demo: no download, under three minutes on two cores."""


def strictest_core(pruned: Sequence[Pruned], smallest: int) -> CoreSummary:
    """The core by the strictest rule, the largest k, for which k of the n subnetworks share at least `smallest` heads.

    It is kept in the first run. A k below n, all of the subnetworks, is chosen from the same subnetworks that the null is then
    about: the log says so, and the core remembers it for the report.

    Raises:
        ValueError: if even k = 1 gives fewer heads.
    """
    n = sum(len(p.subnetworks) for p in pruned)
    k = next((k for k in range(n, 0, -1) if len(core_of(pruned, k).heads) >= smallest), None)
    if k is None:
        raise ValueError(f"no k gives a core of {smallest} heads: lower smallest_core")
    if k < n:
        _log.warning("no %d heads are kept by all %d subnetworks: the core is what %d of them keep", smallest, n, k)
    return core_into(pruned, k, chosen_for=smallest if k < n else None)
