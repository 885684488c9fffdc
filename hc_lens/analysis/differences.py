"""Accuracy differences between two sets of subnetworks, case by case."""

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.statistics import welch_interval
from hc_lens.tables import require_columns, require_once

_GROUPS = ("ID", "OOD")


def accuracy_difference(first: pd.DataFrame, second: pd.DataFrame, column: str = "accuracy") -> pd.DataFrame:
    """Mean accuracy of two sets of subnetworks on each case that both were evaluated on, second minus first.

    The samples are the seeds of each set, unpaired: their interval is Welch's (Student's t with unequal variances), which takes
    the rows as given, so that the sets should have been evaluated on the same ones.

    Args:
        first: as `hc_lens.evaluate` returns: `subnetwork`, `case`, `group` and the column; the full model's rows are left out,
            missing values are failed runs.
        second: the same of the other set.
        column: "accuracy", "agreement" (with each one's own full model), "margin", ...

    Returns:
        `case`, `group`, `first`, `second` (means), `difference`, `low`, `high` (95 %; NaN if a set has fewer than two seeds),
        `n_first`, `n_second`. After the cases come the means over all cases of a group, named "mean of 4 OOD cases".

    Raises:
        ValueError: for a table without a needed column or without subnetworks, several rows of one subnetwork and case, or no
            case in common.
    """
    wide = [_by_case(table, column, side) for table, side in ((first, "first"), (second, "second"))]
    groups = dict(zip(first["case"], first["group"], strict=True))
    common = [case for case in dict.fromkeys(first["case"]) if all(case in each.columns for each in wide)]
    if not common:
        raise ValueError(f"no case in common: the first has {list(wide[0].columns)}, the second {list(wide[1].columns)}")
    rows = [
        {"case": case, "group": groups[case], **_difference(*(each[case].to_numpy(np.float64) for each in wide))}
        for case in common
    ]
    for group in _GROUPS:
        cases = [case for case in common if groups[case] == group]
        if len(cases) > 1:
            means = [each[cases].mean(axis=1, skipna=False).to_numpy(np.float64) for each in wide]
            rows.append({"case": f"mean of {len(cases)} {group} cases", "group": group, **_difference(*means)})
    return pd.DataFrame(rows)


def _by_case(table: pd.DataFrame, column: str, side: str) -> pd.DataFrame:
    """One row per subnetwork, one column per case."""
    require_columns(table, ("subnetwork", "case", "group", column), f"the {side} evaluation")
    pruned = table[table["subnetwork"] != "full"]
    if pruned.empty:
        raise ValueError(f"the {side} evaluation has no subnetworks, only the full model")
    require_once(pruned, ("subnetwork", "case"), f"the {side} evaluation", "give those of one sparsity")
    return pruned.pivot_table(index="subnetwork", columns="case", values=column, dropna=False, sort=False)


def _difference(first: Float[np.ndarray, " value"], second: Float[np.ndarray, " other"]) -> dict[str, float]:
    a, b = first[~np.isnan(first)], second[~np.isnan(second)]
    before, after = (float(values.mean()) if len(values) else float("nan") for values in (a, b))
    low, high = welch_interval(a, b)
    return {
        "first": before,
        "second": after,
        "difference": after - before,
        "low": low,
        "high": high,
        "n_first": len(a),
        "n_second": len(b),
    }
