"""Relations beside one another: a row for each, with its readability, its generalization, and what else may explain it.

The tables that correlations (`across`), error recovery (`recovery`) and facts (`facts`) are made from.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool
from torch import Tensor

from hc_lens.relations.config import Variant
from hc_lens.relations.facts import observations
from hc_lens.relations.measured import PROBES, Measured
from hc_lens.relations.recovery import recoveries
from hc_lens.relations.scores import above_chance, majority_rate
from hc_lens.statistics import mean_over_seeds

X, Y = "readability", "generalization"
"""What is correlated: how linearly readable the old relation is before fine-tuning, and the new one's held-out accuracy, both
above the majority rate."""

CONTROLS = ("log training subjects", "answers", "recall")
"""What is held fixed, singly and jointly; with `FREQUENCY` where counts are given (step 7 of the protocol)."""

FREQUENCY = "log frequency"


class Generalized(NamedTuple):
    """A fine-tuned model's labels for the facts held out.

    Attributes:
        accuracy: over the closed set of labels.
        above: the accuracy above the majority rate of the held-out facts.
        train: the last epoch's accuracy on the training facts.
        reached: whether all of these were right in the end.
    """

    accuracy: float
    above: float
    train: float
    reached: bool
    epochs: int
    seconds: float


def generalized(measured: Measured, variant: Variant) -> Generalized:
    """How one fine-tuning generalizes (step 6 of the protocol)."""
    tuned, held_out = measured.tuned(variant), list(measured.split(variant.seed).held_out)
    codes = measured.relation.codes[held_out]
    accuracy = _right(measured, variant).double().mean().item()
    above = above_chance(accuracy, majority_rate(codes))
    course = tuned.train_accuracy
    return Generalized(accuracy, above, course[-1], tuned.reached, len(course), tuned.seconds)


def generalization_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """A row per relation and fine-tuning: `relation`, the fields of `Variant` and those of `Generalized`."""
    rows = [
        {"relation": each.relation.name} | variant._asdict() | generalized(each, variant)._asdict()
        for each in measured
        for variant in each.config.variants
    ]
    return pd.DataFrame(rows)


def relation_table(measured: Sequence[Measured], counts: Mapping[str, float] | None = None) -> pd.DataFrame:
    """A row per relation, all rates above the majority rate where the name does not say accuracy.

    Columns: `relation`; `readability` and the other probes', `control` (the control task), means over splits; `layer`, the
    median of those chosen; `generalization` with `low` and `high` (Student's t over assignments and seeds), `accuracy`,
    `other labels` (generalization with labels of other categories; NaN without any), `reached`; `recall` (accuracy), `answers`,
    `training subjects` and its log; `log frequency`, the mean log of the counts, where they are given.

    Args:
        counts: how often subjects occur in pretraining text; every subject must have one.

    Raises:
        ValueError: for a subject without a count, or one of 0.
    """
    return pd.DataFrame([_row(each, counts) for each in measured])


def _row(measured: Measured, counts: Mapping[str, float] | None) -> dict[str, object]:
    relation, config = measured.relation, measured.config
    probed = {probe: [measured.probed(seed, probe) for seed in config.seeds] for probe in PROBES}
    chosen = probed[PROBES[0]]
    fine_tuned = {variant: generalized(measured, variant) for variant in config.variants}
    own = [found for variant, found in fine_tuned.items() if variant.category == config.category]
    others = [found.above for variant, found in fine_tuned.items() if variant.category != config.category]
    mean = mean_over_seeds(np.array([found.above for found in own]))
    n_train = len(measured.split(config.seeds[0]).train)
    row: dict[str, object] = {"relation": relation.name, X: np.mean([found.above for found, _ in chosen])}
    row |= {f"{X}, {probe}": np.mean([found.above for found, _ in probed[probe]]) for probe in PROBES[1:]}
    row |= {
        "control": np.mean([above_chance(control.held_out.mean().item(), found.majority) for found, control in chosen]),
        "layer": float(np.median([found.layer for found, _ in chosen])),
        Y: mean.mean,
        "low": mean.low,
        "high": mean.high,
        "accuracy": np.mean([found.accuracy for found in own]),
        "other labels": np.mean(others) if others else np.nan,
        "reached": np.mean([found.reached for found in own]),
        "recall": np.mean([measured.recall(seed).accuracy for seed in config.seeds]),
        "answers": len(relation.answers),
        "training subjects": n_train,
        "log training subjects": np.log(n_train),
    }
    return row if counts is None else row | {FREQUENCY: _log_frequency(measured, counts)}


def _log_frequency(measured: Measured, counts: Mapping[str, float]) -> float:
    relation = measured.relation
    for subject in relation.subjects:
        if counts.get(subject, 0) <= 0:
            raise ValueError(
                f"counts: subject {subject!r} of relation {relation.name!r} has {counts.get(subject)!r}, not a count"
            )
    return float(np.mean(np.log([counts[subject] for subject in relation.subjects])))


def profile_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """Readability by layer: `relation`, `layer`, `above` (held out, mean over splits), `chosen` (on which share of splits)."""
    rows: list[dict[str, object]] = []
    for each in measured:
        probes = [each.probed(seed).found for seed in each.config.seeds]
        for layer in range(len(probes[0].held_out)):
            above = np.mean([above_chance(probe.held_out[layer].item(), probe.majority) for probe in probes])
            chosen = np.mean([probe.layer == layer for probe in probes])
            rows.append({"relation": each.relation.name, "layer": layer, "above": above, "chosen": chosen})
    return pd.DataFrame(rows)


def error_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """Wrong labels of held-out facts mapped back to answers, as `recoveries`, with `relation`, `assignment`, `seed`."""
    tables = [
        _errors(each, variant).assign(relation=each.relation.name, assignment=variant.assignment, seed=variant.seed)
        for each in measured
        for variant in own_variants(each)
    ]
    return pd.concat([table for table in tables if len(table)] or tables[:1], ignore_index=True)


def _errors(measured: Measured, variant: Variant) -> pd.DataFrame:
    split, codes = measured.split(variant.seed), measured.relation.codes
    held_out = list(split.held_out)
    return recoveries(
        true=codes[held_out],
        given=measured.tuned(variant).predictions[held_out],
        probe=measured.probed(variant.seed).found.scores,
        model=measured.recall(variant.seed).scores,
        counts=codes[list(split.train)].bincount(minlength=len(measured.relation.answers)),
    )


def fact_table(measured: Sequence[Measured]) -> pd.DataFrame:
    """Every held-out fact of every fine-tuning, as `observations` has them."""
    tables = [
        observations(
            each.relation.name,
            each.relation.subjects,
            each.split(variant.seed),
            _right(each, variant),
            each.recall(variant.seed).right,
            each.probed(variant.seed).found.margins,
        )
        for each in measured
        for variant in own_variants(each)
    ]
    return pd.concat(tables, ignore_index=True)


def _right(measured: Measured, variant: Variant) -> Bool[Tensor, " held_out"]:
    held_out = list(measured.split(variant.seed).held_out)
    return measured.tuned(variant).predictions[held_out] == measured.relation.codes[held_out]


def own_variants(measured: Measured) -> list[Variant]:
    """The fine-tunings with labels of the main category."""
    return [variant for variant in measured.config.variants if variant.category == measured.config.category]
