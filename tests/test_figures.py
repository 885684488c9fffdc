"""A figure shows its table: the drawn values are the table's, whatever their number, and text from the data stays text."""

import html
import re

import numpy as np
import pandas as pd
import plotly.graph_objects as go
import plotly.io
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens import figures
from hc_lens.figures.style import PALETTE, TEMPLATE, percent, wrapped
from hc_lens.units import Head

_EVIL = "<script>alert(1)</script> <a href='https://example.org'>case</a>"


def _evaluation(n_ood: int = 3, targets: tuple[float, ...] = (0.5, 0.7), seeds: int = 4) -> pd.DataFrame:
    rng = np.random.default_rng(0)
    cases = {"matched": "ID", **{f"case_{i}_of_a_rather_long_subcase_name": "OOD" for i in range(n_ood)}}
    runs = [("full", None, 0.0)] + [(f"seed {s}", s, t) for t in targets for s in range(42, 42 + seeds)]
    rows = [
        (name, seed, sparsity, case, group, accuracy, accuracy - 0.02, accuracy + 0.02)
        for name, seed, sparsity in runs
        for (case, group), accuracy in zip(cases.items(), rng.uniform(0.1, 0.9, len(cases)), strict=True)
    ]
    columns = ["subnetwork", "seed", "sparsity", "case", "group", "accuracy", "low", "high"]
    return pd.DataFrame(rows, columns=columns).astype({"seed": "Int64"})


def _training(n_ood: int) -> pd.DataFrame:
    rows = [(step, "matched", "ID", 0.5 + step / 400) for step in (0, 100, 200)]
    rows += [(step, f"case {i}", "OOD", 0.1 * i / n_ood + step / 1000) for i in range(n_ood) for step in (200, 0, 100)]
    return pd.DataFrame(rows, columns=["step", "case", "group", "accuracy"])


def _effects(n_cases: int = 3, groups: tuple[str, ...] = ("L0.H1", "L1.H0", "core")) -> pd.DataFrame:
    rows = [
        (group, f"case {c}", "OOD" if c else "ID", 0.1 * g + 0.01 * c, 0.1 * g + 0.01 * c - 0.03, 0.1 * g + 0.01 * c + 0.02)
        for c in range(n_cases)
        for g, group in enumerate(groups)
    ]
    return pd.DataFrame(rows, columns=["group", "case", "case_group", "effect", "low", "high"])


def _additivity(scales: tuple[str, ...] = ("accuracy", "margin")) -> pd.DataFrame:
    columns = [
        "set",
        "case",
        "scale",
        "joint",
        "summed",
        "excess",
        "low",
        "high",
        "floor_limited",
        "control_low",
        "control_high",
    ]
    rows = [
        ("core", case, scale, 0.3 + place, 0.2, 0.1 + place, 0.05 + place, 0.2 + place, place == 1, -0.1, 0.1)
        for scale in scales
        for place, case in enumerate(("a", "b", "c"))
    ]
    return pd.DataFrame(rows, columns=columns)


def _visible(figure: go.Figure) -> list[go.Scatter]:
    return [trace for trace in figure.data if trace.hoverinfo != "skip"]


@pytest.mark.parametrize("n_ood", [3, 30], ids=["each case has a colour", "many cases and their mean"])
def test_training_curves_draw_every_case_in_the_order_of_steps(n_ood: int) -> None:
    table = _training(n_ood)
    figure = figures.training_curves(table)
    curves = {trace.name.removesuffix(" (in-domain)"): trace for trace in figure.data}
    for case, rows in table.groupby("case"):
        rows = rows.sort_values("step")
        assert list(curves[case].x) == list(rows["step"])
        assert list(curves[case].y) == list(rows["accuracy"])
    in_legend = [trace for trace in figure.data if trace.showlegend is not False]
    assert len(in_legend) == (1 + n_ood if n_ood < 8 else 2)
    if n_ood > 8:
        expected = table[table["group"] == "OOD"].groupby("step")["accuracy"].mean()
        assert list(figure.data[-1].y) == pytest.approx(list(expected))


@pytest.mark.parametrize("n_ood", [2, 30])
def test_strip_draws_every_subnetwork_on_the_row_of_its_case(n_ood: int) -> None:
    table = _evaluation(n_ood)
    figure = figures.strip(table)
    ticks = dict(zip(figure.layout.yaxis.tickvals, figure.layout.yaxis.ticktext, strict=True))
    marks = _visible(figure)
    assert [trace.name for trace in marks] == ["subnetworks at 50 % sparsity", "subnetworks at 70 % sparsity", "full model"]
    for trace, rows in zip(
        marks,
        (table[table["sparsity"] == 0.5], table[table["sparsity"] == 0.7], table[table["subnetwork"] == "full"]),
        strict=True,
    ):
        assert list(trace.x) == list(rows["accuracy"])
        assert [ticks[round(y)].replace("<br>", "") for y in trace.y] == list(rows["case"])
    assert len({trace.marker.color for trace in marks}) == 3
    assert figure.layout.height > 28 * (n_ood + 3)


def test_strip_spans_join_the_least_and_the_most_accurate_subnetwork() -> None:
    table = _evaluation(2, targets=(0.5,))
    spans = next(trace for trace in figures.strip(table).data if trace.hoverinfo == "skip")
    pruned = table[table["subnetwork"] != "full"].groupby("case", sort=False)["accuracy"]
    assert list(spans.x[0::3]) == list(pruned.min())
    assert list(spans.x[1::3]) == list(pruned.max())


def test_strip_groups_by_the_target_where_realised_sparsities_differ() -> None:
    table = _evaluation(2)
    table["target"] = table["sparsity"]
    pruned = table["subnetwork"] != "full"
    table.loc[pruned, "sparsity"] += np.random.default_rng(0).normal(0, 0.02, int(pruned.sum()))
    assert len(_visible(figures.strip(table))) == 3


def test_head_heatmap_shows_the_counts_and_outlines_the_core_in_every_panel() -> None:
    rng = np.random.default_rng(0)
    rows = [(s, layer, head, int(rng.integers(0, 13)), 12) for s in (0.5, 0.7) for layer in range(3) for head in range(5)]
    table = pd.DataFrame(rows, columns=["sparsity", "layer", "head", "count", "of"]).sample(frac=1, random_state=0)
    figure = figures.head_heatmap(table, [Head(2, 4), Head(0, 1)])
    for panel, sparsity in zip(figure.data, (0.5, 0.7), strict=True):
        for row in table[table["sparsity"] == sparsity].itertuples():
            assert panel.z[row.layer][row.head] == row.count / row.of
            assert panel.text[row.layer][row.head] == str(row.count)
    outlined = {(shape.xref, (shape.x0 + shape.x1) / 2, (shape.y0 + shape.y1) / 2) for shape in figure.layout.shapes}
    assert outlined == {("x", 4, 2), ("x", 1, 0), ("x2", 4, 2), ("x2", 1, 0)}


def test_joint_histogram_marks_have_the_table_s_places_and_areas() -> None:
    table = pd.DataFrame({"i": [0, 3, 12, 5], "j": [0, 2, 12, 5], "heads": [40, 2, 9, 0]})
    marks = figures.joint_histogram(table).data[0]
    assert list(zip(marks.x, marks.y, marks.marker.size, marks.text, strict=True)) == [
        (0, 0, 40, "40"),
        (3, 2, 2, "2"),
        (12, 12, 9, "9"),
    ]
    assert marks.marker.sizemode == "area"


@pytest.mark.parametrize("n_cases", [1, 3, 31])
def test_ablation_bars_draw_effects_with_their_intervals(n_cases: int) -> None:
    table = _effects(n_cases)
    figure = figures.ablation_bars(table)
    assert len(figure.data) == n_cases
    for bar in figure.data:
        rows = table[table["case"] == bar.name]
        assert list(bar.x) == list(rows["effect"])
        assert list(bar.y) == list(rows["group"])
        assert np.allclose(np.array(bar.x) + bar.error_x.array, rows["high"])
        assert np.allclose(np.array(bar.x) - bar.error_x.arrayminus, rows["low"])
    colours = {bar.name: bar.marker.color for bar in figure.data}
    assert {name for name, colour in colours.items() if colour != PALETTE[0]} == {"case 0"}, "only in-domain is dark"


def test_ablation_bars_refuse_several_scales_at_once() -> None:
    table = pd.concat([_effects(), _effects()])
    with pytest.raises(ValueError, match=r"several rows for group L0\.H1, case case 0: choose a scale"):
        figures.ablation_bars(table)


@pytest.mark.parametrize("scales", [("accuracy", "margin"), ("accuracy",), ("metric",)])
def test_additivity_draws_excess_interval_controls_and_floor(scales: tuple[str, ...]) -> None:
    table = _additivity(scales)
    figure = figures.additivity(table)
    for scale, controls, marks in zip(scales, figure.data[0::2], figure.data[1::2], strict=True):
        rows = table[table["scale"] == scale]
        assert list(marks.x) == list(rows["excess"])
        assert np.allclose(np.array(marks.x) + marks.error_x.array, rows["high"])
        assert np.allclose(np.array(marks.x) - marks.error_x.arrayminus, rows["low"])
        assert [symbol.endswith("-open") for symbol in marks.marker.symbol] == list(rows["floor_limited"])
        assert controls.x[0] == -0.1
        assert controls.x[1] == 0.1


def test_additivity_without_controls_draws_no_band() -> None:
    table = _additivity().assign(control_low=np.nan, control_high=np.nan)
    assert all(len(trace.x) == 0 for trace in figures.additivity(table).data[0::2])


_FIGURES = {
    "training_curves": lambda: (figures.training_curves, _training(2)),
    "strip": lambda: (figures.strip, _evaluation(2)),
    "ablation_bars": lambda: (figures.ablation_bars, _effects()),
    "additivity": lambda: (figures.additivity, _additivity()),
}


@pytest.mark.parametrize("name", _FIGURES)
def test_markup_in_case_names_is_shown_as_text(name: str) -> None:
    draw, table = _FIGURES[name]()
    table = table.replace({"case": {table["case"].iloc[0]: _EVIL}})
    page = draw(table).to_html(include_plotlyjs=False)
    assert "<script>alert" not in page
    texts = [t for t in re.findall(r'"((?:[^"\\]|\\.)*)"', draw(table).to_json()) if "alert(1)" in t]
    assert texts
    assert all("<script" not in t and "<a " not in t and "\\u003cscript" not in t for t in texts)


@pytest.mark.parametrize("name", _FIGURES)
def test_a_missing_column_and_an_empty_table_are_named(name: str) -> None:
    draw, table = _FIGURES[name]()
    with pytest.raises(ValueError, match=rf"{name} needs the columns .*\['case'\] missing"):
        draw(table.drop(columns="case"))
    with pytest.raises(ValueError, match=f"{name} needs at least one row"):
        draw(table.iloc[:0])


def test_the_look_is_the_figure_s_own_and_no_theme_is_set() -> None:
    assert figures.strip(_evaluation(1)).layout.template == TEMPLATE
    assert plotly.io.templates.default == "plotly"
    assert len(set(PALETTE)) == len(PALETTE)


@settings(max_examples=200)
@given(st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), max_size=120), st.integers(4, 40))
def test_wrapping_loses_nothing_and_keeps_the_width(name: str, width: int) -> None:
    lines = [html.unescape(line) for line in wrapped(name, width).split("<br>")]
    assert "".join("".join(lines).split()) == "".join(name.split())
    assert all(len(line) <= width for line in lines)


def test_percentages_have_the_digits_they_need() -> None:
    assert percent(0.5) == "50 %"
    assert percent(25 / 36) == "69.4 %"
