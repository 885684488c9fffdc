"""Active and inert facts (ours): which of the recalled facts carry over to a new relation, and can the probe tell?

Step 9 of the protocol. A fact is held out in some of several splits, and looked at each time.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from scipy.stats import mannwhitneyu
from torch import Tensor

from hc_lens.relations.across import Ratio, ratio_over_relations
from hc_lens.relations.split import Split

ACTIVE, INERT, NOT_RECALLED = "active", "inert", "not recalled"
STATES = (ACTIVE, INERT, NOT_RECALLED)
"""Recalled and carried over, recalled only, and never recalled."""


def observations(
    relation: str,
    subjects: Sequence[str],
    split: Split,
    right: Bool[Tensor, " held_out"],
    recalled: Bool[Tensor, " held_out"],
    margins: Float[Tensor, " held_out"],
) -> pd.DataFrame:
    """The held-out facts of one split: `relation`, `subject`, `right` (its new label), `recalled` (its old answer), `margin`.

    Args:
        subjects: of all facts.
        margins: the probe's, as `Readability` has them.
    """
    return pd.DataFrame(
        {
            "relation": relation,
            "subject": [subjects[place] for place in split.held_out],
            "right": right.tolist(),
            "recalled": recalled.tolist(),
            "margin": margins.tolist(),
        }
    )


def fact_states(observed: pd.DataFrame, threshold: float = 0.5) -> pd.DataFrame:
    """Each fact over all the times that it was held out.

    Args:
        observed: tables of `observations`, one after the other: of several splits, label assignments, seeds.
        threshold: a fact is active if its new label is right in more than this share of the times that it is recalled.

    Returns:
        A row per fact: `relation`, `subject`, `times` (held out), `recalled` (share of them), `right` (share of those with
        recall; NaN without any), `margin` (mean) and `state`, one of `STATES`.

    Raises:
        ValueError: if the threshold is not in [0, 1).
    """
    if not 0 <= threshold < 1:
        raise ValueError(f"the threshold, a share of times, must be in [0, 1), got {threshold}")
    known = observed.assign(right=observed["right"].where(observed["recalled"].astype(bool)).astype(np.float64))
    facts = known.groupby(["relation", "subject"], sort=False).agg(
        times=("right", "size"), recalled=("recalled", "mean"), right=("right", "mean"), margin=("margin", "mean")
    )
    state = np.where(facts["recalled"] == 0, NOT_RECALLED, np.where(facts["right"] > threshold, ACTIVE, INERT))
    return facts.assign(state=state).reset_index()


class MarginGap(NamedTuple):
    """How the probe's margins of active facts compare with those of inert facts of the same relation, with 95 % intervals.

    Attributes:
        difference: mean margin of active minus inert facts, averaged over relations by what each tells about it: n m / (n + m)
            for n active and m inert facts, as a regression on relation and state would.
        larger: how often an active fact has a larger margin than an inert one of its relation; ties count half. Chance is 0.5.
        active, inert, relations: how many are behind it; relations that have one state only say nothing.
    """

    difference: Ratio
    larger: Ratio
    active: int
    inert: int
    relations: int


def margin_gap(facts: pd.DataFrame, n_boot: int = 4_000, seed: int = 0) -> MarginGap:
    """Are active facts those with the larger probe margin? Within relations, bootstrapped over relations.

    Args:
        facts: what `fact_states` returns.

    Raises:
        ValueError: if no relation has both active and inert facts.
    """
    pairs = [
        (rows.loc[rows["state"] == ACTIVE, "margin"].to_numpy(), rows.loc[rows["state"] == INERT, "margin"].to_numpy())
        for _, rows in facts.groupby("relation")
    ]
    pairs = [(active, inert) for active, inert in pairs if len(active) and len(inert)]
    if not pairs:
        raise ValueError(f"no relation has both active and inert facts; states: {facts['state'].value_counts().to_dict()}")
    n, m = (np.array([len(pair[side]) for pair in pairs], dtype=np.float64) for side in (0, 1))
    gaps = np.array([active.mean() - inert.mean() for active, inert in pairs])
    larger = np.array([float(mannwhitneyu(active, inert).statistic) for active, inert in pairs])
    weights = n * m / (n + m)
    return MarginGap(
        difference=ratio_over_relations(weights * gaps, weights, n_boot, seed),
        larger=ratio_over_relations(larger, n * m, n_boot, seed),
        active=int(n.sum()),
        inert=int(m.sum()),
        relations=len(pairs),
    )
