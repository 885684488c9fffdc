"""Where does a network memorise, generalize, or do both, as labels get worse and regularization stronger?

The phase diagrams of "To grok or not to grok" (Doshi, Das, He and Gromov 2023): the share of corrupted labels xi against weight
decay, against dropout, and against the share of pairs trained on, at desk size on a smaller modulus. A run's phase follows from
its accuracies by the thresholds of the paper.

Run: `python -m experiments.modular_phases --preset desk`; the same command resumes, `--workers 2` trains two cells at a time.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset
from hc_lens.modular.config import CorruptedConfig, FitConfig, MlpConfig
from hc_lens.modular.corrupted_figures import phase_diagram
from hc_lens.modular.phases import PHASES, Thresholds, phase_table
from hc_lens.report import Article, Section, text_table

QUESTION = (
    "In which phase does training end, memorising, generalizing, both or neither, as corrupted labels, weight decay, dropout "
    "and the share of pairs trained on vary?"
)


@dataclass(frozen=True)
class Diagram:
    """One diagram: what runs along its axis besides xi, and from which setting."""

    name: str
    axis: str
    values: tuple[float, ...]
    base: CorruptedConfig
    heading: str

    def cell(self, xi: float, value: float, seed: int) -> CorruptedConfig:
        """The configuration of one cell."""
        base = replace(self.base, xi=xi, seed=seed, fit=replace(self.base.fit, seed=seed))
        if self.axis == "alpha":
            return replace(base, alpha=value)
        if self.axis == "weight_decay":
            return replace(base, fit=replace(base.fit, weight_decay=value))
        assert isinstance(base.network, MlpConfig)
        return replace(base, network=replace(base.network, dropout=value))


@dataclass(frozen=True)
class Config:
    """The diagrams, which share the values of xi and the seeds of a cell."""

    diagrams: tuple[Diagram, ...]
    xis: tuple[float, ...]
    seeds: tuple[int, ...] = (0,)


def config(preset: Preset) -> Config:
    """What is run at each scale; `paper` has the grids of the paper."""
    if preset == "smoke":
        base = CorruptedConfig(MlpConfig(11, 24), alpha=0.8, fit=FitConfig(20, measure_every=10))
        return Config(_diagrams(base, (0.0, 5.0), (0.0, 0.3), (0.5, 0.8)), (0.0, 0.3))
    if preset == "desk":
        base = CorruptedConfig(MlpConfig(59, 300), alpha=0.6, fit=FitConfig(400, measure_every=20))
        decays, rates = (0.0, 2.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.15, 0.3, 0.45, 0.6, 0.75)
        return Config(_diagrams(base, decays, rates, (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)), (0.0, 0.1, 0.2, 0.3, 0.4, 0.5))
    base = CorruptedConfig(MlpConfig(97, 500), alpha=0.5, fit=FitConfig(2_000, measure_every=20))
    alphas = tuple(round(0.1 + 0.05 * step, 2) for step in range(17))
    xis = tuple(round(0.05 * step, 2) for step in range(19))
    return Config(_diagrams(base, (0.0, 2.0, 5.0, 10.0, 15.0, 20.0), (0.0, 0.15, 0.3, 0.45, 0.6, 0.75, 0.9), alphas), xis)


def _diagrams(
    base: CorruptedConfig, decays: tuple[float, ...], rates: tuple[float, ...], alphas: tuple[float, ...]
) -> tuple[Diagram, ...]:
    decayed = replace(base, fit=replace(base.fit, weight_decay=5.0))
    return (
        Diagram("weight-decay", "weight_decay", decays, base, "Weight decay"),
        Diagram("dropout", "dropout", rates, base, "Dropout, without weight decay"),
        Diagram("alpha", "alpha", alphas, base, "The share of pairs trained on, without weight decay"),
        Diagram("alpha-decayed", "alpha", alphas, decayed, "The share of pairs trained on, with weight decay 5"),
    )


def run(config: Config, places: Places) -> Article:
    """Train every cell, and tell."""
    tables: dict[str, pd.DataFrame] = {}
    for diagram in config.diagrams:
        cells = [diagram.cell(xi, value, seed) for seed in config.seeds for xi in config.xis for value in diagram.values]
        # one folder for all: a cell that two diagrams share is trained once
        tables[diagram.name] = phase_table(cells, places.own / "cells", places.pool.wanted)
    return article(config, tables)


def section(diagram: Diagram, table: pd.DataFrame) -> Section:
    """A diagram, how many of its cells end in which phase, and every cell."""
    percent = ["train", "as_labelled", "as_true", "clean", "test", "periodic"]
    return Section(
        diagram.name,
        diagram.heading,
        "Colour: the phase at the end of training. Numbers: test over training accuracy (by the labels given), in percent.",
        phase_diagram(table, diagram.axis),
        shown=[text_table(counts(table, diagram.axis), "Cells by phase")],
        folded=[text_table(table, "Every cell", labels=6, percent=percent)],
    )


def counts(table: pd.DataFrame, axis: str) -> pd.DataFrame:
    """How many cells end in which phase, for each value along the axis."""
    found = pd.crosstab(table[axis], table["phase"])
    return found[[name for name in PHASES if name in found]].reset_index().rename_axis(columns=None)


def told(diagram: Diagram, table: pd.DataFrame) -> str:
    """The two ends of a diagram's axis, in a sentence."""
    parts = [
        f"{_phases(table[table[diagram.axis] == value])} at {value:g}" for value in (diagram.values[0], diagram.values[-1])
    ]
    return f"{diagram.heading}: {' and '.join(parts)} ({diagram.axis.replace('_', ' ')}, over all xi)."


def _phases(table: pd.DataFrame) -> str:
    number = table["phase"].value_counts()
    return ", ".join(f"{number[name]} {name}" for name in PHASES if name in number)


def article(config: Config, tables: Mapping[str, pd.DataFrame]) -> Article:
    """The report."""
    limits, base = Thresholds(), config.diagrams[0].base
    return Article(
        title="Phases of learning modular addition from corrupted labels",
        question=QUESTION,
        answer="\n".join(told(diagram, tables[diagram.name]) for diagram in config.diagrams),
        sections=[section(diagram, tables[diagram.name]) for diagram in config.diagrams],
        facts=[
            ("Network", f"{base.network}"),
            ("Training", f"{base.fit.steps} full-batch steps of AdamW"),
            ("Cells", f"{sum(len(table) for table in tables.values())}, seeds {', '.join(map(str, config.seeds))}"),
        ],
        notes=[
            f"Generalizes: test >= {limits.test:g}. Then coexistence: train >= {limits.train:g}; full inversion: train < "
            f"{1 + limits.slack:g} - xi; partial inversion: between. Otherwise memorisation: train >= {limits.train:g}; "
            "forgetting: it generalized earlier; confusion: the rest. For xi <= 0.15 there is no partial inversion.",
        ],
        provenance=versions(),
        config={"xi": config.xis, "diagrams": {each.name: {each.axis: each.values} for each in config.diagrams}},
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("modular_phases", QUESTION, experiment)
