"""An evaluation table by groups of cases, such as the paper's OOD-E."""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float

from hc_lens.statistics import Interval

_MEASURED = ("case", "group", "n", "accuracy", "low", "high", "margin", "ece", "agreement", "kl")
_AVERAGED = ("margin", "ece", "agreement", "kl")


def grouped(evaluation: pd.DataFrame, groups: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """Average an evaluation table (`evaluate`'s, with any further columns that say which model) over groups of cases.

    One row per model and group, with the table's columns: `case` is the group's name, `n` its rows, every other measure the
    mean over its cases, which weigh the same whatever their size. Cases in no group are left out; a case may be in several.
    The interval of the mean accuracy is put together from the cases' own, taken as independent (`mean_interval`).

    Raises:
        ValueError: for no groups, an empty one, one with a case that the table (or some model in it) lacks, or that has both
            in-domain and out-of-domain cases; for a case that a model has several rows of.
    """
    if not groups:
        raise ValueError("no groups to average over: give at least one name with its cases")
    for name, cases in groups.items():
        _require_cases(evaluation, name, cases)
    models = [column for column in evaluation.columns if column not in _MEASURED]
    rows: list[dict[str, object]] = []
    for _, table in evaluation.groupby(models, sort=False, dropna=False):
        model: dict[str, object] = {str(column): value for column, value in table[models].iloc[0].items()}
        if twice := table["case"][table["case"].duplicated()].tolist():
            raise ValueError(f"{model} has several rows of case {twice[0]!r}")
        by_case = table.set_index("case")
        for name, cases in groups.items():
            if missing := [case for case in cases if case not in by_case.index]:
                raise ValueError(f"group {name!r}: {model} has no row of case {missing[0]!r}")
            found = by_case.loc[list(cases)]
            low, high = mean_interval(*(found[column].to_numpy(np.float64) for column in ("accuracy", "low", "high")))
            rows.append(
                {
                    **model,
                    **{"case": name, "group": found["group"].iloc[0], "n": int(found["n"].sum())},
                    **{"accuracy": float(found["accuracy"].mean()), "low": low, "high": high},
                    **{column: float(found[column].mean()) for column in _AVERAGED if column in found},
                }
            )
    return pd.DataFrame(rows)[list(evaluation.columns)].astype(evaluation.dtypes.to_dict())


def mean_interval(
    values: Float[np.ndarray, " value"], low: Float[np.ndarray, " value"], high: Float[np.ndarray, " value"]
) -> Interval:
    """Interval of the mean of independent estimates from the interval of each: squared distances to the limits add up.

    The MOVER rule of Zou and Donner 2008 with equal weights; inside [0, 1] for proportions with Wilson intervals.

    Raises:
        ValueError: for no estimates.
    """
    if not len(values):
        raise ValueError("the mean of no estimates has no interval")
    mean = float(values.mean())
    below, above = (float(np.sqrt(np.square(values - limit).sum())) / len(values) for limit in (low, high))
    return Interval(mean - below, mean + above)


def _require_cases(evaluation: pd.DataFrame, name: str, cases: Sequence[str]) -> None:
    if not cases:
        raise ValueError(f"group {name!r} has no cases")
    known = list(evaluation["case"].unique())
    for case in cases:
        if case not in known:
            raise ValueError(f"group {name!r}: the table has no case {case!r}; it has {known}")
    kinds = sorted(evaluation.loc[evaluation["case"].isin(list(cases)), "group"].unique())
    if len(kinds) > 1:
        raise ValueError(f"group {name!r} has both in-domain and out-of-domain cases: {list(cases)}")
