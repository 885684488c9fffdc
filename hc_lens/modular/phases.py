"""Which phase a run on corrupted labels ends in, by stated thresholds, and the diagram of phases over its settings."""

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Literal

import pandas as pd
import torch

from hc_lens.modular.config import CorruptedConfig, MlpConfig
from hc_lens.modular.corrupted import Trained, directory_of, train_corrupted
from hc_lens.progress import progress

Phase = Literal["coexistence", "partial inversion", "full inversion", "memorisation", "forgetting", "confusion"]

PHASES: tuple[Phase, ...] = (
    "coexistence",
    "partial inversion",
    "full inversion",
    "memorisation",
    "forgetting",
    "confusion",
)
"""In the order in which decay or dropout leads through them."""


@dataclass(frozen=True)
class Thresholds:
    """What counts as generalized (test accuracy), as fit (training accuracy), and how near 1 - xi is inverted.

    The defaults are those of Doshi et al. (2023), appendix C.
    """

    test: float = 0.9
    train: float = 0.9
    slack: float = 0.05


def phase_of(
    train: float, test: float, xi: float, best_test: float | None = None, thresholds: Thresholds | None = None
) -> Phase:
    """The phase of a run by its accuracies; train accuracy counts corrupted labels as they are given.

    A network that generalizes (test >= 0.9) is in coexistence if it also fits the corrupted labels (train >= 0.9), in full
    inversion if it gives the true answers instead (train < 1 - xi + 0.05), else in partial inversion. One that does not is
    memorising if it fits the training pairs, forgetting if it generalized earlier (`best_test`), else confused. For xi <= 0.15
    the two thresholds cross: there is no partial inversion, and what inverts may count as coexistence.
    """
    limit = thresholds or Thresholds()
    if test >= limit.test:
        if train >= limit.train:
            return "coexistence"
        return "full inversion" if train < 1 - xi + limit.slack else "partial inversion"
    if train >= limit.train:
        return "memorisation"
    return "forgetting" if best_test is not None and best_test >= limit.test else "confusion"


def phase_of_run(trained: Trained, thresholds: Thresholds | None = None) -> Phase:
    """The phase that a run ends in."""
    found, best = trained.accuracies, float(trained.history["test"].max())
    return phase_of(found.train, found.test, trained.config.xi, best, thresholds)


def phase_table(configs: Sequence[CorruptedConfig], root: Path, workers: int = 1) -> pd.DataFrame:
    """Train every configuration, each in a run directory of its own, and tell where it ends.

    Args:
        configs: the cells of a diagram, or of several.
        root: holds the run directories; cells that are there already are read.
        workers: processes side by side, of one thread each if there are several.

    Returns:
        One row per configuration, in their order: `xi`, `alpha`, `weight_decay`, `dropout`, `seed`, `phase`, the accuracies,
        `ipr` and `periodic` at the end.
    """
    cell = partial(_cell, root=root)
    with progress("cells", len(configs)) as advance:
        rows: list[dict[str, object]] = []
        if workers == 1:
            for config in configs:
                rows.append(cell(config))
                advance()
            return pd.DataFrame(rows)
        # "spawn": a fork of a process that has started OpenMP's threads can hang
        with ProcessPoolExecutor(workers, get_context("spawn"), initializer=torch.set_num_threads, initargs=(1,)) as pool:
            for row in pool.map(cell, configs):
                rows.append(row)
                advance()
    return pd.DataFrame(rows)


def _cell(config: CorruptedConfig, root: Path) -> dict[str, object]:
    trained = train_corrupted(config, directory_of(config, root))
    last = trained.history.iloc[-1]
    return {
        "xi": config.xi,
        "alpha": config.alpha,
        "weight_decay": config.fit.weight_decay,
        "dropout": config.network.dropout if isinstance(config.network, MlpConfig) else 0.0,
        "seed": config.seed,
        "phase": phase_of_run(trained),
        **trained.accuracies._asdict(),
        "ipr": float(last["ipr"]),
        "periodic": float(last["periodic"]),
    }
