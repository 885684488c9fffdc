"""The command line that every experiment has: a preset, where results go, threads."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import torch
import tyro

from experiments.shared.settings import Preset
from hc_lens.data.desk import data_folder
from hc_lens.provenance import provenance
from hc_lens.report import Article, write_article
from hc_lens.sweep import Pool


@dataclass(frozen=True)
class Places:
    """Where an experiment works, and on what: `models`, which experiments of one preset share, `own`, with its report."""

    models: Path
    own: Path
    pool: Pool = field(default_factory=Pool)


@dataclass(frozen=True)
class Arguments:
    """Run one experiment and write its report."""

    preset: Preset = "smoke"
    """smoke (embedded data, seconds, checks the machinery), desk (two CPU cores), paper (a GPU and the hub)."""
    out: Path = Path("runs/experiments")
    """Runs and reports go to a folder of the preset in here; the same command resumes."""
    threads: int | None = None
    """CPU threads of a process; by default as many as PyTorch takes, or a worker's share of the cores."""
    workers: int | None = 1
    """Processes that prune side by side."""


Experiment = Callable[[Preset, Places], Article]
"""An experiment at a scale: everything up to its report."""


def run_experiment(name: str, question: str, experiment: Experiment) -> None:
    """Read the arguments, run, write `report.html` and `report.md`, and print the answer."""
    run_with(tyro.cli(Arguments, description=question), name, experiment)


def run_with(args: Arguments, name: str, experiment: Experiment) -> None:
    """As `run_experiment`, with the arguments already read: for an experiment that has some of its own."""
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    if args.threads is not None:
        torch.set_num_threads(args.threads)
    places = places_of(args, name)
    article = experiment(args.preset, places)
    report = write_article(article, places.own)
    print(f"{article.answer}\n  report: {report}")


def places_of(args: Arguments, name: str) -> Places:
    """Where an experiment of this name works."""
    root = args.out / args.preset
    return Places(root / "models", root / name, Pool(args.workers, args.threads))


def published_folder() -> Path | None:
    """The folder of the paper's released results beside `$HC_LENS_DATA`; None where it is not."""
    folder = data_folder()
    reference = None if folder is None else folder.parent / "reference" / "heuristic_core"
    return reference if reference is not None and reference.is_dir() else None


def versions() -> dict[str, object]:
    """What a report says of the code and the machine."""
    return dict(provenance())
