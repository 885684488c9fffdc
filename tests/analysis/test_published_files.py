"""The paper's released files: what is read from them, what our analyses make of them, and what a damaged one gets."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis import effective_size, fall_gap, falls_at, grid_agreement, sparsity_trend
from hc_lens.analysis.published import published_grid, published_subnetworks, published_sweep, published_training

STEPS = list(range(500, 60_000, 6_000))

# The paper's curves: mean over its three seeds, in %.
CURVES = {
    "ID": [50, 51.7, 50, 48.3, 50, 48.3, 50, 48.3, 45, 48.3],
    "OOD": [30, 30, 96.7, 93.3, 93.3, 83.3, 93.3, 73.3, 78.3, 76.7],
    "mixed": [30, 35, 85, 83.3, 88.3, 76.7, 90, 73.3, 78.3, 76.7],
}


@pytest.fixture(scope="module")
def reference(shared_data: Path) -> Path:
    return shared_data.parent / "reference" / "heuristic_core"


@pytest.fixture(scope="module")
def full(reference: Path) -> pd.DataFrame:
    return published_training(reference / "mnli-acc_over_ft.json")


@pytest.fixture(scope="module")
def grid(reference: Path) -> pd.DataFrame:
    return published_grid(reference / "mnli-sparsity-grid-acc.json", failures="failed")


def curves(table: pd.DataFrame) -> dict[str, list[float]]:
    wide = table.pivot(index="set", columns="step", values="size")
    return {name: wide.loc[name].tolist() for name in CURVES}


def test_published_effective_size_curves_as_coded(grid: pd.DataFrame, full: pd.DataFrame) -> None:
    table = effective_size(grid, full, semantics="as_coded")
    assert sorted(set(table["step"])) == STEPS[: len(CURVES["ID"])]
    assert set(table["n"]) == {3}
    for name, published in CURVES.items():
        assert curves(table)[name] == pytest.approx(published, abs=0.05), name


def test_published_failures_only_matter_to_the_monotone_curve(reference: Path, grid: pd.DataFrame, full: pd.DataFrame) -> None:
    """Six of 390 runs failed; each has a sparser faithful neighbour or is itself too sparse to be faithful."""
    missing = published_grid(reference / "mnli-sparsity-grid-acc.json")
    runs = grid.drop_duplicates(["step", "seed", "target"])
    assert (len(runs), int(runs["failed"].sum())) == (390, 6)
    assert not missing["failed"].any()
    assert curves(effective_size(missing, full, semantics="as_coded")) == curves(
        effective_size(grid, full, semantics="as_coded")
    )
    failed, left_out = (effective_size(table, full, semantics="as_coded", curve="monotone") for table in (grid, missing))
    first = (failed["step"] == 500) & (failed["set"] == "OOD")
    assert (failed.loc[first, "size"].item(), left_out.loc[first, "size"].item()) == pytest.approx((53.333, 30), abs=0.01)


def test_published_effective_size_as_written_differs_but_not_in_the_story(grid: pd.DataFrame, full: pd.DataFrame) -> None:
    found = curves(effective_size(grid, full, semantics="as_written"))
    assert found["ID"] == pytest.approx([50, 55, 50, 50, 50, 50, 50, 50, 45, 50])
    assert found["OOD"] == pytest.approx([30, 30, 100, 90, 90, 90, 90, 80, 75, 80])
    assert found["mixed"] == pytest.approx([35, 40, 90, 85, 90, 90, 90, 80, 75, 75])


def test_published_growth_out_of_domain_starts_where_the_full_model_leaves_the_floor(
    grid: pd.DataFrame, full: pd.DataFrame
) -> None:
    """At the first two checkpoints the full model is right on less than 1 % of OOD: there "faithful" means nothing.

    From the third on, where it means something, the out-of-domain size does not grow any more: it falls.
    """
    table = effective_size(grid, full, semantics="as_coded")
    ood = table[table["set"] == "OOD"].sort_values("step")
    assert ood["floor"].tolist() == [True] * 2 + [False] * 8
    assert ood["bound"].tolist() == [True] * 2 + [False] * 8
    after = ood[~ood["floor"]]
    assert after["size"].corr(after["step"], method="spearman") < -0.7


def test_published_sweep_sparser_generalises_worse(reference: Path) -> None:
    sweep = published_sweep(reference / "mnli-acc_vs_sparsity.json")
    trend = sparsity_trend(sweep).set_index(["case", "group"])
    assert trend.loc["mean over cases", "rho"].round(2).to_dict() == {"ID": -0.94, "OOD": -0.95}
    assert (trend["high"] < -0.7).all()
    assert (trend["n"] == 3).all()
    falls = falls_at(sweep, drop=0.03).set_index(["case", "group"])
    assert falls.loc["mean over cases", "sparsity"].round(3).to_dict() == {"ID": 0.567, "OOD": 0.25}
    assert (falls["never"] == 0).all()
    gap = fall_gap(sweep)
    assert (gap.mean, gap.low, gap.high) == pytest.approx((0.317, 0.245, 0.388), abs=5e-4)
    assert gap.n == 3


def test_published_grid_agrees_with_itself_and_its_seeds_differ_far_more_out_of_domain(
    grid: pd.DataFrame, full: pd.DataFrame
) -> None:
    """The last checkpoint's accuracies: what two seeds differ by is the yardstick for any other way to make the grid."""
    last = grid[grid["step"] == grid["step"].max()]
    found = grid_agreement(last, last, full)
    assert (found.summary["difference"] == 0).all()
    assert (found.summary["rho"] == 1).all()
    noise = found.summary.set_index("set")["between_seeds"]
    assert noise["ID"] < 0.01 < 0.03 < noise["OOD"]


def test_published_files_lose_their_mislabelled_five_and_nothing_else(reference: Path, grid: pd.DataFrame) -> None:
    sweep = published_sweep(reference / "mnli-acc_vs_sparsity.json")
    for table in (sweep, grid):
        targets = sorted(set(table["target"].dropna()))
        assert targets == pytest.approx([percent / 100 for percent in range(10, 75, 5)])
    assert len(sweep) == 6 + 3 * 13 * 6
    assert len(grid) == 3 * 10 * 13 * 6
    assert sweep[sweep["subnetwork"] == "full"]["seed"].isna().all()


def test_published_subnetworks_have_their_realised_sparsity(reference: Path) -> None:
    table = published_subnetworks(reference / "mnli-sp50.json", 0.5)
    pruned = table[table["subnetwork"] != "full"]
    assert (set(pruned["target"]), set(pruned["seed"])) == ({0.5}, set(range(42, 54)))
    assert (pruned["sparsity"].min(), pruned["sparsity"].max()) == pytest.approx((0.455, 0.532), abs=5e-4)
    assert dict(table.groupby("group")["case"].nunique()) == {"ID": 2, "OOD": 30}


# --- files made here

CELL = {"validation_matched": 0.8, "swap": 0.5}


def written(tmp_path: Path, content: object) -> Path:
    file = tmp_path / "file.json"
    file.write_text(content if isinstance(content, str) else json.dumps(content))
    return file


def test_published_failure_is_missing_unless_asked_for(tmp_path: Path) -> None:
    file = written(tmp_path, {"42": {"500": {"25": CELL | {"swap": -1}, "5": CELL}}})
    by_default, kept = published_grid(file), published_grid(file, failures="failed")
    assert len(by_default) == 2  # the entry "5" is gone
    assert np.isnan(by_default.set_index("case").loc["swap", "accuracy"])
    assert by_default["failed"].tolist() == [False, False]
    assert kept["failed"].tolist() == [False, True]
    assert kept["group"].tolist() == ["ID", "OOD"]
    assert published_grid(file, in_domain=["swap"])["group"].tolist() == ["OOD", "ID"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not a JSON file"),
        ([], r"the file: expected an object by seed, got \[\]"),
        ({}, "holds no accuracies"),
        ({"42": 7}, "42: expected an object by step, got 7"),
        ({"a": {"500": {"25": CELL}}}, "a: expected a whole number, got 'a'"),
        ({"42": {"500": {"0.25": CELL}}}, "42 > 500 > 0.25: expected a whole number"),
        ({"42": {"500": {"100": CELL}}}, "42 > 500 > 100: a sparsity is above 0 and below 100 %, got 100"),
        ({"42": {"500": {"25": {"swap": "0.5"}}}}, "42 > 500 > 25 > swap: expected a number in 0..1.*got '0.5'"),
        ({"42": {"500": {"25": {"swap": 50}}}}, "swap: expected a number in 0..1.*got 50"),
        ({"42": {"500": {"25": {"swap": True}}}}, "got True"),
        ('{"42": {"500": {"25": {"swap": NaN}}}}', "got nan"),
    ],
)
def test_published_grid_that_is_damaged_is_refused_with_file_and_field(tmp_path: Path, content: object, words: str) -> None:
    file = written(tmp_path, content)
    with pytest.raises(ValueError, match=words) as error:
        published_grid(file)
    assert str(file) in str(error.value)


def test_published_sweep_refuses_seeds_that_disagree_about_the_full_model(tmp_path: Path) -> None:
    file = written(tmp_path, {"42": {"0": CELL}, "43": {"0": CELL | {"swap": 0.6}}})
    with pytest.raises(ValueError, match=r"43 > 0 > swap: the full model's accuracy is 0.6, another seed has 0.5"):
        published_sweep(file)


def test_published_subnetworks_refuse_columns_that_do_not_fit(tmp_path: Path) -> None:
    whole = {"seed": ["original", 42], "sparsity": [0, 0.48], "swap": [0.9, 0.2]}
    assert published_subnetworks(written(tmp_path, whole), 0.5)["sparsity"].tolist() == [0, 0.48]
    for broken, words in (
        (whole | {"swap": [0.9]}, "swap: 1 values, but seed has 2"),
        (whole | {"swap": 0.9}, "swap: expected a list, got 0.9"),
        (whole | {"swap": [0.9, 9]}, "swap > 1: expected a number"),
        (whole | {"seed": ["original", "x"]}, "seed 1 > x: expected a whole number"),
        (whole | {"sparsity": [0, "x"]}, "sparsity > 1: expected a number in 0..1; got 'x'"),
        ({"seed": [42]}, "no field 'sparsity'"),
    ):
        with pytest.raises(ValueError, match=words):
            published_subnetworks(written(tmp_path, broken), 0.5)
