"""What several experiments read: a setting's fine-tuned model, and its subnetworks at the paper's two sparsities.

Each lies in `<root>/<setting>/` as `run_study` lays it out, is made by whichever experiment comes first, and resumes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.shared.command import Places
from experiments.shared.settings import Setting
from hc_lens.data.task import Task
from hc_lens.models import Classifier
from hc_lens.pruning import Pruned
from hc_lens.questions.kept_core import CoreSummary
from hc_lens.questions.opened import OpenRun
from hc_lens.questions.page import QUESTION
from hc_lens.runs import Run
from hc_lens.study import Notes, Study, StudyConfig, finetune_study, prune_study, run_study, strictest_core

SPARSITIES = (0.5, 0.7)
SEEDS = tuple(range(42, 54))
SMOKE_SPARSITIES = (0.3, 0.5)
SMOKE_SEEDS = (42, 43, 44, 45)


@dataclass(frozen=True, eq=False)
class Trained:
    """A setting's model with its fine-tuned weights, its task, and the fine-tuning run."""

    setting: Setting
    model: Classifier
    task: Task
    finetuned: Path


@dataclass(frozen=True, eq=False)
class Base:
    """A fine-tuned model with its evaluated subnetworks, one run per sparsity, and the core they share."""

    trained: Trained
    pruned: tuple[Pruned, ...]
    core: CoreSummary

    def opened(self, task: Task | None = None) -> OpenRun:
        """The pruning runs, to be asked questions on the rows of this task; by default the setting's."""
        rows = self.trained.task if task is None else task
        return OpenRun(self.pruned, Run.open(self.trained.finetuned), lambda: (self.trained.model, rows))


def opened_finetuned(trained: Trained, task: Task | None = None) -> OpenRun:
    """A fine-tuning run, to be asked questions on the rows of this task; by default the setting's."""
    rows = trained.task if task is None else task
    return OpenRun((), Run.open(trained.finetuned), lambda: (trained.model, rows))


def study(setting: Setting, config: StudyConfig, places: Places, *, title: str, notes: Notes = lambda evaluation: ()) -> Study:
    """The main line on a setting, whose report goes to the experiment's own folder, one for each setting."""
    told = replace(config, title=title)
    report = places.own / setting.name
    return run_study(
        setting.model(), setting.task(), told, places.models / setting.name, report=report, notes=notes, pool=places.pool
    )


def study_config(
    setting: Setting,
    *,
    sparsities: Sequence[float] = SPARSITIES,
    seeds: Sequence[int] = SEEDS,
    ablation_rows: int | None = 100,
    controls: int = 20,
    question: str = QUESTION,
) -> StudyConfig:
    """The main line at a setting's scale."""
    return StudyConfig(
        train=setting.train,
        prune=tuple(map(setting.prune, sparsities)),
        seeds=tuple(seeds),
        checkpoint_rows=setting.checkpoint_rows,
        evaluation_rows=setting.evaluation_rows,
        ablation_rows=ablation_rows,
        means_rows=setting.means_rows,
        controls=controls,
        precision=setting.precision,
        question=question,
    )


def trained(setting: Setting, places: Places) -> Trained:
    """Fine-tune, or load what is there.

    Raises:
        RunError: if the directory holds another run.
    """
    model, task = setting.model(), setting.task()
    out = places.models / setting.name
    rows, precision = setting.checkpoint_rows, setting.precision
    return Trained(setting, model, task, finetune_study(model, task, setting.train, out, rows=rows, precision=precision))


def pruned_base(
    setting: Setting,
    places: Places,
    *,
    sparsities: Sequence[float] = SPARSITIES,
    seeds: Sequence[int] = SEEDS,
    smallest_core: int = 3,
) -> Base:
    """Fine-tune, prune with every seed at each sparsity, evaluate, and find the core, or read what is there.

    Raises:
        RunError: if a directory holds another run.
    """
    model, task, out = setting.model(), setting.task(), places.models / setting.name
    outcomes = prune_study(model, task, study_config(setting, sparsities=sparsities, seeds=seeds), out, places.pool)
    pruned = tuple(each for each in outcomes if each.subnetworks)
    return Base(Trained(setting, model, task, out / "finetune"), pruned, strictest_core(pruned, smallest_core))
