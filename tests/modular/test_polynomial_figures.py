"""Figures of modular polynomials draw what is in their tables, and say what is missing."""

from math import nan, pi

import pandas as pd
import pytest
import torch

from hc_lens.modular.analytic import addition_network
from hc_lens.modular.polynomial_figures import learnable_figure, neuron_spectra, phase_scatter, width_curves
from hc_lens.modular.solutions import addition_basis, neuron_table, spectra


def test_width_curves_have_the_mean_and_the_range_of_seeds() -> None:
    rows = [("sum", 10, 0, 0.4), ("sum", 10, 1, 0.6), ("sum", 20, 0, 1.0), ("product", 10, 0, 0.2)]
    drawn = width_curves(pd.DataFrame(rows, columns=["task", "width", "seed", "accuracy"]))
    first, second = drawn.data
    assert (first.name, list(first.x), list(first.y)) == ("sum", [10, 20], [0.5, 1.0])
    assert list(first.error_y.array) == pytest.approx([0.1, 0.0])
    assert second.name == "product"


def test_spectra_are_sorted_by_frequency_and_thinned_out() -> None:
    shares = spectra(addition_network(23, (1, 1), 200), addition_basis(23))
    drawn = neuron_spectra({"analytic": shares, "<b>": shares[:, :5]})
    assert drawn.layout.annotations[1].text == "&lt;b&gt;"
    shown = torch.tensor(drawn.data[0].z)
    assert shown.shape == (67, 12)
    strongest = shown.argmax(1)
    assert (strongest.diff() >= 0).all()
    with pytest.raises(ValueError, match="at least one panel"):
        neuron_spectra({})


def test_the_phases_of_periodic_neurons_alone_are_drawn() -> None:
    table = neuron_table(addition_network(23, (1, 1), 50), addition_basis(23)).assign(network="analytic")
    noise = table.assign(ipr=0.1)
    drawn = phase_scatter(pd.concat([table, noise]))
    marks = [trace for trace in drawn.data if trace.mode == "markers"]
    assert len(marks) == 1
    assert len(marks[0].x) == int(table["psi_sum"].notna().sum())
    assert list(marks[0].y) == pytest.approx(list(table["psi_w"].dropna() / pi))


def test_learnable_polynomials_and_others_in_their_colours() -> None:
    columns = ["polynomial", "p", "learnable", "test", "low", "high", "majority"]
    rows = [("a*b", 23, True, 1.0, 1.0, 1.0, 0.09), ("a*b + a**3", 23, False, 0.1, 0.05, 0.15, 0.09)]
    rows += [("a*b", 97, True, 0.9, nan, nan, 0.02)]
    drawn = learnable_figure(pd.DataFrame(rows, columns=columns))
    bars = [trace for trace in drawn.data if trace.type == "bar"]
    assert [list(trace.x) for trace in bars] == [[1.0], [0.1], [0.9], []]
    assert bars[0].marker.color != bars[1].marker.color
    assert list(bars[1].error_x.array) == pytest.approx([0.05])
    assert list(bars[2].error_x.array) == [0.0]
    assert list(drawn.layout.yaxis.categoryarray) == ["a*b + a**3", "a*b"]


@pytest.mark.parametrize("draw", [width_curves, phase_scatter, learnable_figure])
def test_a_table_without_the_columns_is_refused(draw: object) -> None:
    with pytest.raises(ValueError, match=r"needs the columns.*missing from \['x'\]"):
        draw(pd.DataFrame({"x": [1]}))  # type: ignore[operator]
