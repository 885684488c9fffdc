"""How far subnetworks of one sparsity differ on each case."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.tables import require_columns


def spread(evaluation: pd.DataFrame, by: Sequence[str] = ("case", "group")) -> pd.DataFrame:
    """Least, greatest and mean accuracy of the subnetworks and its spread over them, beside the full model's.

    Args:
        evaluation: as `hc_lens.metrics.evaluate` returns: `subnetwork` ("full" for the full model), `case`, `group`,
            `accuracy`, and `n`, the rows of a case. A missing accuracy is a failed run: it is left out of the statistics and
            of `subnetworks`. Without `n` no noise is taken off the spread.
        by: columns whose values keep subnetworks apart, such as `("target", "case", "group")` for several sparsities.

    Returns:
        The columns `by`, then `full`, `subnetworks` (how many), `min`, `max`, `mean`, `spread` (as
        `spread_over_seeds`; NaN for one subnetwork).

    Raises:
        ValueError: if a column is missing.
    """
    require_columns(evaluation, ("subnetwork", "case", "accuracy", *by), "the evaluation table")
    whole = evaluation["subnetwork"] == "full"
    full = evaluation[whole].groupby("case")["accuracy"].first()
    runs = evaluation[~whole].groupby(list(by), sort=False)
    spreads = runs["accuracy"].agg(subnetworks="count", min="min", max="max", mean="mean").reset_index()
    spreads["spread"] = [_spread(table.dropna(subset="accuracy")) for _, table in runs]
    spreads.insert(len(by), "full", spreads["case"].map(full) if "case" in by else float("nan"))
    return spreads


def spread_over_seeds(
    accuracies: Float[np.ndarray, "*draw seed case"], rows: Float[np.ndarray, " case"]
) -> Float[np.ndarray, "*draw case"]:
    """Standard deviation over seeds (of a sample: n - 1) less the binomial noise of a case's rows; 0 where that is the larger.

    It understates what lies beyond noise, as all subnetworks see the same rows. Infinite `rows` take nothing off.
    """
    noise = (accuracies * (1 - accuracies)).mean(axis=-2) / rows
    return np.sqrt(np.clip(accuracies.var(axis=-2, ddof=1) - noise, 0.0, None))


def _spread(runs: pd.DataFrame) -> float:
    if len(runs) < 2:
        return float("nan")
    rows = float(runs["n"].mean()) if "n" in runs.columns else np.inf
    return float(spread_over_seeds(runs[["accuracy"]].to_numpy(dtype=np.float64), np.array([rows]))[0])
