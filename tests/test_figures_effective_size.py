"""Figures of sparsity grids show their tables: sizes with their intervals, floors, and every case against sparsity."""

import pandas as pd
import plotly.graph_objects as go
import pytest

from hc_lens import figures
from hc_lens.analysis.effective_size import effective_size
from tests.analysis.grids import full_model, runs, stacked


def sizes() -> pd.DataFrame:
    """Two checkpoints, two seeds; the full model is at the floor out of domain at the first."""
    accuracies = {0.2: {"id": 0.9, "ood": 0.5}, 0.5: {"id": 0.9, "ood": 0.1}}
    tables = [runs(seed, accuracies, step) for seed in (1, 2) for step in (0, 100)]
    full = [full_model({"id": 0.9, "ood": 0.01}, 0), full_model({"id": 0.9, "ood": 0.5}, 100)]
    return effective_size(stacked([*tables, *full]), semantics="as_coded")


def curves(drawn: go.Figure, axis: str = "y") -> dict[str, go.Scatter]:
    """The visible curves of a panel by name, without bands and keys."""
    return {trace.name: trace for trace in drawn.data if trace.name and trace.yaxis == axis and trace.x[0] is not None}


def test_effective_size_curves_draw_the_sizes_and_the_full_model_below() -> None:
    drawn = figures.effective_size_curves(sizes())
    above, below = curves(drawn), curves(drawn, "y2")
    assert set(above) == {"in-domain", "out of domain", "mixed"}
    assert list(above["in-domain"].y) == [50, 50]
    assert list(above["out of domain"].y) == [50, 80]
    assert list(below["out of domain"].y) == [0.01, 0.5]
    assert set(below) == {"in-domain", "out of domain"}


def test_effective_size_curves_mark_floors_and_ends_of_the_grid() -> None:
    drawn = figures.effective_size_curves(sizes())
    ood = curves(drawn)["out of domain"]
    assert [colour == "white" for colour in ood.marker.color] == [True, False]
    assert list(ood.text) == ["≤", ""]
    assert any((trace.name or "").startswith("open: full model below 3 %") for trace in drawn.data)
    assert not any((t.name or "").startswith("open") for t in figures.effective_size_curves(sizes().query("step == 100")).data)


def test_effective_size_bands_are_the_intervals() -> None:
    table = sizes().assign(low=40.0, high=60.0)
    bands = [trace for trace in figures.effective_size_curves(table).data if trace.fill == "toself"]
    assert len(bands) == 2  # in-domain and out of domain
    assert all(set(band.y) == {40.0, 60.0} for band in bands)
    one = figures.effective_size_curves(table.assign(low=float("nan"), high=float("nan"), n=1))
    assert "bands" not in one.layout.annotations[0].text


def test_effective_size_curves_need_one_rule() -> None:
    table = sizes()
    with pytest.raises(ValueError, match="holds 2: choose"):
        figures.effective_size_curves(stacked([table, table.assign(semantics="as_written")]))
    with pytest.raises(ValueError, match="floor"):
        figures.effective_size_curves(table.drop(columns="floor"))


def sweep(cases: tuple[str, ...] = ("id", "a", "b")) -> pd.DataFrame:
    tables = [
        runs(seed, {target: dict.fromkeys(cases, 0.9 - target / 2 - seed / 20) for target in (0.5, 0.1)}) for seed in (1, 3)
    ]
    return stacked([full_model(dict.fromkeys(cases, 0.95)), *tables]).drop(columns="step")


def test_accuracy_vs_sparsity_has_a_panel_per_case_and_per_mean_of_several() -> None:
    drawn = figures.accuracy_vs_sparsity(sweep())
    titles = [note.text for note in drawn.layout.annotations]
    assert titles[:4] == ["<b>out of domain: mean of 2</b>", "id", "a", "b"]
    lines = [trace for trace in drawn.data if trace.mode == "lines+markers"]
    assert len(lines) == 4
    for line in lines:
        assert list(line.x) == [0.1, 0.5]
        assert list(line.y) == pytest.approx([0.9 - 0.05 - 0.1, 0.9 - 0.25 - 0.1])
    bands = [trace for trace in drawn.data if trace.fill == "toself"]
    assert list(bands[0].y) == pytest.approx([0.80, 0.60, 0.50, 0.70])  # greatest up to the sparsest, least back
    dashes = [trace for trace in drawn.data if trace.line.dash == "dash"]
    assert [list(dash.y) for dash in dashes] == [pytest.approx([0.95, 0.95])] * 4


def test_accuracy_vs_sparsity_leaves_failed_runs_out_of_the_case_and_of_the_mean() -> None:
    table = sweep()
    lost = (table["seed"] == 1) & (table["target"] == 0.5) & (table["case"] == "a")
    drawn = figures.accuracy_vs_sparsity(table.assign(accuracy=table["accuracy"].mask(lost)))
    lines = [trace for trace in drawn.data if trace.mode == "lines+markers"]
    assert [line.y[1] for line in lines] == pytest.approx([0.5, 0.55, 0.5, 0.55])
    assert [row[2] for row in lines[2].customdata] == [2, 1]


def test_accuracy_vs_sparsity_escapes_names_and_refuses_several_checkpoints() -> None:
    drawn = figures.accuracy_vs_sparsity(sweep(("id", "<script>")))
    assert "&lt;script&gt;" in [note.text for note in drawn.layout.annotations]
    with pytest.raises(ValueError, match="has several: choose a checkpoint"):
        figures.accuracy_vs_sparsity(stacked([sweep(), sweep()]))
    many = figures.accuracy_vs_sparsity(sweep(("id", *(f"case_{i}" for i in range(30)))))
    assert many.layout.height > 1_500
