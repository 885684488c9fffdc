"""Can a network memorise wrong labels and generalize all the same, and which neurons do which?

"To grok or not to grok" (Doshi, Das, He and Gromov 2023): a network of squares learns a + b modulo 97 from half of the pairs,
some of which have random labels. Several seeds are trained without weight decay, with more and more of it, with dropout and
with BatchNorm; neurons are told apart by the inverse participation ratio (IPR) of their weights and removed in that order, in
the reverse order and at random; gates are trained against the true answers, blind to the IPR; single runs vary the network.

Run: `python -m experiments.modular_corrupted --preset desk`; the same command resumes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.corrupted_report import DECAY, DROPOUT, NORM, PLAIN, STRONG, Measured, findings, sections, told
from experiments.shared.settings import Preset
from hc_lens.cache import remembered
from hc_lens.modular.config import GENERALIZING, CorruptedConfig, FitConfig, MlpConfig, TransformerConfig
from hc_lens.modular.corrupted import Trained, train_corrupted
from hc_lens.modular.curves import (
    accuracies_of,
    pruning_curves,
    threshold_table,
)
from hc_lens.modular.neuron_gates import gate_neurons
from hc_lens.pruning import PruneConfig
from hc_lens.report import Article

QUESTION = (
    "Can a network memorise wrong labels and generalize all the same, which neurons do which, and what do weight decay, "
    "dropout and BatchNorm change?"
)


@dataclass(frozen=True)
class Config:
    """What is trained.

    Attributes:
        settings: each trained with every seed; the first one's neurons are removed and gated.
        variants: other networks, losses and operations, of the first seed only.
        shares: of neurons removed along the pruning curves.
        gates: how gates are trained; their sparsity is each network's own share of neurons of low IPR.
    """

    settings: Mapping[str, CorruptedConfig]
    variants: Mapping[str, CorruptedConfig]
    seeds: tuple[int, ...]
    shares: tuple[float, ...]
    gates: PruneConfig
    draws: int = 5


def config(preset: Preset) -> Config:
    """What is run at each scale; `paper` has the published steps and more seeds."""
    if preset == "smoke":
        small = CorruptedConfig(MlpConfig(23, 60), alpha=0.8, xi=0.2, fit=FitConfig(40))
        return Config(_settings(small, 1, 16), _variants(small, 16, 1), (0, 1), (0.0, 0.3, 0.6), PruneConfig.desk(steps=10), 2)
    plain, shares = CorruptedConfig(), tuple(step / 20 for step in range(20))
    if preset == "desk":
        return Config(_settings(plain, 1, 64), _variants(plain, 64, 1), (0, 1, 2), shares, PruneConfig.desk(steps=300))
    return Config(_settings(plain, 2, 64), _variants(plain, 128, 2), tuple(range(5)), shares, PruneConfig.desk(steps=600))


def _settings(plain: CorruptedConfig, longer: int, batch: int) -> dict[str, CorruptedConfig]:
    """The protocol's runs, `longer` times as long; the one with BatchNorm has its own split, batches and learning rate."""

    def fit(length: float, lr: float = plain.fit.lr, weight_decay: float = 0.0) -> FitConfig:
        return replace(plain.fit, steps=round(longer * length * plain.fit.steps), lr=lr, weight_decay=weight_decay)

    assert isinstance(plain.network, MlpConfig)
    norm = replace(fit(2, lr=0.005), batch_size=batch)
    return {
        PLAIN: replace(plain, fit=fit(1)),
        DECAY: replace(plain, fit=fit(0.5, weight_decay=5.0)),
        STRONG: replace(plain, fit=fit(0.5, weight_decay=15.0)),
        DROPOUT: replace(plain, network=replace(plain.network, dropout=0.6), fit=fit(0.5)),
        NORM: replace(plain, network=replace(plain.network, batch_norm=True), alpha=0.65, xi=0.2, fit=norm),
    }


def _variants(plain: CorruptedConfig, width: int, longer: int) -> dict[str, CorruptedConfig]:
    network = plain.network
    assert isinstance(network, MlpConfig)
    decayed = replace(plain.fit, steps=longer * plain.fit.steps, weight_decay=5.0)
    entropy = replace(decayed, loss="cross_entropy")
    short = replace(entropy, steps=max(1, entropy.steps // 2), lr=0.003, weight_decay=2.0)
    transformer = replace(plain, network=TransformerConfig(network.p, d_model=width), fit=short)
    return {
        "a b instead of a + b": replace(plain, operation="multiply", fit=decayed),
        "ReLU": replace(plain, network=replace(network, activation="relu"), fit=decayed),
        "GELU": replace(plain, network=replace(network, activation="gelu"), fit=decayed),
        "cross-entropy": replace(plain, fit=entropy),
        "transformer": transformer,
        "transformer, clean labels": replace(transformer, xi=0.0),
    }


def run(config: Config, places: Places) -> Article:
    """Train, prune, gate, and tell."""

    def trained(name: str, setting: CorruptedConfig, seed: int) -> Trained:
        seeded = replace(setting, seed=seed, fit=replace(setting.fit, seed=seed))
        folder = "-".join(name.replace(",", "").replace("+", "plus").split())
        return train_corrupted(seeded, places.own / folder / f"seed-{seed}")

    runs = {name: [trained(name, setting, seed) for seed in config.seeds] for name, setting in config.settings.items()}
    variants = {name: trained(name, setting, config.seeds[0]) for name, setting in config.variants.items()}
    plain = runs[PLAIN]
    removed = [threshold_table(each, draws=config.draws).assign(seed=each.config.seed) for each in plain]
    curves = [pruning_curves(each, config.shares, config.draws).assign(seed=each.config.seed) for each in plain]
    gates = [gates_table(each, config.gates) for each in plain]
    tables = [pd.concat(each, ignore_index=True) for each in (removed, curves, gates)]
    return article(config, Measured(runs, variants, *tables))


def gates_table(trained: Trained, config: PruneConfig) -> pd.DataFrame:
    """One row: gates that remove as many neurons as have a low IPR, what they keep, and how the rest answers."""
    periodic = trained.ipr >= GENERALIZING
    n = len(periodic)
    n_removed = min(max(int((~periodic).sum()), 1), n - 1)  # a sparsity is in (0, 1), also where all neurons are of one kind
    recipe = replace(config, sparsity=n_removed / n)

    def compute() -> pd.DataFrame:
        gated = gate_neurons(trained, recipe, seed=trained.config.seed)
        kept = gated.neurons.mask
        row = {"seed": trained.config.seed, "sparsity": recipe.sparsity, "auc": gated.auc}
        row["kept are periodic"] = float(periodic[kept].double().mean())
        return pd.DataFrame([row | accuracies_of(trained, gated.neurons)._asdict()])

    return remembered(trained.run, "gates", recipe.as_dict(), compute)


def article(config: Config, found: Measured) -> Article:
    """The report."""
    judged = findings(found)
    plain = config.settings[PLAIN]
    return Article(
        title="Corrupted labels in modular arithmetic",
        question=QUESTION,
        answer=told(judged),
        sections=sections(found),
        facts=[
            ("Task", f"a + b mod {plain.network.p}, {100 * plain.alpha:g} % of pairs, {100 * plain.xi:g} % corrupted"),
            ("Seeds", ", ".join(map(str, config.seeds))),
        ],
        provenance=versions(),
        config={"gates": config.gates.as_dict(), "shares": config.shares, "draws": config.draws},
        findings=judged,
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("modular_corrupted", QUESTION, experiment)
