"""What a head mostly does, from its attention scores, by a stated rule."""

import pandas as pd

from hc_lens.analysis.targets import Relation

CANDIDATES: tuple[Relation, ...] = ("overlap", "previous", "next", "separator", "first", "self")
"""The relations that can name a head."""

MIXED = "mixed"

FACTOR = 2.0
MINIMUM = 0.25
"""The rule's defaults: see `profile_table`."""


def profile_table(scores: pd.DataFrame, *, factor: float = FACTOR, minimum: float = MINIMUM) -> pd.DataFrame:
    """A profile for each head, with its evidence: one row per head.

    The rule: a relation qualifies if its score is at least `minimum` and the low end of its interval lies above `factor` times
    its baseline. The baseline is the score of even attention; for overlap, the larger of that and what as many other words of
    the other sentence get, so that a head which looks at the whole other sentence is not an overlap head. The profile is the
    qualified relation with the largest score, else "mixed". The score on shuffled pairs is shown, not asked for: a head that
    matches words in any pair scores as high there.

    Scores are means over the words that have a target. Most words have no match: a head that finds matches, and rests on the
    separator for all other words, may come out as "separator" with "overlap" as runner-up.

    | column | meaning |
    |---|---|
    | `layer`, `head`, `profile` | from 0; a candidate or "mixed" |
    | `relation` | the relation that the evidence is of: the profile; for "mixed", the one with the largest score |
    | `score`, `low`, `high`, `baseline`, `ratio`, `shuffled` | of that relation; `ratio` is score / baseline |
    | `runner_up`, `runner_up_score` | the largest of the other scores |

    Args:
        scores: `AttentionScores.table()` of one case (or of `pooled()`).

    Raises:
        ValueError: for scores of no case or of several, `factor` below 1, or `minimum` outside [0, 1].
    """
    cases = list(dict.fromkeys(scores["case"]))
    if len(cases) != 1:
        raise ValueError(f"a profile is of one case, the table has {cases}: choose one, or pool them (AttentionScores.pooled)")
    if factor < 1 or not 0 <= minimum <= 1:
        raise ValueError(f"factor must be at least 1 and minimum in [0, 1], got {factor} and {minimum}")
    table = scores[scores["relation"].isin(CANDIDATES)].copy()
    table["baseline"] = table[["uniform", "others"]].max(axis=1)  # others is missing but for overlap
    table["ratio"] = table["score"] / table["baseline"]
    table["qualifies"] = (table["score"] >= minimum) & (table["low"] > factor * table["baseline"])
    # Within a head: qualified relations first, then by score.
    ordered = table.sort_values(["layer", "head", "qualifies", "score"], ascending=[True, True, False, False], kind="stable")
    best = ordered.groupby(["layer", "head"], sort=False).head(1)
    rest = ordered.drop(best.index).sort_values(["layer", "head", "score"], ascending=[True, True, False], kind="stable")
    second = rest.groupby(["layer", "head"], sort=False).head(1)
    second = second[["layer", "head", "relation", "score"]].rename(
        columns={"relation": "runner_up", "score": "runner_up_score"}
    )
    best = best.assign(profile=best["relation"].where(best["qualifies"], MIXED))
    columns = ["layer", "head", "profile", "relation", "score", "low", "high", "baseline", "ratio", "shuffled"]
    return best[columns].merge(second, on=["layer", "head"], how="left").reset_index(drop=True)
