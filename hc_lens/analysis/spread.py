"""How far subnetworks of one sparsity differ on each case."""

from collections.abc import Sequence

import pandas as pd

from hc_lens.analysis.columns import require_columns


def spread(evaluation: pd.DataFrame, by: Sequence[str] = ("case", "group")) -> pd.DataFrame:
    """Least, greatest, mean and standard deviation over subnetworks of their accuracy, beside the full model's.

    Args:
        evaluation: as `hc_lens.metrics.evaluate` returns: `subnetwork` ("full" for the full model), `case`, `group`,
            `accuracy`. A missing accuracy is a failed run: it is left out of the statistics and of `subnetworks`.
        by: columns whose values keep subnetworks apart, such as `("target", "case", "group")` for several sparsities.

    Returns:
        The columns `by`, then `full`, `subnetworks` (how many), `min`, `max`, `mean`, `std` (of a sample: n - 1).

    Raises:
        ValueError: if a column is missing.
    """
    require_columns(evaluation, ("subnetwork", "case", "accuracy", *by), "the evaluation table")
    whole = evaluation["subnetwork"] == "full"
    full = evaluation[whole].groupby("case")["accuracy"].first()
    spreads = (
        evaluation[~whole]
        .groupby(list(by), sort=False)["accuracy"]
        .agg(subnetworks="count", min="min", max="max", mean="mean", std="std")
        .reset_index()
    )
    spreads.insert(len(by), "full", spreads["case"].map(full) if "case" in by else float("nan"))
    return spreads
