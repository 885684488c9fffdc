"""An evaluation table averaged over groups of cases, worked out by hand."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hc_lens.data import HANS_LABELS, PAPER_CASES_GPT2, hans
from hc_lens.metrics import grouped
from hc_lens.metrics.grouping import mean_interval
from hc_lens.statistics import wilson_interval

SINCE, CLAUSE = "constituent_ce_embedded_under_since", "subsequence_se_relative_clause_on_obj"
IF = "constituent_cn_embedded_under_if"


def table(**columns: object) -> pd.DataFrame:
    """The full model and seed 42 on three cases, as `evaluate` gives them, with the sparsity asked for beside."""
    rows = []
    for name, seed, accuracies in (("full", None, (0.2, 0.9, 0.7)), ("seed 42", 42, (0.1, 1.0, 0.5))):
        for case, n, accuracy in zip((IF, CLAUSE, SINCE), (100, 100, 300), accuracies, strict=True):
            low, high = wilson_interval(round(accuracy * n), n)
            row = {"subnetwork": name, "seed": seed, "sparsity": 0.0 if seed is None else 0.5, "target": seed and 0.5}
            row |= {"case": case, "group": "OOD", "n": n, "accuracy": accuracy, "low": low, "high": high}
            rows.append(row | {"margin": accuracy - 0.5, "ece": 0.1, "agreement": 1.0, "kl": n / 100, **columns})
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def test_each_case_of_a_group_weighs_the_same() -> None:
    found = grouped(table(), PAPER_CASES_GPT2)
    assert list(found.columns) == list(table().columns)
    assert found.dtypes.equals(table().dtypes)
    assert found[["subnetwork", "case"]].to_numpy().tolist() == [
        ["full", "Embed-If"],
        ["full", "OOD-E"],
        ["seed 42", "Embed-If"],
        ["seed 42", "OOD-E"],
    ]
    assert found["accuracy"].tolist() == pytest.approx([0.2, 0.8, 0.1, 0.75])
    assert found["n"].tolist() == [100, 400, 100, 400]
    assert found["kl"].tolist() == pytest.approx([1.0, 2.0, 1.0, 2.0])
    assert found["margin"].tolist() == pytest.approx([-0.3, 0.3, -0.4, 0.25])
    assert found["seed"].isna().tolist() == [True, True, False, False]
    assert found["target"].iloc[2:].tolist() == [0.5, 0.5]


def test_a_group_of_one_case_is_that_case() -> None:
    one = grouped(table(), {IF: (IF,)})
    expected = table()[lambda rows: rows["case"] == IF].reset_index(drop=True)
    pd.testing.assert_frame_equal(one, expected)


def test_the_interval_of_a_mean_is_narrower_than_that_of_each_case_and_as_wide_as_its_spread_says() -> None:
    values = np.array([0.5, 0.5])
    low, high = mean_interval(values, values - 0.1, values + 0.1)
    assert (low, high) == pytest.approx((0.5 - 0.1 / 2**0.5, 0.5 + 0.1 / 2**0.5))
    generator = np.random.default_rng(0)
    n, truth = 200, np.array([0.3, 0.95])
    covered = 0
    for wins in generator.binomial(n, truth, size=(2000, 2)):
        limits = np.array([wilson_interval(int(w), n) for w in wins])
        below, above = mean_interval(wins / n, limits[:, 0], limits[:, 1])
        covered += below <= truth.mean() <= above
    assert covered / 2000 == pytest.approx(0.95, abs=0.015)


def test_the_mean_of_certain_cases_stays_within_bounds() -> None:
    limits = np.array([wilson_interval(50, 50), wilson_interval(50, 50)])
    low, high = mean_interval(np.array([1.0, 1.0]), limits[:, 0], limits[:, 1])
    assert limits[0, 0] < low < high == 1.0


def test_groups_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match=r"group 'X': the table has no case 'nowhere'; it has \['constituent_cn"):
        grouped(table(), {"X": (IF, "nowhere")})
    with pytest.raises(ValueError, match="no groups"):
        grouped(table(), {})
    with pytest.raises(ValueError, match="group 'X' has no cases"):
        grouped(table(), {"X": ()})
    with pytest.raises(ValueError, match=rf"'full'.* has several rows of case '{IF}'"):
        grouped(pd.concat([table(), table()]), PAPER_CASES_GPT2)
    incomplete = table().iloc[:-1]
    with pytest.raises(ValueError, match=rf"'seed 42'.* has no row of case '{SINCE}'"):
        grouped(incomplete, PAPER_CASES_GPT2)
    mixed = table()
    mixed.loc[mixed["case"] == IF, "group"] = "ID"
    with pytest.raises(ValueError, match="both in-domain and out-of-domain"):
        grouped(mixed, {"X": (IF, SINCE)})


def test_the_groups_are_subcases_of_hans(shared_data: Path) -> None:
    cases = hans(shared_data / "hans" / "validation.jsonl.gz")
    for names in PAPER_CASES_GPT2.values():
        assert set(names) <= set(cases)
    for name in PAPER_CASES_GPT2["OOD-E"]:
        assert {HANS_LABELS[label] for label in cases[name].labels} == {"entailment"}
