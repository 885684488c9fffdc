"""What wrong labels say: mapped back to answers, are they what the linear probe read, or what the pretrained model would say?

Step 8 of the protocol. A fine-tuned model that labels Munich as zebra says Asia, if zebra is the label of Asia. The true answer
is left out of every ranking: the probe's, the model's and the baselines'.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import binomtest
from torch import Tensor

from hc_lens.relations.across import ratio_over_relations

SOURCES = ("probe", "model", "frequency", "random")
"""Whose top answers: the probe's, the pretrained model's, as many drawn by their frequency in training, or drawn evenly."""


def recoveries(
    true: Int[Tensor, " fact"],
    given: Int[Tensor, " fact"],
    probe: Float[Tensor, "fact answer"],
    model: Float[Tensor, "fact answer"],
    counts: Int[Tensor, " answer"],
    ks: Sequence[int] = (1, 2, 3),
    draws: int = 2_000,
) -> pd.DataFrame:
    """For each wrong label, whether its answer is among the k best of the probe and of the pretrained model.

    Args:
        true: the true answers.
        given: the answers that the fine-tuned model's labels stand for.
        probe, model: scores of every answer.
        counts: training facts of each answer.
        ks: left out where all other answers would be among the k best (so a relation of two answers has no rows).
        draws: for the frequency baseline, which draws k different answers one after the other, each by its frequency; the
            same draws at every call.

    Returns:
        A row per wrong label and k: `fact`, `true`, `given`, `k`; `probe` and `model`, yes or no; `frequency` and `random`, the
        probabilities that the answer is among k that are drawn so.

    Raises:
        ValueError: if an answer has no training fact.
    """
    if (counts < 1).any():
        raise ValueError(f"every answer must be trained on; training facts by answer: {counts.tolist()}")
    wrong = (given != true).nonzero()[:, 0]
    n_answers = len(counts)
    ranks = [_rank(scores[wrong], true[wrong], given[wrong]) for scores in (probe, model)]
    by_chance = _ranks_by_frequency(counts, draws)[:, true[wrong], given[wrong]]
    tables = [
        pd.DataFrame(
            {
                "fact": wrong.tolist(),
                "true": true[wrong].tolist(),
                "given": given[wrong].tolist(),
                "k": k,
                "probe": (ranks[0] < k).tolist(),
                "model": (ranks[1] < k).tolist(),
                "frequency": (by_chance < k).double().mean(0).tolist(),
                "random": k / (n_answers - 1),
            }
        )
        for k in ks
        if k < n_answers - 1
    ]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=["fact", "true", "given", "k", *SOURCES])


def recovery_shares(errors: pd.DataFrame, n_boot: int = 4_000, seed: int = 0) -> pd.DataFrame:
    """How many wrong labels are among the top answers of each source, with intervals over relations.

    Args:
        errors: tables of `recoveries`, with a column `relation`; repeated assignments and seeds are further rows.

    Returns:
        A row per k and source: `k`, `source`, `share`, `low`, `high`, `errors`, `relations`.
    """
    rows: list[dict[str, object]] = []
    for k, sums in _by_relation(errors):
        n_errors = sums["errors"].to_numpy()
        for source in SOURCES:
            share = ratio_over_relations(sums[source].to_numpy(), n_errors, n_boot, seed)
            rows.append(
                {
                    "k": k,
                    "source": source,
                    "share": share.value,
                    "low": share.low,
                    "high": share.high,
                    "errors": int(n_errors.sum()),
                    "relations": len(sums),
                }
            )
    return pd.DataFrame(rows)


def recovery_test(errors: pd.DataFrame, n_boot: int = 4_000, seed: int = 0) -> pd.DataFrame:
    """Are wrong labels more often among the probe's top answers than among the pretrained model's? A paired test by k.

    Two ways: McNemar's exact test, which takes errors as independent (those of one fact under several seeds are not), and the
    bootstrap over relations of the difference, which does not.

    Returns:
        A row per k: `k`, `difference` (of shares, probe minus model), `low`, `high`, `probe_only`, `model_only` (errors among
        the top answers of one alone), `p` (McNemar's, two-sided), `errors`, `relations`.
    """
    rows: list[dict[str, object]] = []
    for k, sums in _by_relation(errors):
        difference = sums["probe_only"] - sums["model_only"]
        found = ratio_over_relations(difference.to_numpy(), sums["errors"].to_numpy(), n_boot, seed)
        probe_only, model_only = int(sums["probe_only"].sum()), int(sums["model_only"].sum())
        discordant = probe_only + model_only
        rows.append(
            {
                "k": k,
                "difference": found.value,
                "low": found.low,
                "high": found.high,
                "probe_only": probe_only,
                "model_only": model_only,
                "p": float(binomtest(probe_only, discordant).pvalue) if discordant else 1.0,
                "errors": int(sums["errors"].sum()),
                "relations": len(sums),
            }
        )
    return pd.DataFrame(rows)


def _by_relation(errors: pd.DataFrame) -> list[tuple[int, pd.DataFrame]]:
    """For each k, the sums over each relation's errors."""
    probe, model = errors["probe"].astype(bool), errors["model"].astype(bool)
    counted = errors.assign(errors=1, probe_only=probe & ~model, model_only=model & ~probe)
    names = ["errors", "probe_only", "model_only", *SOURCES]
    sums = counted.astype(dict.fromkeys(names, np.float64)).groupby(["k", "relation"])[names].sum()
    return [(int(str(k)), rows) for k, rows in sums.groupby("k")]


def _rank(
    scores: Float[Tensor, "fact answer"], true: Int[Tensor, " fact"], given: Int[Tensor, " fact"]
) -> Int[Tensor, " fact"]:
    """How many answers, the true one apart, score higher than the given one."""
    others = scores.scatter(1, true[:, None], -torch.inf)
    higher: Bool[Tensor, "fact answer"] = others > others.gather(1, given[:, None])
    return higher.sum(1)


def _ranks_by_frequency(counts: Int[Tensor, " answer"], draws: int) -> Int[Tensor, "draw answer answer"]:
    """The place at which each answer (last axis) is drawn by frequency, one after the other, when another (middle) is left out.

    Keys of log frequency plus Gumbel noise, in descending order, are such a draw (Yellott 1977).
    """
    generator = torch.Generator().manual_seed(0)
    uniform = torch.rand(draws, 1, len(counts), generator=generator, dtype=torch.float64)
    keys = (counts.double().log() - (-uniform.log()).log()).repeat(1, len(counts), 1)
    keys.diagonal(dim1=1, dim2=2).fill_(-torch.inf)
    return keys.argsort(dim=-1, descending=True).argsort(dim=-1)
