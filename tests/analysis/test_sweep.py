"""Accuracy against sparsity: trends and falls worked out by hand."""

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis import fall_gap, falls_at, sparsity_trend
from tests.analysis.grids import full_model, runs, stacked

NAN = float("nan")
FULL = full_model({"id": 0.9, "a": 0.8, "b": 0.6}).drop(columns="step")


def sweep(*by_target: dict[float, tuple[float, float, float]]) -> pd.DataFrame:
    """A seed per argument: target -> accuracies on id, a and b."""
    cases = ("id", "a", "b")
    tables = [
        runs(seed, {target: dict(zip(cases, values, strict=True)) for target, values in of.items()})
        for seed, of in enumerate(by_target)
    ]
    return stacked(tables).drop(columns="step")


FIRST = {0.2: (0.9, 0.8, 0.6), 0.4: (0.88, 0.5, 0.6), 0.6: (0.8, 0.3, 0.6)}
SECOND = {0.2: (0.89, 0.7, 0.6), 0.4: (0.90, 0.75, 0.6), 0.6: (0.88, 0.2, 0.6)}


def test_trend_is_the_rank_correlation_within_each_seed() -> None:
    table = sparsity_trend(sweep(FIRST, SECOND)).set_index(["case", "group"])
    assert table.loc[("id", "ID"), ["rho", "n"]].tolist() == pytest.approx([(-1 - 0.5) / 2, 2])
    assert table.loc[("a", "OOD"), "rho"] == pytest.approx((-1 - 0.5) / 2)
    assert table.loc[("mean over cases", "ID"), "rho"] == table.loc[("id", "ID"), "rho"]
    low, high = table.loc[("id", "ID"), ["low", "high"]]
    assert -1 <= low < -0.75 < high <= 1


def test_a_case_that_never_changes_and_a_seed_of_two_runs_rank_nothing() -> None:
    short = {0.2: (0.9, 0.8, 0.6), 0.4: (0.1, 0.1, 0.1)}
    table = sparsity_trend(sweep(FIRST, short)).set_index(["case", "group"])
    assert table.loc[("b", "OOD"), "n"] == 0
    assert np.isnan(table.loc[("b", "OOD"), "rho"])
    assert table.loc[("id", "ID"), "n"] == 1


def test_falls_are_the_first_sparsity_below_the_full_model_or_a_level() -> None:
    table = falls_at(sweep(FIRST, SECOND), FULL, drop=0.03).set_index(["case", "group"])
    assert table.loc[("id", "ID"), ["sparsity", "n", "never"]].tolist() == pytest.approx([0.6, 1, 1])
    assert table.loc[("a", "OOD"), ["sparsity", "n", "never"]].tolist() == pytest.approx([(0.4 + 0.2) / 2, 2, 0])
    assert table.loc[("b", "OOD"), "never"] == 2
    # the mean over a and b: full .7; seed 0 .7, .55; seed 1 .65
    assert table.loc[("mean over cases", "OOD"), "sparsity"] == pytest.approx((0.4 + 0.2) / 2)
    levels = falls_at(sweep(FIRST, SECOND), level=0.5).set_index(["case", "group"])
    assert levels.loc[("a", "OOD"), "sparsity"] == pytest.approx(0.6)
    assert levels.loc[("id", "ID"), "never"] == 2


def test_gap_pairs_seeds_and_leaves_out_those_that_do_not_fall() -> None:
    gap = fall_gap(sweep(FIRST, SECOND), FULL, drop=0.03)
    assert (gap.mean, gap.n) == (pytest.approx(0.2), 1)  # seed 1 does not fall in-domain
    wide = fall_gap(sweep(FIRST, FIRST), FULL, drop=0.03)
    assert (wide.mean, wide.low, wide.high, wide.n) == (pytest.approx(0.2), pytest.approx(0.2), pytest.approx(0.2), 2)


def test_a_missing_run_is_passed_over() -> None:
    lost = FIRST | {0.4: (NAN, NAN, NAN)}
    table = falls_at(sweep(lost), FULL, drop=0.03).set_index("case")
    assert table.loc["a", "sparsity"] == pytest.approx(0.6)
    partly = FIRST | {0.4: (0.88, 0.5, NAN)}
    table = falls_at(sweep(partly), FULL, drop=0.03)
    mean = table[(table["case"] == "mean over cases") & (table["group"] == "OOD")]
    assert mean["sparsity"].item() == pytest.approx(0.6)  # a mean over the other cases would be of something else


def test_bad_sweeps_are_refused() -> None:
    table = sweep(FIRST)
    for options in ({}, {"drop": 0.03, "level": 0.5}, {"drop": 3.0}, {"level": 0.0}):
        with pytest.raises(ValueError, match="give a drop or a level"):
            falls_at(table, FULL, **options)
    with pytest.raises(ValueError, match="no rows of the full model"):
        falls_at(table, drop=0.03)
    with pytest.raises(ValueError, match="not evaluated on 'b'"):
        falls_at(table, FULL[FULL["case"] != "b"], drop=0.03)
    with pytest.raises(ValueError, match=r"several rows for seed 0, target 0\.2, case id"):
        sparsity_trend(stacked([table, table]))  # of two checkpoints, say
    with pytest.raises(ValueError, match="no OOD case"):
        fall_gap(table[table["group"] == "ID"], FULL)
