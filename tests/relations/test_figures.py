"""Figures of linear knowledge: they draw what the tables hold, name it on hover, and say what is missing."""

import numpy as np
import pandas as pd
import pytest

from hc_lens.relations.facts import ACTIVE, INERT, NOT_RECALLED
from hc_lens.relations.figures import (
    correlation_dots,
    layer_profile,
    margin_scatter,
    readability_scatter,
    recovery_bars,
    unit_effects,
)
from hc_lens.relations.recovery import SOURCES


def points():
    return pd.DataFrame(
        {
            "relation": ["a", "<b>", "c"],
            "readability": [0.0, 0.5, 1.0],
            "generalization": [0.1, 0.3, 0.5],
            "kind": ["x", "y", "x"],
        }
    )


def test_a_point_for_each_relation_named_on_hover_and_the_best_line():
    drawn = readability_scatter(points(), "r = 1.00")
    line, first, second = drawn.data
    assert list(line.y) == pytest.approx([0.1, 0.5])
    assert (list(first.x), list(first.y), list(first.customdata)) == ([0, 1], [0.1, 0.5], ["a", "c"])
    assert (second.name, list(second.customdata)) == ("y", ["&lt;b&gt;"])
    assert drawn.layout.annotations[-1].text == "r = 1.00"
    with_bars = readability_scatter(points().assign(low=0.0, high=[0.2, 0.4, np.nan]).drop(columns="kind"))
    assert list(with_bars.data[1].error_y.array) == pytest.approx([0.1, 0.1, 0])
    assert len(readability_scatter(points().assign(readability=0.5)).data) == 2


def profile():
    above = {"weak": [0.0, 0.2, 0.1], "strong": [0.3, 0.9, 0.8]}
    rows = [
        {"relation": name, "layer": layer, "above": value, "chosen": layer == 2}
        for name, values in above.items()
        for layer, value in enumerate(values)
    ]
    return pd.DataFrame(rows)


def test_the_profile_has_quartiles_and_a_row_for_each_relation_with_the_chosen_layer():
    band, median, cells, rings = layer_profile(profile()).data
    assert list(median.y) == pytest.approx([0.15, 0.55, 0.45])
    assert list(band.y)[:3] == pytest.approx([0.225, 0.725, 0.625])
    assert list(cells.y) == ["weak", "strong"]
    assert [list(row) for row in cells.z] == [[0.0, 0.2, 0.1], [0.3, 0.9, 0.8]]
    assert (list(rings.x), list(rings.y)) == ([2, 2], ["weak", "strong"])
    on_splits = profile().assign(chosen=[0.5, 0.5, 0, 0.25, 0, 0.75])
    rings = layer_profile(on_splits).data[3]
    assert (list(rings.x), list(rings.marker.opacity)) == ([0, 1, 0, 2], pytest.approx([0.7, 0.7, 0.55, 0.85]))


def test_correlations_from_the_top_with_their_intervals():
    table = pd.DataFrame({"label": ["animals", "tools"], "r": [0.8, 0.7], "low": [0.6, np.nan], "high": [0.9, np.nan]})
    drawn = correlation_dots(table)
    dots = drawn.data[0]
    assert (list(dots.x), list(dots.y)) == ([0.8, 0.7], [0, 1])
    assert list(dots.error_x.arrayminus) == pytest.approx([0.2, 0])
    assert drawn.layout.yaxis.range[0] > drawn.layout.yaxis.range[1]


def test_a_bar_for_each_source_with_the_numbers_behind_it():
    shares = pd.DataFrame(
        [
            {"k": k, "source": source, "share": 0.1 * k, "low": 0.05, "high": 0.4, "errors": 90, "relations": 7}
            for k in (1, 2)
            for source in SOURCES
        ]
    )
    drawn = recovery_bars(shares)
    assert len(drawn.data) == len(SOURCES)
    assert list(drawn.data[0].x) == ["top 1<br>90 wrong labels, 7 relations", "top 2<br>90 wrong labels, 7 relations"]
    assert list(drawn.data[0].y) == pytest.approx([0.1, 0.2])


def test_facts_that_were_not_recalled_stand_below_the_others():
    rows = [("Paris", 1.0, 3.0, ACTIVE), ("Rome", 0.0, -1.0, INERT), ("Oslo", np.nan, 2.0, NOT_RECALLED)]
    table = pd.DataFrame(rows, columns=["subject", "right", "margin", "state"]).assign(relation="city", times=4)
    active, inert, unknown = margin_scatter(table).data
    assert (active.name, active.customdata[0]) == ("active (1)", "Paris (city), held out 4 times")
    assert active.y[0] == pytest.approx(1, abs=0.05)
    assert inert.y[0] == pytest.approx(0, abs=0.05)
    assert unknown.y[0] < -0.1


def test_units_have_a_cell_each_and_several_relations_are_averaged():
    effects = pd.DataFrame({"unit": ["L0.H0", "L1.H1", "L0.MLP", "L0.MLP"], "effect": [0.1, -0.2, 0.3, 0.5]})
    cells = unit_effects(effects).data[0]
    assert list(cells.x) == ["0", "1", "MLP"]
    drawn = [[None if np.isnan(value) else value for value in row] for row in cells.z]
    assert drawn == [[0.1, None, pytest.approx(0.4)], [None, -0.2, None]]
    assert (cells.zmin, cells.zmax) == (pytest.approx(-0.4), pytest.approx(0.4))


@pytest.mark.parametrize(
    "draw", [readability_scatter, layer_profile, correlation_dots, recovery_bars, margin_scatter, unit_effects]
)
def test_a_table_without_the_columns_is_refused(draw):
    with pytest.raises(ValueError, match="needs the columns"):
        draw(pd.DataFrame({"something": [1]}))
