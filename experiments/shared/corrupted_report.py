"""What the experiment on corrupted labels tells: figures, tables with intervals over seeds, claims judged by every seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from hc_lens.modular import corrupted_figures as figures
from hc_lens.modular.config import GENERALIZING
from hc_lens.modular.corrupted import Accuracies, Trained, two_stages
from hc_lens.modular.curves import norm_weights
from hc_lens.modular.networks import neuron_weights
from hc_lens.modular.phases import phase_of_run
from hc_lens.report import Finding, Section, Verdict, interval_text, text_table
from hc_lens.statistics import mean_over_seeds, rank_correlation

PLAIN, DECAY, STRONG, DROPOUT, NORM = "no decay", "weight decay 5", "weight decay 15", "dropout", "BatchNorm"

NAMES = {"as_labelled": "corrupted, as labelled", "as_true": "corrupted, true answer", "clean": "clean, trained on"}
"""What the accuracies are called in tables."""
SHARES = [NAMES.get(name, name) for name in Accuracies._fields]


@dataclass(frozen=True, eq=False)
class Measured:
    """Everything that the report tells: runs by setting, variants by name, and the tables made from the first setting's."""

    runs: Mapping[str, Sequence[Trained]]
    variants: Mapping[str, Trained]
    removed: pd.DataFrame
    curves: pd.DataFrame
    gates: pd.DataFrame

    @property
    def plain(self) -> Sequence[Trained]:
        return self.runs[PLAIN]


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
    table = by_run(found.runs).rename(columns=NAMES)
    return [*training_sections(found, table), *neuron_sections(found, table), *comparison_sections(found)]


def training_sections(found: Measured, table: pd.DataFrame) -> list[Section]:
    """How accuracies develop: without weight decay, and in two stages with it."""
    strong = found.runs[STRONG][0]
    histories = pd.concat([each.history.assign(seed=each.config.seed) for each in found.plain])
    stages = two_stages(strong.history)
    return [
        Section(
            "coexistence",
            "Memorising and generalizing, without weight decay",
            "One line per seed. Train: by the labels given, corrupted ones included.",
            figures.accuracies_over_time(histories),
            shown=[text_table(over_seeds(table, "setting", SHARES), "At the end of training, mean [95 %] over seeds")],
            folded=[text_table(table, "Every run", labels=3, percent=[*SHARES, "periodic"], missing="never")],
        ),
        Section(
            "stages",
            "Two stages: generalizing, and letting go of the corrupted labels",
            f"{STRONG}, seed {strong.config.seed}. Steps: first with 90 % test accuracy; with most corrupted labels learned; "
            "then first with no more than 10 % of them.",
            figures.accuracies_over_time(strong.history, stages),
            shown=[text_table(table[["setting", "seed", *stages._fields]], "Steps", labels=2, missing="never")],
        ),
    ]


def neuron_sections(found: Measured, table: pd.DataFrame) -> list[Section]:
    """Which neurons are periodic, and what becomes of the answers without them."""
    first, removed = found.plain[0], found.removed.rename(columns=NAMES)
    order = first.ipr.argsort()
    drawn = [int(order[place]) for place in (0, len(order) // 3, -len(order) // 10, -1)]
    ipr = pd.concat([pd.DataFrame({"run": name, "ipr": seeds[0].ipr.tolist()}) for name, seeds in found.runs.items()])
    means = over_seeds(table, "setting", ["ipr", "periodic"], percent=False)
    return [
        Section(
            "ipr",
            "How periodic neurons are",
            "The first seed of each setting; dashed: the threshold.",
            figures.ipr_histogram(ipr),
            shown=[text_table(means, f"Mean IPR, and share of neurons with at least {GENERALIZING:g}")],
        ),
        Section(
            "spectra",
            "What a neuron of low and of high IPR looks like",
            "U of the first term, setting without weight decay: above the weights over the numbers, below the share of power.",
            figures.neuron_spectra(neuron_weights(first.model)[0], first.ipr, drawn),
        ),
        Section(
            "pruning",
            "Accuracies as neurons are removed, by IPR and at random",
            "Mean over seeds; bands span seeds and random orders. Removed neurons are set to zero, nothing is trained again.",
            figures.pruning_curves_figure(found.curves),
            shown=[text_table(over_seeds(removed, "neurons", SHARES), "All neurons, the periodic ones, as many at random")],
            folded=[text_table(removed, "By seed and draw", percent=SHARES)],
        ),
    ]


def comparison_sections(found: Measured) -> list[Section]:
    """BatchNorm's weights and gates beside the IPR, and other networks."""
    variants = by_run({name: [each] for name, each in found.variants.items()}).rename(columns=NAMES)
    gates = found.gates.rename(columns=NAMES)
    return [
        Section(
            "batchnorm",
            "BatchNorm's weight of a neuron against its IPR",
            "A mark is a neuron of the first seed. Correlation: Spearman's, of |weight| and IPR.",
            figures.norm_weight_against_ipr(norm_weights(found.runs[NORM][0])),
            shown=[text_table(norm_table(found.runs[NORM]), "Every seed")],
        ),
        Section(
            "gates",
            "Gates trained against the true answers, beside the IPR",
            "AUC: the chance that a periodic neuron's gate is more open than another's. As many are kept as are periodic.",
            shown=[text_table(gates, "Every seed", percent=["sparsity", "kept are periodic", *SHARES])],
        ),
        Section(
            "variants",
            "Other networks, losses and operations",
            "One seed each, weight decay 5; the transformer: cross-entropy, learning rate 0.003, weight decay 2. A product's "
            "IPR is taken over discrete logarithms, a transformer's along its paths without attention.",
            shown=[text_table(variants, "Every variant", labels=3, percent=[*SHARES, "periodic"], missing="never")],
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
                "correlation": rank_correlation(table["ipr"].to_numpy(np.float64), table["weight"].to_numpy(np.float64)).rho,
                "mean |weight|, IPR < 0.5": low["weight"].mean(),
                "mean |weight|, IPR >= 0.5": high["weight"].mean(),
            }
        )
    return pd.DataFrame(rows)


def findings(found: Measured) -> list[Finding]:
    """The claims, each judged by every seed."""
    coexistence, *over_time = training_findings(found)
    pruning, *others = neuron_findings(found)
    return [coexistence, pruning, *over_time, *others]


def training_findings(found: Measured) -> list[Finding]:
    """What is learned and let go of: coexistence, inversion, stages."""
    plain = by_run({PLAIN: found.plain})
    decayed = by_run({name: found.runs[name] for name in (DECAY, STRONG)})
    strong = decayed[decayed["setting"] == STRONG]
    staged = strong["unlearned"].notna() & (strong["grokked"] < strong["unlearned"])
    inverted = decayed["phase"].isin(["partial inversion", "full inversion"])
    return [
        _judged(
            "coexistence",
            "Do memorising and generalizing coexist without weight decay?",
            bool((plain["as_labelled"] >= 0.9).all() and (plain["test"] >= 0.95).all()),
            f"without weight decay corrupted labels {_range(plain['as_labelled'])}, test accuracy {_range(plain['test'])}",
            "corrupted labels >= 90 % and test >= 95 % in every seed",
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
    ]


def neuron_findings(found: Measured) -> list[Finding]:
    """Which neurons do what: pruning by IPR, the IPR of each setting, BatchNorm, gates."""
    removed = found.removed
    periodic, random = (removed[removed["neurons"] == name] for name in (f"IPR >= {GENERALIZING:g}", "random"))
    correlations = norm_table(found.runs[NORM])["correlation"]
    ipr = by_run(found.runs).groupby("setting")["ipr"].mean()
    auc = found.gates["auc"]
    return [
        _judged(
            "pruning",
            "Does removing the neurons of low IPR remove what is memorised, and nothing else?",
            bool((periodic["as_labelled"] <= 0.05).all() and (periodic["test"] >= 0.99).all() and (random["test"] < 0.9).all()),
            f"corrupted labels {_range(periodic['as_labelled'])} and test {_range(periodic['test'])} without them; test "
            f"{_range(random['test'])} without as many at random",
            "in every seed corrupted labels <= 5 % and test >= 99 %, and test < 90 % for every random draw",
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


def told(judged: Sequence[Finding]) -> str:
    """How many questions are answered with yes, and the numbers of the first three."""
    yes = [each for each in judged if each.verdict == "yes"]
    first = "\n".join(each.sentence for each in judged[:3])
    return f"{len(yes)} of {len(judged)} questions are answered with yes.\n{first}"
