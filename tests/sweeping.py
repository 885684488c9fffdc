"""A fine-tuned model small enough to prune in a second, and the jobs of its sweep."""

from dataclasses import replace
from pathlib import Path

from hc_lens.data import Task, synthetic_nli
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig
from hc_lens.pruning.training import STRETCH
from hc_lens.sample import Measuring
from hc_lens.study import embedded_model, finetune_study
from hc_lens.sweep import Board, PruneJob, SweepConfig, chosen_checkpoints, plan
from hc_lens.train import TrainConfig


def pruning(sparsity: float, steps: int) -> PruneConfig:
    """A short recipe; its wide initial gates give every seed a mask of its own, whatever a few steps do to them."""
    short = PruneConfig.desk(sparsity, steps=steps)
    return replace(short, batch_size=4, gate_std=2.0, lr_multipliers=0.1, max_length=32, precision="fp32")


PRUNING = (pruning(0.5, 4), pruning(0.7, 3))
SWEEP = SweepConfig(PRUNING, (42, 43), Measuring(means_rows=20, max_rows=2), seeds_per_job=1)
LONG = replace(SWEEP, configs=(pruning(0.5, 3 * STRETCH + 5), pruning(0.7, 2 * STRETCH + 5)))
"""As many steps as leave checkpoints on the way."""


def small_task() -> Task:
    """A few rows of the embedded task."""
    return synthetic_nli(n_train=100, n_id=10, n_ood_per_case=4)


def finetuned_source(root: Path) -> Origin:
    """The embedded model after a few steps of fine-tuning, at its last checkpoint."""
    task = small_task()
    train = TrainConfig(steps=4, batch_size=8, warmup_steps=1, max_length=32, checkpoint_every=2, precision="fp32")
    directory = finetune_study(embedded_model(), task, train, root, rows=4, precision="fp32")
    return Origin.at(directory / "model", directory / "task", chosen_checkpoints(directory)[-1])


def planned(source: Origin, store: Path, config: SweepConfig = SWEEP, name: str = "sweep") -> Board:
    """A sweep of the source with nothing done yet; results beside it in `store`."""
    return Board.create(store / name, config.spec([source], store), jobs(source, store, config))


def jobs(source: Origin, store: Path, config: SweepConfig = SWEEP) -> list[PruneJob]:
    """The jobs of a sweep of the source."""
    return plan(config, [source], store, workers=1)
