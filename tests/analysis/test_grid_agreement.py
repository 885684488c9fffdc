"""Separate runs against one rising-target run: differences, correlations and sizes by hand."""

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis import grid_agreement
from tests.analysis.grids import full_model, one_case, stacked

NAN = float("nan")
FULL = full_model({"id": 0.9})
GRID = one_case({1: {0.2: 0.90, 0.4: 0.88, 0.6: 0.50}, 2: {0.2: 0.90, 0.4: 0.80, 0.6: 0.60}})
PATH = one_case({1: {0.2: 0.86, 0.4: 0.90, 0.6: 0.40}, 2: {0.2: 0.88, 0.4: 0.70, 0.6: 0.60}})


def test_a_grid_agrees_with_itself() -> None:
    found = grid_agreement(GRID, GRID, FULL)
    for table in (found.accuracy, found.summary, found.sizes):
        assert (table[["difference", "low", "high"]] == 0).all(axis=None)
    assert found.summary[["rho", "absolute"]].iloc[0].tolist() == pytest.approx([1, 0])


def test_accuracies_are_compared_cell_by_cell_paired_by_seed() -> None:
    cells = grid_agreement(GRID, PATH, FULL).accuracy.set_index("target")
    assert cells["difference"].to_dict() == pytest.approx({0.2: -0.03, 0.4: -0.04, 0.6: -0.05})
    assert cells.loc[0.4, ["grid", "path", "n"]].tolist() == pytest.approx([0.84, 0.80, 2])
    # differences .02 and -.10: half-width 12.706 * .0849 / sqrt(2)
    assert cells.loc[0.4, ["low", "high"]].tolist() == pytest.approx([-0.04 - 0.7624, -0.04 + 0.7624], abs=1e-3)


def test_summary_sets_the_difference_beside_that_of_two_seeds() -> None:
    row = grid_agreement(GRID, PATH, FULL).summary.iloc[0]
    assert (row["set"], row["n"]) == ("ID", 2)
    assert row["difference"] == pytest.approx(-0.04)
    assert row["absolute"] == pytest.approx((0.04 + 0.02 + 0.10 + 0.02 + 0.10 + 0) / 6)
    assert row["between_seeds"] == pytest.approx((0 + 0.08 + 0.10) / 3)
    assert row["rho"] == pytest.approx((0.5 + 1) / 2)


def test_effective_sizes_are_compared_per_seed() -> None:
    row = grid_agreement(GRID, PATH, FULL).sizes.iloc[0]
    # grid: 60 and 80; path: 60 (raw: .90 at .4, though .86 at .2 is not faithful) and 80
    assert row[["grid", "path", "difference"]].tolist() == pytest.approx([70, 70, 0])
    monotone = grid_agreement(GRID, PATH, FULL, curve="monotone").sizes.iloc[0]
    assert monotone[["grid", "path", "difference"]].tolist() == pytest.approx([70, 90, 20])


def test_only_shared_cells_are_compared_and_there_must_be_some() -> None:
    more = stacked([PATH, one_case({3: {0.2: 0.1}})])
    lost = GRID.assign(accuracy=[NAN, *GRID["accuracy"].iloc[1:]])
    found = grid_agreement(lost, more, FULL)
    assert found.accuracy.set_index("target")["n"].to_dict() == {0.2: 1, 0.4: 2, 0.6: 2}
    assert np.isnan(found.accuracy.set_index("target").loc[0.2, "low"])
    with pytest.raises(ValueError, match="share no cell"):
        grid_agreement(GRID, one_case({9: {0.2: 0.1}}), FULL)


def test_the_full_model_may_be_in_the_grid() -> None:
    inside = grid_agreement(stacked([FULL, GRID]), PATH)
    pd.testing.assert_frame_equal(inside.sizes, grid_agreement(GRID, PATH, FULL).sizes)
