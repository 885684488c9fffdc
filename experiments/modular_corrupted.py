"""Can a network memorise wrong labels and generalize all the same, and which neurons do which?

"To grok or not to grok" (Doshi, Das, He and Gromov 2023): a network of squares learns a + b modulo 97 from half of the pairs,
some of which have random labels. Several seeds are trained without weight decay, with more and more of it, with dropout and
with BatchNorm; neurons are told apart by the inverse participation ratio (IPR) of their weights and removed in that order, in
the reverse order and at random; gates are trained against the true answers, blind to the IPR; single runs vary the network.

Run: `python -m experiments.modular_corrupted --preset desk`; the same command resumes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset
from hc_lens.analysis.seeds import mean_over_seeds
from hc_lens.modular import corrupted_figures as figures
from hc_lens.modular.corrupted import GENERALIZING, Accuracies, CorruptedConfig, Trained, train_corrupted, two_stages
from hc_lens.modular.curves import (
    accuracies_of,
    norm_weights,
    pruning_curves,
    rank_correlation,
    threshold_table,
)
from hc_lens.modular.mlp import MlpConfig
from hc_lens.modular.networks import TransformerConfig, neuron_weights
from hc_lens.modular.neuron_gates import gate_neurons
from hc_lens.modular.phases import phase_of_run
from hc_lens.modular.training import FitConfig
from hc_lens.pruning import PruneConfig
from hc_lens.report import Article, Finding, Section, Verdict, text_table
from hc_lens.report.cells import interval_text
from hc_lens.stages import remembered

QUESTION = (
    "Can a network memorise wrong labels and generalize all the same, which neurons do which, and what do weight decay, "
    "dropout and BatchNorm change?"
)
PLAIN, DECAY, STRONG, DROPOUT, NORM = "no decay", "weight decay 5", "weight decay 15", "dropout", "BatchNorm"


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
        return Config(_settings(plain, 1, 64), _variants(plain, 128, 1), (0, 1, 2), shares, PruneConfig.desk(steps=300))
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
        DROPOUT: replace(plain, network=replace(plain.network, dropout=0.6), fit=fit(1)),
        NORM: replace(plain, network=replace(plain.network, batch_norm=True), alpha=0.65, xi=0.2, fit=norm),
    }


def _variants(plain: CorruptedConfig, width: int, longer: int) -> dict[str, CorruptedConfig]:
    network = plain.network
    assert isinstance(network, MlpConfig)
    decayed = replace(plain.fit, steps=longer * plain.fit.steps, weight_decay=5.0)
    entropy = replace(decayed, loss="cross_entropy")
    return {
        "a b instead of a + b": replace(plain, operation="multiply", fit=decayed),
        "ReLU": replace(plain, network=replace(network, activation="relu"), fit=decayed),
        "GELU": replace(plain, network=replace(network, activation="gelu"), fit=decayed),
        "cross-entropy": replace(plain, fit=entropy),
        "transformer, cross-entropy": replace(plain, network=TransformerConfig(network.p, d_model=width), fit=entropy),
    }


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that the report tells: runs by setting, variants by name, and the tables made from the first setting's."""

    config: Config
    runs: Mapping[str, Sequence[Trained]]
    variants: Mapping[str, Trained]
    removed: pd.DataFrame
    curves: pd.DataFrame
    gates: pd.DataFrame

    @property
    def plain(self) -> Sequence[Trained]:
        return self.runs[PLAIN]


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
    return article(Measured(config, runs, variants, *tables))


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


def over_seeds(table: pd.DataFrame, by: str, columns: Sequence[str], percent: bool = True) -> pd.DataFrame:
    """Means over seeds with their intervals (Student's t) as texts, a row per value of `by`; repeats of a seed are averaged."""
    rows: list[dict[str, object]] = []
    for name, group in table.groupby(by, sort=False):
        seeds = group.groupby("seed")[list(columns)].mean()
        row: dict[str, object] = {by: name, "seeds": len(seeds)}
        for column in columns:
            mean = mean_over_seeds(seeds[column].to_numpy(dtype=np.float64), 0, 1)
            factor, digits = (100, 1) if percent else (1, 3)
            row[f"{column} (%)" if percent else column] = interval_text(
                factor * mean.mean, factor * mean.low, factor * mean.high, digits
            )
        rows.append(row)
    return pd.DataFrame(rows)


def by_run(runs: Mapping[str, Sequence[Trained]]) -> pd.DataFrame:
    """Every run: its phase, accuracies, IPR and the steps of its two stages."""
    rows = [
        {"setting": name, "seed": each.config.seed, "phase": phase_of_run(each)}
        | each.accuracies._asdict()
        | {"ipr": float(each.ipr.mean()), "periodic": float((each.ipr >= GENERALIZING).double().mean())}
        | two_stages(each.history)._asdict()
        for name, seeds in runs.items()
        for each in seeds
    ]
    return pd.DataFrame(rows)


def sections(found: Measured) -> list[Section]:
    """The figures and tables, in the order of the argument."""
    shares = [*Accuracies._fields]
    table = by_run(found.runs)
    plain, strong, norm = found.plain, found.runs[STRONG], found.runs[NORM]
    spectra = plain[0]
    order = spectra.ipr.argsort()
    shown = [int(order[place]) for place in (0, len(order) // 3, -len(order) // 10, -1)]
    histories = pd.concat([each.history.assign(seed=each.config.seed) for each in plain])
    ipr = pd.concat([pd.DataFrame({"run": name, "ipr": seeds[0].ipr.tolist()}) for name, seeds in found.runs.items()])
    percent = [*shares, "periodic"]
    return [
        Section(
            "coexistence",
            "Memorising and generalizing, without weight decay",
            "One line per seed. Train: by the labels given, corrupted ones included.",
            figures.accuracies_over_time(histories),
            shown=[text_table(over_seeds(table, "setting", shares), "At the end of training, mean [95 %] over seeds")],
            folded=[text_table(table, "Every run", labels=3, percent=percent, missing="never")],
        ),
        Section(
            "ipr",
            "How periodic neurons are",
            "The first seed of each setting; dashed: the threshold.",
            figures.ipr_histogram(ipr),
            shown=[
                text_table(over_seeds(table, "setting", ["ipr", "periodic"], percent=False), "Mean IPR, and share above 0.5")
            ],
        ),
        Section(
            "spectra",
            "What a neuron of low and of high IPR looks like",
            "U of the first term, setting without weight decay: above the weights over the numbers, below the share of power.",
            figures.neuron_spectra(neuron_weights(spectra.model)[0], spectra.ipr, shown),
        ),
        Section(
            "pruning",
            "Accuracies as neurons are removed, by IPR and at random",
            "Mean over seeds; bands span seeds and random orders. Removed neurons are set to zero, nothing is trained again.",
            figures.pruning_curves_figure(found.curves),
            shown=[
                text_table(over_seeds(found.removed, "neurons", shares), "All neurons, the periodic ones, as many at random")
            ],
            folded=[text_table(found.removed, "By seed and draw", percent=shares)],
        ),
        Section(
            "stages",
            "Two stages: generalizing, and letting go of the corrupted labels",
            f"{STRONG}, seed {strong[0].config.seed}. Steps: first with 90 % test accuracy; with most corrupted labels "
            "learned; then first with no more than 10 % of them.",
            figures.accuracies_over_time(strong[0].history, two_stages(strong[0].history)),
            shown=[
                text_table(
                    table[["setting", "seed", *two_stages(strong[0].history)._fields]], "Steps", labels=2, missing="never"
                )
            ],
        ),
        Section(
            "batchnorm",
            "BatchNorm's weight of a neuron against its IPR",
            "A mark is a neuron, seed 0. Correlation: Spearman's, of |weight| and IPR.",
            figures.norm_weight_against_ipr(norm_weights(norm[0])),
            shown=[text_table(norm_table(norm), "Every seed")],
        ),
        Section(
            "gates",
            "Gates trained against the true answers, beside the IPR",
            "AUC: the chance that a periodic neuron's gate is more open than another's. As many are kept as are periodic.",
            shown=[text_table(found.gates, "Every seed", percent=["sparsity", "kept are periodic", *shares])],
        ),
        Section(
            "variants",
            "Other networks, losses and operations",
            "One seed each, weight decay 5. A product's IPR is taken over discrete logarithms.",
            shown=[
                text_table(
                    by_run({name: [each] for name, each in found.variants.items()}),
                    "Every variant",
                    labels=3,
                    percent=percent,
                    missing="never",
                )
            ],
        ),
    ]


def norm_table(runs: Sequence[Trained]) -> pd.DataFrame:
    """BatchNorm's weights of neurons of low and of high IPR, by seed."""
    rows: list[dict[str, object]] = []
    for each in runs:
        table = norm_weights(each)
        low, high = table[table["ipr"] < GENERALIZING], table[table["ipr"] >= GENERALIZING]
        rows.append(
            {
                "seed": each.config.seed,
                "correlation": rank_correlation(table["ipr"], table["weight"]),
                "mean |weight|, IPR < 0.5": low["weight"].mean(),
                "mean |weight|, IPR >= 0.5": high["weight"].mean(),
            }
        )
    return pd.DataFrame(rows)


def findings(found: Measured) -> list[Finding]:
    """The claims, each judged by every seed."""
    plain = by_run({PLAIN: found.plain})
    removed = found.removed
    periodic, random = (removed[removed["neurons"] == name] for name in (f"IPR >= {GENERALIZING:g}", "random"))
    decayed = by_run({name: found.runs[name] for name in (DECAY, STRONG)})
    strong = decayed[decayed["setting"] == STRONG]
    correlations = norm_table(found.runs[NORM])["correlation"]
    ipr = by_run(found.runs).groupby("setting")["ipr"].mean()
    auc = found.gates["auc"]
    staged = strong["unlearned"].notna() & (strong["grokked"] < strong["unlearned"])
    inverted = decayed["phase"].isin(["partial inversion", "full inversion"])
    return [
        _judged(
            "coexistence",
            "Do memorising and generalizing coexist without weight decay?",
            bool((plain["as_labelled"] >= 0.9).all() and (plain["test"] >= 0.95).all()),
            f"corrupted labels learned {_range(plain['as_labelled'])}, test accuracy {_range(plain['test'])}",
            "corrupted labels >= 90 % and test >= 95 % in every seed",
        ),
        _judged(
            "pruning",
            "Does removing the neurons of low IPR remove what is memorised, and nothing else?",
            bool((periodic["as_labelled"] <= 0.05).all() and (periodic["test"] >= 0.99).all() and (random["test"] < 0.9).all()),
            f"corrupted labels {_range(periodic['as_labelled'])} and test {_range(periodic['test'])} without them; test "
            f"{_range(random['test'])} without as many at random",
            "in every seed corrupted labels <= 5 % and test >= 99 %, and test < 90 % for every random draw",
        ),
        _judged(
            "inversion",
            "Does weight decay invert the corrupted labels?",
            bool(inverted.all()),
            "; ".join(
                f"{name}: {', '.join(rows['phase'])}; true answers to corrupted pairs {_range(rows['as_true'])}"
                for name, rows in decayed.groupby("setting", sort=False)
            ),
            "partial or full inversion in every seed of both settings",
        ),
        _judged(
            "stages",
            "Does the network generalize first and unlearn afterwards?",
            bool(staged.all()),
            f"generalizes at steps {_list(strong['grokked'])}, has unlearned at {_list(strong['unlearned'])} ({STRONG})",
            "in every seed test >= 90 % before corrupted labels <= 10 %",
        ),
        _judged(
            "ipr",
            "Do weight decay and dropout raise the neurons' IPR?",
            bool(min(ipr[STRONG], ipr[DECAY], ipr[DROPOUT]) > ipr[PLAIN]),
            ", ".join(f"{name} {ipr[name]:.2f}" for name in (PLAIN, DECAY, STRONG, DROPOUT)),
            "a greater mean IPR with each than without, mean over seeds",
        ),
        _judged(
            "batchnorm",
            "Does BatchNorm scale memorising neurons down?",
            bool((correlations > 0.5).all()),
            f"rank correlation of its weight with IPR: {_list(correlations, 2)}",
            "correlation > 0.5 in every seed",
        ),
        _judged(
            "gates",
            "Do gates trained against the true answers find the neurons of low IPR?",
            bool((auc > 0.8).all()),
            f"AUC {_list(auc, 2, 'undefined')}",
            "AUC > 0.8 in every seed",
        ),
    ]


def _judged(key: str, question: str, holds: bool, sentence: str, rule: str) -> Finding:
    verdict: Verdict = "yes" if holds else "no"
    return Finding(key, question, verdict, sentence, f"{sentence[0].upper()}{sentence[1:]}.", f"Yes: {rule}.")


def _range(shares: pd.Series) -> str:
    """The least and the greatest of some shares: `93.1 to 95.0 %`."""
    return f"{100 * shares.min():.1f} to {100 * shares.max():.1f} %"


def _list(values: pd.Series, digits: int = 0, missing: str = "never") -> str:
    return ", ".join(missing if pd.isna(value) else f"{value:.{digits}f}" for value in values)


def article(found: Measured) -> Article:
    """The report."""
    judged = findings(found)
    plain = found.config.settings[PLAIN]
    return Article(
        title="Corrupted labels in modular arithmetic",
        question=QUESTION,
        answer="\n".join(f"{each.question} {each.verdict}: {each.short}." for each in judged),
        sections=sections(found),
        facts=[
            ("Task", f"a + b mod {plain.network.p}, {100 * plain.alpha:g} % of pairs, {100 * plain.xi:g} % corrupted"),
            ("Seeds", ", ".join(map(str, found.config.seeds))),
        ],
        provenance=versions(),
        config={"gates": found.config.gates.as_dict(), "shares": found.config.shares, "draws": found.config.draws},
        findings=judged,
    )


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("modular_corrupted", QUESTION, experiment)
