"""Figures of corrupted labels: they draw what the tables hold, and say what is missing."""

import pandas as pd
import pytest
import torch

from hc_lens.modular.corrupted import Stages
from hc_lens.modular.corrupted_figures import (
    accuracies_over_time,
    ipr_histogram,
    neuron_spectra,
    norm_weight_against_ipr,
    phase_diagram,
    pruning_curves_figure,
)
from hc_lens.modular.curves import HIGH, LOW, RANDOM

ACCURACIES = {"train": 0.9, "as_labelled": 0.5, "as_true": 0.4, "clean": 1.0, "test": 0.8}


def history(seed=0):
    return pd.DataFrame([{"step": step, "seed": seed, **ACCURACIES} for step in (0, 10, 20)])


def test_a_line_for_each_accuracy_and_seed_with_one_legend_entry():
    drawn = accuracies_over_time(pd.concat([history(0), history(1)]))
    assert len(drawn.data) == 8
    assert sum(bool(line.showlegend) for line in drawn.data) == 4
    assert list(drawn.data[0].x) == [0, 10, 20]
    assert list(drawn.data[0].y) == [0.8] * 3


def test_stages_are_marked_where_they_were_reached():
    drawn = accuracies_over_time(history().drop(columns="seed"), Stages(10, 0, None))
    assert [note.text for note in drawn.layout.annotations] == ["generalizes"]
    assert drawn.layout.shapes[0].x0 == 10


def test_a_panel_of_neurons_for_each_run_with_the_threshold():
    table = pd.DataFrame({"run": ["b", "b", "a"], "ipr": [0.1, 0.9, 0.5]})
    drawn = ipr_histogram(table, threshold=0.4)
    assert [list(panel.x) for panel in drawn.data] == [[0.1, 0.9], [0.5]]
    assert [note.text for note in drawn.layout.annotations] == ["b", "a"]
    assert {shape.x0 for shape in drawn.layout.shapes} == {0.4}
    assert len(ipr_histogram(table[["ipr"]]).data) == 1


def test_pruning_curves_show_means_and_bands():
    rows = [
        {"order": order, "share": share, "draw": draw, **ACCURACIES, "test": 0.8 - 0.2 * draw}
        for order in (LOW, HIGH, RANDOM)
        for share in (0.0, 0.5)
        for draw in (0, 1)
    ]
    drawn = pruning_curves_figure(pd.DataFrame(rows))
    band, mean = drawn.data[0], drawn.data[1]
    assert list(mean.y) == pytest.approx([0.7, 0.7])
    assert list(band.y) == pytest.approx([0.8, 0.8, 0.6, 0.6])
    assert [note.text for note in drawn.layout.annotations] == [LOW, HIGH, RANDOM]


def cells():
    rows = [(0.1, 0.0, "coexistence", 0.95), (0.1, 5.0, "full inversion", 0.85), (0.3, 0.0, "memorisation", 0.92)]
    return pd.DataFrame(
        [{"xi": xi, "weight_decay": decay, "phase": phase, **ACCURACIES, "train": t} for xi, decay, phase, t in rows]
    )


def test_a_phase_diagram_has_a_cell_per_setting_and_gaps_where_there_is_none():
    drawn = phase_diagram(cells(), "weight_decay")
    cell = drawn.data[0]
    assert (list(cell.x), list(cell.y)) == (["0", "5"], ["0.1", "0.3"])
    assert [list(line) for line in cell.text] == [["80<br>95", "80<br>85"], ["80<br>92", ""]]
    assert [line.name for line in drawn.data[1:]] == ["coexistence", "full inversion", "memorisation"]


def test_a_cell_of_several_seeds_has_the_phase_of_most():
    table = pd.concat([cells(), cells().assign(phase="confusion"), cells()], ignore_index=True)
    assert [line.name for line in phase_diagram(table, "weight_decay").data[1:]] == [
        "coexistence",
        "full inversion",
        "memorisation",
    ]


def test_neurons_and_their_spectra():
    numbers = torch.arange(11.0)
    weights = torch.stack([torch.cos(2 * torch.pi * 3 * numbers / 11), torch.ones(11)], dim=1)
    drawn = neuron_spectra(weights, torch.tensor([1.0, 0.2]), [0, 1])
    assert list(drawn.data[0].y) == weights[:, 0].tolist()
    assert list(drawn.data[1].y) == pytest.approx([0, 0, 0, 1, 0, 0], abs=1e-9)
    assert list(drawn.data[3].y) == pytest.approx([1, 0, 0, 0, 0, 0], abs=1e-9)
    assert drawn.layout.annotations[0].text == "neuron 0, IPR 1.00"
    with pytest.raises(ValueError, match="at least one neuron"):
        neuron_spectra(weights, torch.ones(2), [])


def test_batch_norm_weights_against_ipr():
    drawn = norm_weight_against_ipr(pd.DataFrame({"ipr": [0.1, 0.9], "weight": [0.02, 0.05]}))
    assert list(drawn.data[0].y) == [0.02, 0.05]


@pytest.mark.parametrize(
    "draw",
    [
        accuracies_over_time,
        ipr_histogram,
        pruning_curves_figure,
        lambda table: phase_diagram(table, "alpha"),
        norm_weight_against_ipr,
    ],
)
def test_a_table_without_the_columns_is_refused(draw):
    with pytest.raises(ValueError, match="needs the columns"):
        draw(pd.DataFrame({"something": [1]}))
