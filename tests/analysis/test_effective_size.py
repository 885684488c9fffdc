"""What counts as a small faithful subnetwork, by hand, under what the paper's code does and what its text says."""

import itertools

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.analysis import effective_size, seed_sizes
from hc_lens.statistics import mean_over_seeds
from tests.analysis.grids import full_model, one_case, runs, stacked

NAN = float("nan")
FULL = full_model({"id": 0.9})


def sizes(grid: pd.DataFrame, full: pd.DataFrame = FULL, **options: object) -> dict[str, float]:
    """The effective size on each set of the only checkpoint."""
    table = effective_size(grid, full, **options)
    return dict(zip(table["set"], table["size"], strict=True))


# --- semantics


def test_as_coded_averages_sizes_and_as_written_averages_accuracies() -> None:
    grid = one_case({1: {0.2: 0.88, 0.4: 0.86, 0.6: 0.80}, 2: {0.2: 0.90, 0.4: 0.88, 0.6: 0.86}})
    assert sizes(grid, semantics="as_coded") == pytest.approx({"ID": (80 + 60) / 2})
    assert sizes(grid, semantics="as_written") == pytest.approx({"ID": 60})  # means .89, .87, .83: .87 is within 3 points


@pytest.mark.parametrize(("semantics", "size"), [("as_coded", 100), ("as_written", 50)])
@pytest.mark.parametrize("full", [0.90, 0.5, 0.73, 0.31])
def test_exactly_three_points_off_is_faithful_only_as_written(semantics: str, size: float, full: float) -> None:
    grid = one_case({1: {0.5: round(full - 0.03, 2)}})
    assert sizes(grid, full_model({"id": full}), semantics=semantics) == {"ID": size}


def test_far_better_than_the_full_model_is_unfaithful_only_as_written() -> None:
    grid = one_case({1: {0.5: 0.99}})
    assert sizes(grid, semantics="as_coded") == {"ID": 50}
    assert sizes(grid, semantics="as_written") == {"ID": 100}


def test_mixed_weighs_cases_as_coded_and_groups_as_written() -> None:
    cases = {"id": 0.90, "a": 0.86, "b": 0.86, "c": 0.86}  # mean of cases .87, of groups .88; the full model has .9
    found = {
        semantics: sizes(runs(1, {0.5: cases}), full_model(dict.fromkeys(cases, 0.9)), semantics=semantics)
        for semantics in ("as_coded", "as_written")
    }
    assert found == {
        "as_coded": {"ID": 50, "OOD": 100, "mixed": 100},
        "as_written": {"ID": 50, "OOD": 100, "mixed": 50},
    }


def test_without_ood_cases_there_is_no_ood_and_no_mixed_set() -> None:
    assert set(sizes(one_case({1: {0.5: 0.9}}), semantics="as_coded")) == {"ID"}


def test_no_faithful_subnetwork_means_the_full_model() -> None:
    grid = one_case({1: {0.2: 0.5, 0.4: 0.5}})
    assert sizes(grid, semantics="as_coded") == sizes(grid, semantics="as_written") == {"ID": 100}


def test_raw_takes_the_sparsest_and_monotone_stops_at_the_first_failure() -> None:
    grid = one_case({1: {0.6: 0.89, 0.2: 0.89, 0.4: 0.5}})
    for semantics in ("as_coded", "as_written"):
        assert sizes(grid, semantics=semantics) == pytest.approx({"ID": 40})
        assert sizes(grid, semantics=semantics, curve="monotone") == pytest.approx({"ID": 80})


# --- missing and failed runs


@pytest.mark.parametrize(
    ("semantics", "failed", "size"), [("as_coded", True, 80), ("as_coded", False, 40), ("as_written", True, 40)]
)
def test_a_failed_run_is_unfaithful_only_as_coded(semantics: str, failed: bool, size: float) -> None:
    grid = one_case({1: {0.2: 0.9, 0.4: NAN, 0.6: 0.9}}).assign(failed=[False, failed, False])
    assert sizes(grid, semantics=semantics, curve="monotone") == pytest.approx({"ID": size})


def test_a_seed_without_any_run_is_left_out_and_one_whose_runs_all_failed_is_the_full_model() -> None:
    grid = one_case({1: {0.5: 0.9}, 2: {0.5: NAN}})
    missing = effective_size(grid, FULL, semantics="as_coded").iloc[0]
    assert (missing["size"], missing["n"], missing["missing"]) == (50, 1, 1)
    failed = effective_size(grid.assign(failed=[False, True]), FULL, semantics="as_coded").iloc[0]
    assert (failed["size"], failed["n"], failed["missing"]) == (75, 2, 0)


def test_a_checkpoint_without_any_run_has_no_size() -> None:
    for semantics in ("as_coded", "as_written"):
        row = effective_size(one_case({1: {0.5: NAN}}), FULL, semantics=semantics).iloc[0]
        assert np.isnan(row["size"])
        assert row["n"] == 0


def test_a_run_that_lacks_one_case_is_missing_on_the_sets_with_that_case() -> None:
    cases = {"id": 0.9, "a": 0.9, "b": 0.9}
    grid = runs(1, {0.2: cases, 0.5: cases | {"b": NAN}})
    assert sizes(grid, full_model(cases), semantics="as_coded") == pytest.approx({"ID": 50, "OOD": 80, "mixed": 80})


# --- what the table says beside the size


def test_interval_over_seeds_is_students_t_as_coded() -> None:
    grid = one_case(
        {
            seed: {target: 0.9 if target <= best else 0 for target in (0.1, 0.2, 0.3)}
            for seed, best in enumerate([0.1, 0.2, 0.3])
        }
    )
    row = effective_size(grid, FULL, semantics="as_coded").iloc[0]
    assert row[["size", "n"]].tolist() == pytest.approx([80, 3])
    assert row[["low", "high"]].tolist() == pytest.approx([80 - 24.84, 100], abs=0.01)  # 4.303 * 10 / sqrt(3), at most 100
    assert row["interval"] == "t"


def test_interval_over_seeds_resamples_whole_seeds_as_written() -> None:
    grid = one_case({1: {0.2: 0.9, 0.5: 0.9}, 2: {0.2: 0.9, 0.5: 0.8}})
    row = effective_size(grid, FULL, semantics="as_written").iloc[0]
    # Both seeds: .85 at .5 is not within three points. Only seed 1 drawn: it is. A quarter of the draws each way.
    assert row[["size", "low", "high"]].tolist() == pytest.approx([80, 50, 80])
    assert (row["interval"], row["n"]) == ("bootstrap", 2)


def test_one_seed_has_no_interval() -> None:
    for semantics in ("as_coded", "as_written"):
        row = effective_size(one_case({1: {0.5: 0.9}}), FULL, semantics=semantics).iloc[0]
        assert np.isnan([row["low"], row["high"]]).all()


def test_the_end_of_the_grid_and_a_full_model_at_the_floor_are_told() -> None:
    grid = stacked([runs(1, {0.2: {"id": 0.9, "ood": 0.0}, 0.5: {"id": 0.5, "ood": 0.0}})])
    table = effective_size(grid, full_model({"id": 0.9, "ood": 0.02}), semantics="as_coded").set_index("set")
    assert table.loc["ID", ["bound", "floor"]].tolist() == [False, False]
    assert table.loc["OOD", ["bound", "floor"]].tolist() == [True, True]
    assert table.loc["OOD", "full"] == pytest.approx(0.02)


def test_checkpoints_are_judged_against_their_own_full_model() -> None:
    grid = stacked([one_case({1: {0.5: 0.6}}, step=step) for step in (0, 100)])
    full = stacked([full_model({"id": 0.6}, step=0), full_model({"id": 0.9}, step=100)])
    table = effective_size(stacked([grid, full]), semantics="as_coded")  # the full model's rows are in the grid's table
    assert dict(zip(table["step"], table["size"], strict=True)) == {0: 50, 100: 100}


def test_sizes_of_seeds_average_to_the_size_as_coded() -> None:
    grid = one_case({1: {0.2: 0.9, 0.4: 0.5}, 2: {0.2: 0.9, 0.4: 0.9}, 3: {0.2: NAN, 0.4: NAN}})
    table = seed_sizes(grid, FULL, semantics="as_coded")
    assert table["size"].tolist() == pytest.approx([80, 60, NAN], nan_ok=True)
    assert sizes(grid, semantics="as_coded") == pytest.approx({"ID": table["size"].mean()})


# --- laws

TARGETS = (0.2, 0.5, 0.8)
shares = st.integers(0, 20).map(lambda twentieth: twentieth / 20)
grids = st.lists(shares, min_size=12, max_size=12).map(
    lambda values: stacked(
        [
            runs(seed, {t: dict(zip(("id", "ood"), itertools.islice(source, 2), strict=True)) for t in TARGETS})
            for source in [iter(values)]
            for seed in (1, 2)
        ]
    )
)
rules = st.fixed_dictionaries(
    {"semantics": st.sampled_from(["as_coded", "as_written"]), "curve": st.sampled_from(["raw", "monotone"])}
)
some_full = st.tuples(shares, shares).map(lambda pair: full_model({"id": pair[0], "ood": pair[1]}))
lawful = settings(max_examples=10)


@lawful
@given(grids, some_full, rules, st.floats(0, 0.5), st.floats(0, 0.49))
def test_more_tolerance_never_makes_the_effective_size_larger(
    grid: pd.DataFrame, full: pd.DataFrame, rule: dict[str, str], tolerance: float, more: float
) -> None:
    tight = effective_size(grid, full, tolerance=tolerance, n_bootstrap=2, **rule)["size"]
    loose = effective_size(grid, full, tolerance=tolerance + more, n_bootstrap=2, **rule)["size"]
    assert (loose <= tight).all()


@lawful
@given(grids, some_full, rules)
def test_a_missing_run_changes_nothing(grid: pd.DataFrame, full: pd.DataFrame, rule: dict[str, str]) -> None:
    absent = runs(3, {target: {"id": NAN, "ood": NAN} for target in (*TARGETS, 0.9)})
    columns = ["size", "low", "high", "n"]
    before = effective_size(grid, full, n_bootstrap=20, **rule)[columns]
    after = effective_size(stacked([absent, grid]), full, n_bootstrap=20, **rule)[columns]
    pd.testing.assert_frame_equal(before, after)


@lawful
@given(grids, some_full, st.sampled_from(["as_coded", "as_written"]))
def test_the_monotone_curve_is_never_below_the_raw_one(grid: pd.DataFrame, full: pd.DataFrame, semantics: str) -> None:
    raw, monotone = (
        effective_size(grid, full, semantics=semantics, curve=curve, n_bootstrap=2)["size"] for curve in ("raw", "monotone")
    )
    assert (raw <= monotone).all()
    assert raw.between(20, 100).all()


@lawful
@given(grids, some_full, rules, st.randoms(use_true_random=False))
def test_the_order_of_the_rows_does_not_matter(
    grid: pd.DataFrame, full: pd.DataFrame, rule: dict[str, str], random: "np.random.Generator"
) -> None:
    order = list(range(len(grid)))
    random.shuffle(order)
    shuffled = effective_size(grid.iloc[order], full, n_bootstrap=20, **rule).set_index("set")
    pd.testing.assert_frame_equal(
        effective_size(grid, full, n_bootstrap=20, **rule).set_index("set"), shuffled, check_like=True
    )


# --- bad input


def test_bad_input_is_refused_with_its_value() -> None:
    grid = one_case({1: {0.5: 0.9}})
    for table, full, words in (
        (grid, None, "no rows of the full model"),
        (grid, full_model({"id": 0.9}, step=7), "not evaluated at step 100; it was at \\[7\\]"),
        (grid, full_model({"other": 0.9}), "not evaluated on 'id' at step 100"),
        (grid.assign(target=1.0), FULL, r"in \(0, 1\), got 1.0"),
        (grid.assign(target=-0.1), FULL, r"in \(0, 1\), got -0.1"),
        (grid.assign(target=NAN), FULL, r"in \(0, 1\), got nan"),
        (grid.assign(accuracy=-1.0), FULL, "accuracy is in 0..1, or NaN for a missing run; row 0 has -1.0"),
        (grid.assign(group="id"), FULL, '"ID" or "OOD", got \'id\''),
        (grid.assign(seed=pd.array([None], dtype="Int64")), FULL, "needs a seed"),
        (stacked([grid, grid]), FULL, "several rows for step 100, seed 1, target 0.5, case id"),
        (grid, stacked([FULL, FULL]), "full model's table has several rows for step 100, case id"),
        (grid.drop(columns="seed"), FULL, r"\['seed'\] missing from"),
        (FULL, FULL, "no pruning run"),
        (grid.iloc[:0], FULL, "at least one row"),
    ):
        with pytest.raises(ValueError, match=words):
            effective_size(table, full, semantics="as_coded")
    with pytest.raises(ValueError, match=r"tolerance is an accuracy in \[0, 1\), got 3.0"):
        effective_size(grid, FULL, semantics="as_coded", tolerance=3.0)
    for options in ({"semantics": "coded"}, {"semantics": "as_coded", "curve": "smooth"}):
        with pytest.raises((ValueError, TypeError)):  # the annotations are checked here, too
            effective_size(grid, FULL, **options)


def test_a_target_from_a_range_is_the_target() -> None:
    grid = one_case({1: {0.1 * 3: 0.9}, 2: {0.3: 0.9}})
    assert sizes(grid, semantics="as_coded") == {"ID": pytest.approx(70)}
    assert len(seed_sizes(grid, FULL, semantics="as_coded")) == 2


def test_mean_over_seeds_is_students_t_and_leaves_missing_runs_out() -> None:
    found = mean_over_seeds(np.array([1.0, NAN, 2.0, 3.0]))
    assert found == pytest.approx((2.0, 2 - 2.4841, 2 + 2.4841, 3), abs=1e-3)
    assert mean_over_seeds(np.array([1.0, 2.0, 3.0]), least=0.0, most=3.0)[1:3] == (0, 3)
    assert mean_over_seeds(np.array([NAN])).n == 0
    assert np.isnan(mean_over_seeds(np.array([5.0]))[1])
    with pytest.raises(ValueError, match="level"):
        mean_over_seeds(np.array([1.0]), level=1.0)
