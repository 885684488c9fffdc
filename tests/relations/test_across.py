"""Correlations over relations: SciPy's where SciPy has them, textbook partial ones, and intervals that cover."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import pearsonr, spearmanr

from hc_lens.relations.across import Correlation, correlation_table, correlations, ratio_over_relations


def relations(n=40, seed=0):
    """Generalization follows readability; both follow recall a little; the number of answers is nobody's cause."""
    rng = np.random.default_rng(seed)
    recall, answers = rng.normal(size=n), rng.integers(2, 12, size=n)
    readable = 0.5 * recall + rng.normal(size=n)
    generalizes = readable + 0.5 * recall + 0.6 * rng.normal(size=n)
    names = [f"relation {place}" for place in range(n)]
    return pd.DataFrame(
        {"relation": names, "readable": readable, "generalizes": generalizes, "recall": recall, "answers": answers}
    )


def found(table, controls=(), **options):
    kept = correlations(table, "readable", "generalizes", controls, **({"n_boot": 400} | options))
    return {(each.statistic, each.given): each for each in kept}


def test_without_controls_they_are_scipys():
    table = relations()
    every = found(table, n_boot=2_000)
    for statistic, theirs in (("pearson", pearsonr), ("spearman", spearmanr)):
        ours = every[statistic, ""]
        assert ours.r == pytest.approx(theirs(table["readable"], table["generalizes"]).statistic)
        assert ours.low < ours.r < ours.high
        assert (ours.df, ours.vif, ours.n) == (38, 1, 40)
        assert ours.p == 1 / 2_001
    weak = table.assign(generalizes=np.random.default_rng(3).normal(size=40))
    theirs = pearsonr(weak["readable"], weak["generalizes"]).pvalue
    assert found(weak, n_boot=4_000)["pearson", ""].p == pytest.approx(theirs, abs=0.03)


def test_one_control_gives_the_textbook_partial_correlation():
    table = relations()
    xy, xz, yz = (
        table[a].corr(table[b]) for a, b in (("readable", "generalizes"), ("readable", "recall"), ("generalizes", "recall"))
    )
    ours = found(table, ["recall"])["pearson", "recall"]
    assert ours.r == pytest.approx((xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2)))
    assert ours.vif == pytest.approx(1 / (1 - xz**2))
    assert ours.df == 37


def test_each_control_then_all_of_them():
    kept = correlations(relations(), "readable", "generalizes", ["recall", "answers"], n_boot=50)
    assert [each.given for each in kept[::2]] == ["", "recall", "answers", "recall, answers"]
    assert [each.df for each in kept[::2]] == [38, 37, 37, 36]


def test_a_common_cause_held_fixed_leaves_nothing():
    """Of 20 such tables, some 19 intervals hold 0 and some 19 p-values are above 0.05."""
    rng = np.random.default_rng(5)
    inside = above = 0
    for _ in range(20):
        cause = rng.normal(size=60)
        table = pd.DataFrame({"recall": cause, "readable": cause + 0.3 * rng.normal(size=60)})
        table["generalizes"] = cause + 0.3 * rng.normal(size=60)
        every = found(table, ["recall"], n_boot=200)
        assert every["pearson", ""].low > 0.7
        partial = every["pearson", "recall"]
        inside, above = inside + (partial.low < 0 < partial.high), above + (partial.p > 0.05)
    assert min(inside, above) >= 16


def test_controls_that_are_constant_or_repeat_others_change_nothing():
    table = relations().assign(constant=1.0)
    table["twice"] = 2 * table["recall"] - 3
    plain, every = found(table, ["recall"]), found(table, ["constant", "recall", "twice"])
    assert every["pearson", "constant"].r == pytest.approx(plain["pearson", ""].r)
    assert every["pearson", "constant"].df == 38
    joint, alone = every["pearson", "constant, recall, twice"], plain["pearson", "recall"]
    assert (joint.r, joint.vif) == pytest.approx((alone.r, alone.vif))
    assert joint.df == alone.df == 37


def test_controls_that_explain_everything_leave_no_correlation():
    table = relations().assign(copy=lambda rows: rows["readable"] * 3)
    partial = found(table, ["copy"])["pearson", "copy"]
    assert partial.vif == np.inf
    assert np.isnan([partial.r, partial.low, partial.high, partial.p]).all()
    few = correlations(relations(5), "readable", "generalizes", ["recall", "answers"], n_boot=50)
    assert [each.df for each in few[::2]] == [3, 2, 2, 1]
    assert str(partial) == "r = undefined"


def test_a_perfect_correlation_has_an_interval():
    table = relations().assign(generalizes=lambda rows: 2 * rows["readable"])
    perfect = found(table)["pearson", ""]
    assert str(perfect) == "r = 1.00 [1.00, 1.00]"


@settings(max_examples=10)
@given(st.floats(0.01, 100), st.floats(-50, 50), st.sampled_from([1, -1]))
def test_units_do_not_matter_and_signs_do(scale, shift, sign):
    table = relations()
    rescaled = table.assign(readable=sign * scale * table["readable"] + shift, recall=table["recall"] / scale - shift)
    plain, other = (found(each, ["recall"], n_boot=20) for each in (table, rescaled))
    for key, each in plain.items():
        assert other[key].r == pytest.approx(sign * each.r, abs=1e-6)


def test_intervals_cover_the_truth():
    rng = np.random.default_rng(8)
    rho, covered = 0.8, 0
    for _ in range(60):
        x, noise = rng.normal(size=(2, 40))
        table = pd.DataFrame({"x": x, "y": rho * x + np.sqrt(1 - rho**2) * noise})
        pearson = correlations(table, "x", "y", n_boot=400)[0]
        covered += pearson.low <= rho <= pearson.high
    assert covered >= 51


def test_told_and_tabled():
    told = Correlation("pearson", "", 0.874, 0.79, -0.01, 0.0002, 38, 1.0, 40)
    assert str(told) == "r = 0.87 [0.79, \N{MINUS SIGN}0.01]"
    assert str(told._replace(statistic="spearman")).startswith("rho = 0.87")
    table = correlation_table([told, told._replace(given="recall", r=np.nan, p=np.nan, vif=np.inf)], "Partial")
    assert table.rows[0] == ("Pearson", "nothing", "0.87 [0.79, \N{MINUS SIGN}0.01]", "0.0002", "38", "1.00")
    assert table.rows[1] == ("Pearson", "recall", "", "", "38", "\N{INFINITY}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda rows: rows.head(3), "at least 4 relations, got 3"),
        (lambda rows: rows.drop(columns="recall"), r"correlations needs the columns .*\['recall'\] missing"),
        (lambda rows: pd.concat([rows, rows.head(1)]), "'relation 0' has several"),
        (
            lambda rows: rows.assign(recall=rows["recall"].where(rows.index != 7)),
            "'recall' has no finite value for 'relation 7'",
        ),
        (lambda rows: rows.assign(generalizes=0.5), "'generalizes' is 0.5 for all relations"),
    ],
)
def test_tables_that_cannot_be_correlated(change, message):
    with pytest.raises(ValueError, match=message):
        correlations(change(relations()), "readable", "generalizes", ["recall"])


def test_a_ratio_is_of_sums_and_relations_are_drawn_whole():
    right, of = np.array([9.0, 1.0, 5.0]), np.array([10.0, 2.0, 8.0])
    ratio = ratio_over_relations(right, of)
    assert ratio.value == 0.75
    assert 0.5 <= ratio.low < 0.75 < ratio.high <= 0.9
    alone = ratio_over_relations(right[:1], of[:1])
    assert alone.value == 0.9
    assert np.isnan([alone.low, alone.high]).all()
    with pytest.raises(ValueError, match="sum to 0"):
        ratio_over_relations(np.zeros(2), np.zeros(2))
