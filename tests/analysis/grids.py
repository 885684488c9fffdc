"""Sparsity grids small enough to work out by hand."""

from collections.abc import Mapping, Sequence

import pandas as pd

COLUMNS = ["step", "subnetwork", "seed", "target", "case", "group", "accuracy"]


def full_model(cases: Mapping[str, float], step: int = 100) -> pd.DataFrame:
    """The full model's accuracy per case; a case whose name starts with "id" is in-domain."""
    rows = [(step, "full", None, None, case, _group(case), accuracy) for case, accuracy in cases.items()]
    return _table(rows)


def runs(seed: int, accuracies: Mapping[float, Mapping[str, float]], step: int = 100) -> pd.DataFrame:
    """One seed's pruning runs: target -> case -> accuracy."""
    rows = [
        (step, f"seed {seed}", seed, target, case, _group(case), accuracy)
        for target, cases in accuracies.items()
        for case, accuracy in cases.items()
    ]
    return _table(rows)


def one_case(by_seed: Mapping[int, Mapping[float, float]], case: str = "id", step: int = 100) -> pd.DataFrame:
    """Pruning runs that were evaluated on one case: seed -> target -> accuracy."""
    tables = [runs(seed, {target: {case: value} for target, value in of.items()}, step) for seed, of in by_seed.items()]
    return stacked(tables)


def stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    return pd.concat(tables, ignore_index=True)


def _group(case: str) -> str:
    return "ID" if case.startswith("id") else "OOD"


def _table(rows: Sequence[tuple[object, ...]]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=COLUMNS).astype({"seed": "Int64", "target": "float64"})
