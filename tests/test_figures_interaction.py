"""Figures of heads ablated together show their tables: each value where it belongs, and marks where the table warrants them."""

import numpy as np
import pandas as pd
import pytest

from hc_lens import figures

HEADS = ("L2.H3", "L4.H0", "L10.H1")


def pairs() -> pd.DataFrame:
    """On OOD the first pair stands out, the second lies within its random pairs, the third is hidden by the floor."""
    rows = [
        (a, b, case, scale, 0.1, 0.2, value, value - 0.1, value + 0.1, limited, -0.3, 0.3)
        for case, factor in (("ID mean", 0.1), ("OOD mean", 1.0))
        for scale in ("margin", "accuracy")
        for a, b, value, limited in (
            ("L2.H3", "L4.H0", 0.5 * factor, False),
            ("L2.H3", "L10.H1", 0.2 * factor, False),
            ("L4.H0", "L10.H1", -0.05 * factor, scale == "accuracy"),
        )
    ]
    columns = ["a", "b", "case", "scale", "effect_a", "effect_b", "interaction", "low", "high", "floor_limited"]
    return pd.DataFrame(rows, columns=[*columns, "control_low", "control_high"])


def test_a_pair_stands_below_the_diagonal_in_the_order_of_layers() -> None:
    drawn = figures.interaction_matrix(pairs())
    alone, values = (trace for trace in drawn.data if trace.xaxis == "x2")
    assert list(values.y) == list(HEADS)
    z = np.asarray(values.z, dtype=float)
    assert (z[1, 0], z[2, 0], z[2, 1]) == (0.5, 0.2, -0.05)
    assert np.isnan(z[np.triu_indices(3)]).all()
    assert np.diag(np.asarray(alone.z, dtype=float)).tolist() == [0.1, 0.1, 0.2]
    assert (drawn.layout.coloraxis.cmin, drawn.layout.coloraxis.cmax) == (-0.5, 0.5)


def test_stars_and_daggers_are_what_the_table_says() -> None:
    drawn = figures.interaction_matrix(pairs(), scale="accuracy")
    values = [trace for trace in drawn.data if trace.xaxis == "x2"][1]
    assert (values.text[1][0], values.text[2][0], values.text[2][1]) == ("+50*", "+20", "-5†")
    notes = [note.text for note in drawn.layout.annotations]
    assert any("hidden by the floor" in note for note in notes)
    alone = pairs().assign(control_low=float("nan"), control_high=float("nan"))
    values = [trace for trace in figures.interaction_matrix(alone).data if trace.xaxis == "x2"][1]
    assert values.text[2][0] == "+0.20*", "without random pairs the interval decides"


def test_cases_that_the_table_lacks_are_left_out_and_none_is_an_error() -> None:
    drawn = figures.interaction_matrix(pairs(), ("OOD mean", "OOD - ID"))
    assert {trace.xaxis for trace in drawn.data} == {"x"}
    with pytest.raises(ValueError, match=r"none of \['hans'\] in 'margin': the table has the cases \['ID mean', 'OOD mean'\]"):
        figures.interaction_matrix(pairs(), ("hans",))
    with pytest.raises(ValueError, match="interaction_matrix needs the columns"):
        figures.interaction_matrix(pairs().drop(columns="interaction"))


def path(controls: bool = True) -> pd.DataFrame:
    nan = float("nan")
    rows = [
        (size, head, case, scale, base * size**2, base * size, base * size**3, base * size, size == 3 and scale == "accuracy")
        + ((0.1, 0.2) if controls and size > 1 else (nan, nan))
        for case, base in (("ID mean", 0.1), ("OOD mean", 0.2), ("OOD - ID", 0.1))
        for scale in ("accuracy", "margin")
        for size, head in enumerate(HEADS, start=1)
    ]
    columns = ["size", "added", "case", "scale", "joint", "joint_low", "joint_high", "summed", "floor_limited"]
    return pd.DataFrame(rows, columns=[*columns, "control_low", "control_high"])


def test_a_greedy_path_draws_joint_and_summed_effects_of_both_groups() -> None:
    table = path()
    drawn = figures.greedy_path(table)
    lines = {trace.name: trace for trace in drawn.data}
    for label, case in (("in domain", "ID mean"), ("out of domain", "OOD mean")):
        rows = table[(table["case"] == case) & (table["scale"] == "margin")]
        assert list(lines[f"{label}, together"].y) == list(rows["joint"])
        assert list(lines[f"{label}, one by one"].y) == list(rows["summed"])
        assert lines[f"{label}, one by one"].line.dash == "dash"
    assert drawn.layout.xaxis.ticktext == ("1<br>L2.H3", "2<br>+ L4.H0", "3<br>+ L10.H1")
    assert sum("random sets" in str(trace.name) for trace in drawn.data) == 1
    assert not any("random sets" in str(trace.name) for trace in figures.greedy_path(path(controls=False)).data)
    limited = {trace.name: trace for trace in figures.greedy_path(table, "accuracy").data}
    assert [symbol.endswith("-open") for symbol in limited["in domain, together"].marker.symbol] == [False, False, True]
    with pytest.raises(ValueError, match="greedy_path draws 'ID mean' and 'OOD mean' in 'metric'"):
        figures.greedy_path(table, "metric")


def dependents() -> pd.DataFrame:
    rows = [
        ("L0.H1", 1, 0, True, 0.5, 0.4, 0.6, 0.1, 0.2),
        ("L0.H1", 1, 1, False, 0.1, 0.05, 0.15, 0.1, 0.2),
        ("L0.H1", 2, 0, False, 0.3, 0.25, 0.35, 0.1, 0.2),
        ("L0.H1", 2, 1, False, 0.2, 0.1, 0.3, float("nan"), float("nan")),
        ("L1.H0", 2, 0, False, 0.05, 0.0, 0.1, 0.1, 0.2),
        ("L1.H0", 2, 1, False, 0.0, 0.0, 0.0, 0.1, 0.2),
    ]
    columns = ["source", "layer", "head", "among", "change", "low", "high", "control_low", "control_high"]
    return pd.DataFrame(rows, columns=columns)


def test_dependence_puts_every_later_head_under_its_layer() -> None:
    drawn = figures.dependence(dependents())
    ground, values = (trace for trace in drawn.data if trace.type == "heatmap")
    z = np.asarray(values.z, dtype=float)
    assert z.shape == (2, 5), "two layers of two heads, and a gap"
    assert z[0].tolist() == pytest.approx([0.5, 0.1, float("nan"), 0.3, 0.2], nan_ok=True)
    assert z[1].tolist() == pytest.approx([float("nan")] * 3 + [0.05, 0.0], nan_ok=True)
    assert drawn.layout.xaxis.ticktext == ("layer 1", "layer 2")
    marks = {trace.name: trace for trace in drawn.data if trace.type == "scatter"}
    assert list(zip(marks["more than random heads do"].x, marks["more than random heads do"].y, strict=True)) == [
        (0, 0),
        (3, 0),
    ]
    assert list(marks["in the core"].x) == [0]
    unreachable = np.asarray(ground.z, dtype=float)
    assert np.isfinite(unreachable[1, :2]).all()
    assert np.isnan(unreachable[0]).all()
    with pytest.raises(ValueError, match="dependence needs at least one row"):
        figures.dependence(dependents().iloc[:0])
