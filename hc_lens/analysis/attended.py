"""Attention scores of every head, pair by pair, and their tables: with intervals over pairs, and with baselines."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.analysis.profiles import FACTOR, MINIMUM, profile_table
from hc_lens.analysis.targets import OVERLAPS, RELATIONS
from hc_lens.statistics import bootstrap_means


@dataclass(frozen=True, eq=False)
class PairAttention:
    """Attention in each pair of one case, summed over the words that have a target.

    `mass` is what every head gives to the targets, `others` (overlap relations only) what it gives to as many other words of
    the other sentence, `uniform` what an even spread over the visible tokens would give; `queries` are the words counted.
    Scores are sums of these over rows, divided by the sum of `queries`.
    """

    case: str
    group: str
    mass: Float[np.ndarray, "row layer head relation"]
    others: Float[np.ndarray, "row layer head overlap"]
    uniform: Float[np.ndarray, "row relation"]
    queries: Float[np.ndarray, "row relation"]


@dataclass(frozen=True, eq=False)
class AttentionScores:
    """What every head attends to, per case, and the same on shuffled pairs.

    A shuffled pair is a first sentence with the second sentence of another row of its case, encoded and run anew. `shuffled`
    has an entry per case: None where shuffled pairs were not run, or the case is a single row.
    """

    cases: tuple[PairAttention, ...]
    shuffled: tuple[PairAttention | None, ...]

    def table(self, n_bootstrap: int = 2_000, seed: int = 0, level: float = 0.95) -> pd.DataFrame:
        """One row per case, head and relation that some word of the case has a target for.

        A relation without any target is absent, not 0: "separator" where pairs have none, "next" in a causal model.

        | column | meaning |
        |---|---|
        | `case`, `group` | the case, and "ID", "OOD" or "" |
        | `layer`, `head`, `relation` | from 0; see `hc_lens.analysis.targets.Relation` |
        | `score`, `low`, `high` | share of a word's attention that goes to its targets: mean over words with one, interval |
        | `uniform` | the score of a head that attends evenly to all visible tokens, on the same words |
        | `others` | for overlap: what as many other words of the other sentence get |
        | `shuffled`, `shuffled_low`, `shuffled_high` | the score on shuffled pairs |
        | `n_queries`, `n_rows` | words with a target, and pairs with such a word |
        | `shuffled_queries`, `shuffled_rows` | the same of shuffled pairs: for overlap few, since they must share a word |

        Intervals resample pairs, not words (cluster bootstrap); they are missing where fewer than two pairs have a target.

        Raises:
            ValueError: for `n_bootstrap` below 1 or a level outside (0, 1).
        """
        if not 0 < level < 1:
            raise ValueError(f"the level of an interval must be in (0, 1), got {level}")
        both = zip(self.cases, self.shuffled, strict=True)
        return pd.concat([_case_table(case, other, n_bootstrap, seed, level) for case, other in both], ignore_index=True)

    def pooled(self, cases: Collection[str] | None = None, name: str = "all") -> "AttentionScores":
        """The rows of these cases (default: all) as one case; its group is theirs if they share one, else "".

        Raises:
            KeyError: for a case that was not measured.
        """
        known = [part.case for part in self.cases]
        if unknown := set(cases or ()) - set(known):
            raise KeyError(f"no case {sorted(unknown)[0]!r} was measured; there are {known}")
        chosen = [i for i, case in enumerate(known) if cases is None or case in cases]
        others = [part for part in (self.shuffled[i] for i in chosen) if part is not None]
        return AttentionScores(
            (_end_to_end([self.cases[i] for i in chosen], name),), (_end_to_end(others, name) if others else None,)
        )

    def by_group(self) -> "AttentionScores":
        """One case for each group, with the rows of all its cases: "in-domain" and "out of domain"."""
        named = {"ID": "in-domain", "OOD": "out of domain"}
        parts: list[AttentionScores] = []
        for group in dict.fromkeys(part.group for part in self.cases):
            cases = [part.case for part in self.cases if part.group == group]
            parts.append(self.pooled(cases, named.get(group, "all")))
        return AttentionScores(
            tuple(case for part in parts for case in part.cases), tuple(other for part in parts for other in part.shuffled)
        )

    def profiles(
        self, *, factor: float = FACTOR, minimum: float = MINIMUM, n_bootstrap: int = 2_000, seed: int = 0
    ) -> pd.DataFrame:
        """What each head mostly does, over all cases pooled; the rule and the columns are those of `profile_table`.

        Raises:
            ValueError: as `profile_table`.
        """
        return profile_table(self.pooled().table(n_bootstrap, seed), factor=factor, minimum=minimum)


def _end_to_end(parts: Sequence[PairAttention], name: str) -> PairAttention:
    groups = {part.group for part in parts}
    values = (np.concatenate([getattr(part, field) for part in parts]) for field in ("mass", "others", "uniform", "queries"))
    return PairAttention(name, groups.pop() if len(groups) == 1 else "", *values)


class _Ratios(NamedTuple):
    """Summed mass over summed queries, with the interval from resampled pairs; NaN where there are too few."""

    score: Float[np.ndarray, "layer head relation"]
    low: Float[np.ndarray, "layer head relation"]
    high: Float[np.ndarray, "layer head relation"]


def _ratios(part: PairAttention, n_bootstrap: int, seed: int, level: float) -> _Ratios:
    n, *shape = part.mass.shape
    missing = np.full(shape, np.nan)
    # Mass and queries in one matrix: each draw resamples both together.
    draws = bootstrap_means(np.concatenate([part.mass.reshape(n, -1), part.queries], axis=1), n_bootstrap, seed)
    rows = (part.queries > 0).sum(0)
    with np.errstate(invalid="ignore"):
        score = part.mass.sum(0, dtype=np.float64) / part.queries.sum(0, dtype=np.float64)
        drawn = draws[:, : -shape[-1]].reshape(-1, *shape) / draws[:, None, None, -shape[-1] :]
    low, high = missing.copy(), missing.copy()
    for at in np.flatnonzero(rows > 1):
        # A draw may hold none of the pairs that have a target: it says nothing about the score.
        low[..., at], high[..., at] = np.nanquantile(drawn[..., at], [0.5 - level / 2, 0.5 + level / 2], axis=0)
    return _Ratios(score, low, high)


def _case_table(part: PairAttention, shuffled: PairAttention | None, n_bootstrap: int, seed: int, level: float) -> pd.DataFrame:
    own = _ratios(part, n_bootstrap, seed, level)
    other = None if shuffled is None else _ratios(shuffled, n_bootstrap, seed, level)
    layers, heads = np.indices(own.score.shape[:2])
    missing = np.full(layers.shape, np.nan)
    tables: list[pd.DataFrame] = []
    for at in np.flatnonzero(part.queries.any(0)).tolist():
        asked = float(part.queries[:, at].sum(dtype=np.float64))
        columns = {
            "score": own.score[..., at],
            "low": own.low[..., at],
            "high": own.high[..., at],
            "uniform": np.full(layers.shape, part.uniform[:, at].sum(dtype=np.float64) / asked),
            "others": part.others[..., at].sum(0, dtype=np.float64) / asked if at < len(OVERLAPS) else missing,
            "shuffled": missing if other is None else other.score[..., at],
            "shuffled_low": missing if other is None else other.low[..., at],
            "shuffled_high": missing if other is None else other.high[..., at],
        }
        rows = pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel(), "relation": RELATIONS[at]})
        rows = rows.assign(**{name: values.ravel() for name, values in columns.items()}, **_counts(part, shuffled, at))
        tables.append(rows)
    table = pd.concat(tables, ignore_index=True)
    table.insert(0, "case", part.case)
    table.insert(1, "group", part.group)
    return table


def _counts(part: PairAttention, shuffled: PairAttention | None, at: int) -> dict[str, int]:
    counts: dict[str, int] = {}
    for prefix, pairs in (("n", part), ("shuffled", shuffled)):
        queries = np.zeros(0) if pairs is None else pairs.queries[:, at]
        counts |= {f"{prefix}_queries": round(float(queries.sum())), f"{prefix}_rows": int((queries > 0).sum())}
    return counts
