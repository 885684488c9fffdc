"""A DataFrame becomes a report's table: numbers, shares, intervals and missing values as a reader expects them."""

import math

import numpy as np
import pandas as pd
import pytest

from hc_lens.prose import p_text
from hc_lens.report import TextTable, text_table, with_interval
from hc_lens.report.cells import settings_table
from hc_lens.units import Head


def _column(values: list[object], **options: object) -> list[str]:
    table = text_table(pd.DataFrame({"x": pd.Series(values)}), "t", **options)  # pyright: ignore[reportArgumentType]
    return [row[0] for row in table.rows]


def test_a_frame_keeps_its_columns_rows_and_labels() -> None:
    frame = pd.DataFrame({"case": ["a", "b"], "step": [100, 1200], "recall": [0.5, 1.0]}, index=[7, 3])
    table = text_table(frame, "Recall", labels=1)
    assert table == TextTable("Recall", ("case", "step", "recall"), (("a", "100", "0.500"), ("b", "1200", "1.000")), 1)


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([0.12345, -2.0], ["0.123", "\N{MINUS SIGN}2.000"]),
        ([-0.0001, 0.0], ["0.000", "0.000"]),
        ([42.0, math.nan, 44.0], ["42", "", "44"]),
        ([None, 3], ["", "3"]),
        ([-5, 12000], ["\N{MINUS SIGN}5", "12000"]),
        ([True, False], ["yes", "no"]),
        ([math.inf, -math.inf, 0.5], ["∞", "\N{MINUS SIGN}∞", "0.500"]),
        ([Head(0, 3), "seed 42"], ["L0.H3", "seed 42"]),
        ([["L0.H3", "L1.H0"], []], ["L0.H3, L1.H0", ""]),
        ([np.int64(3), np.True_, np.float64(0.25)], ["3", "yes", "0.250"]),
        ([pd.NA, pd.NaT, 1.5], ["", "", "1.500"]),
        ([], []),
    ],
)
def test_cells_are_written_by_what_they_hold(values: list[object], texts: list[str]) -> None:
    assert _column(values) == texts


def test_the_integers_of_a_nullable_column_stay_whole() -> None:
    frame = pd.DataFrame({"seed": pd.array([42, None], dtype="Int64")})
    assert [row[0] for row in text_table(frame, "t", missing="\N{EN DASH}").rows] == ["42", "\N{EN DASH}"]


def test_shares_become_percentages_and_their_heading_says_so() -> None:
    frame = pd.DataFrame({"case": ["a"], "accuracy": [0.98123], "excess (points)": [-0.0504], "loss %": [0.5], "kl": [0.98123]})
    table = text_table(frame, "t", percent=["accuracy", "excess (points)", "loss %"], digits={"excess (points)": 2})
    assert table.columns == ("case", "accuracy (%)", "excess (points)", "loss %", "kl")
    assert table.rows == (("a", "98.1", "\N{MINUS SIGN}5.04", "50.0", "0.981"),)


def test_digits_hold_for_all_columns_or_for_the_named_ones() -> None:
    frame = pd.DataFrame({"a": [0.123456], "b": [0.123456]})
    assert text_table(frame, "t", digits=1).rows == (("0.1", "0.1"),)
    assert text_table(frame, "t", digits={"b": 5}).rows == (("0.123", "0.12346"),)


def test_an_interval_stands_with_its_value_in_its_place() -> None:
    frame = pd.DataFrame(
        {"case": ["a", "b", "c"], "accuracy": [0.731, 0.5, math.nan], "low": [0.69, math.nan, 0.1], "high": [0.768, 0.6, 0.2],
         "n": [10, 20, 30]}
    )  # fmt: skip
    told = with_interval(frame, "accuracy", percent=True)
    assert list(told.columns) == ["case", "accuracy (%) [95 %]", "n"]
    assert list(told["accuracy (%) [95 %]"]) == ["73.1 [69.0, 76.8]", "50.0", ""]
    assert list(frame.columns) == ["case", "accuracy", "low", "high", "n"], "the frame itself stays as it was"
    assert text_table(told, "t").rows[0] == ("a", "73.1 [69.0, 76.8]", "10")


def test_several_intervals_of_one_frame_have_their_own_bounds() -> None:
    frame = pd.DataFrame({"x": [1.0], "x_low": [-0.5], "x_high": [2.0], "y": [3.0], "low": [2.0], "high": [4.0]})
    told = with_interval(with_interval(frame, "x", low="x_low", high="x_high", digits=1), "y")
    assert told.to_dict("records") == [{"x [95 %]": "1.0 [\N{MINUS SIGN}0.5, 2.0]", "y [95 %]": "3.000 [2.000, 4.000]"}]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"percent": ["recal"]}, r"table 't': .*\['recal'\]; the columns are \['case', 'recall'\]"),
        ({"digits": {"acc": 2}}, r"name \['acc'\]"),
        ({"percent": ["case"]}, "t: case: 'a' is a str, not the share"),
        ({"labels": 3}, "labels is 3; allowed are 0 to 2"),
        ({"labels": -1}, "labels is -1"),
    ],
)
def test_what_the_frame_does_not_have_is_named(options: dict[str, object], message: str) -> None:
    frame = pd.DataFrame({"case": ["a"], "recall": [0.5]})
    with pytest.raises(ValueError, match=message):
        text_table(frame, "t", **options)  # pyright: ignore[reportArgumentType]


def test_a_column_that_comes_twice_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"\['a'\] come more than once"):
        text_table(pd.DataFrame([[1, 2]], columns=["a", "a"]), "t")


def test_an_interval_without_its_bounds_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"intervals of 'accuracy' needs .*; \['low', 'high'\] missing from \['accuracy'\]"):
        with_interval(pd.DataFrame({"accuracy": [0.5]}), "accuracy")


def test_a_table_whose_rows_do_not_fit_its_head_is_refused() -> None:
    with pytest.raises(ValueError, match=r"table 't': row 1 has 1 cells for 2 columns"):
        TextTable("t", ("a", "b"), (("1", "2"), ("3",)))


def test_p_values_never_round_to_zero() -> None:
    assert [p_text(p) for p in (0.5, 0.0412, 2e-5, 1e-12)] == ["0.5", "0.041", "2e-5", "1e-12"]


def test_settings_are_told_by_dotted_names_and_digests_shortly() -> None:
    table = settings_table("Configuration", {"prune": {"steps": 300, "grid": []}, "seeds": [42, 43], "data": "ab" * 32})
    assert table.rows == (("prune.steps", "300"), ("prune.grid", "none"), ("seeds", "42, 43"), ("data", "abababababab…"))
