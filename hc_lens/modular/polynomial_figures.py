"""Figures of networks for modular polynomials: how wide they must be, what their neurons do, and what can be learned."""

from collections.abc import Mapping
from math import pi

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from hc_lens.figures.marks import error_bars
from hc_lens.figures.style import BAND, BLUES, INK, MUTED, PALETTE, SYMBOLS, TEMPLATE, figure, text
from hc_lens.tables import require

_SHOWN = 80


def width_curves(table: pd.DataFrame) -> go.Figure:
    """Accuracy of analytic networks against their width, a line for each task; whiskers from the least to the greatest seed.

    Args:
        table: `task`, `width` (neurons), `seed`, `accuracy` (0..1).

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("task", "width", "seed", "accuracy"), "width_curves")
    drawn = figure(400)
    for place, (task, rows) in enumerate(table.groupby("task", sort=False)):
        found = rows.groupby("width")["accuracy"].agg(["mean", "min", "max"]).sort_index()
        drawn.add_scatter(
            x=list(found.index),
            y=list(found["mean"]),
            error_y=error_bars(found["mean"], found["min"], found["max"], thickness=1.2, width=3),
            name=text(task),
            mode="lines+markers",
            line={"color": PALETTE[place % len(PALETTE)], "width": 2},
            marker={"size": 7, "symbol": SYMBOLS[place % len(SYMBOLS)]},
            hovertemplate=f"{text(task)}, %{{x}} neurons: %{{y:.2%}}<extra></extra>",
        )
    drawn.add_hline(y=1, line={"color": BAND, "width": 1})
    drawn.update_xaxes(title_text="neurons", type="log", dtick="D2", exponentformat="none", tickangle=0)
    drawn.update_yaxes(title_text="accuracy", tickformat=".0%", range=[-0.02, 1.05])
    drawn.update_layout(margin={"t": 70})
    return drawn


def neuron_spectra(panels: Mapping[str, Float[Tensor, "_ _"]]) -> go.Figure:
    """Fourier spectra of neurons as rows of a heat map, in the order of their strongest frequency; one panel each.

    Args:
        panels: title -> the shares of power, frequency by neuron, as `solutions.spectra` returns; of many neurons 80 are drawn,
            evenly spaced in that order.

    Raises:
        ValueError: if there is no panel.
    """
    if not panels:
        raise ValueError("neuron_spectra needs at least one panel; there is none")
    titles = [text(title).replace(", ", "<br>") for title in panels]
    drawn = make_subplots(1, len(panels), subplot_titles=titles, horizontal_spacing=0.03)
    for column, shares in enumerate(panels.values(), start=1):
        order = shares.argmax(0).argsort(stable=True)
        chosen = order[:: max(1, -(-len(order) // _SHOWN))]
        drawn.add_heatmap(
            z=shares[:, chosen].T.tolist(),
            zmin=0,
            zmax=1,
            colorscale=BLUES,
            showscale=column == 1,
            colorbar={"title": {"text": "share of<br>power", "side": "top"}, "thickness": 12, "len": 0.9, "outlinewidth": 0},
            hovertemplate="frequency %{x}, row %{y}: %{z:.2f}<extra></extra>",
            row=1,
            col=column,
        )
    drawn.update_xaxes(title_text="frequency", showgrid=False)
    drawn.update_yaxes(showticklabels=False, showgrid=False)
    drawn.update_yaxes(title_text="neurons, by frequency", col=1)
    drawn.update_layout(template=TEMPLATE, height=430, margin={"t": 76})
    return drawn


def phase_scatter(table: pd.DataFrame, least_ipr: float = 0.5) -> go.Figure:
    """The phase of each periodic neuron's output against the sum of its inputs' phases; the analytic solution is the diagonal.

    Args:
        table: `neuron_table`s one after the other, with a column `network`, a panel for each.
        least_ipr: that of the neurons drawn.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("network", "psi_sum", "psi_w", "ipr"), "phase_scatter")
    networks = list(dict.fromkeys(table["network"]))
    drawn = make_subplots(
        1, len(networks), shared_yaxes=True, subplot_titles=[text(n) for n in networks], horizontal_spacing=0.03
    )
    for column, network in enumerate(networks, start=1):
        rows = table[(table["network"] == network) & (table["ipr"] >= least_ipr) & table["psi_sum"].notna()]
        for shift in (-2, 0, 2):  # modulo 2 pi the diagonal comes in at the corners again
            ends = [-1 + max(0, shift), 1 + min(0, shift)]
            drawn.add_scatter(
                x=ends,
                y=[end - shift for end in ends],
                mode="lines",
                line={"color": BAND, "width": 1.5},
                hoverinfo="skip",
                showlegend=False,
                row=1,
                col=column,
            )
        drawn.add_scatter(
            x=list(rows["psi_sum"] / pi),
            y=list(rows["psi_w"] / pi),
            mode="markers",
            marker={"size": 5, "color": PALETTE[0], "opacity": 0.6},
            hovertemplate="inputs %{x:.2f} pi, output %{y:.2f} pi<extra></extra>",
            showlegend=False,
            row=1,
            col=column,
        )
    drawn.update_xaxes(title_text="ψ<sub>1</sub> + ψ<sub>2</sub>, in units of π", range=[-1.08, 1.08], dtick=0.5)
    drawn.update_yaxes(range=[-1.08, 1.08], dtick=0.5)
    drawn.update_yaxes(title_text="ψ<sub>W</sub>, in units of π", col=1)
    drawn.update_layout(template=TEMPLATE, height=380, margin={"t": 44})
    return drawn


def learnable_figure(table: pd.DataFrame) -> go.Figure:
    """Test accuracy of networks trained on polynomials: those of a learnable form, and what one more term makes of them.

    Args:
        table: a row per polynomial and p: `polynomial`, `p`, `learnable` (what `classify` says), `test` with its interval `low`
            and `high` (NaN: one seed), and `majority`, what the commonest answer would get.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("polynomial", "p", "learnable", "test", "low", "high", "majority"), "learnable_figure")
    primes, texts = (list(dict.fromkeys(table[name])) for name in ("p", "polynomial"))
    titles = [f"p = {p}" for p in primes]
    drawn = make_subplots(1, len(primes), shared_yaxes=True, subplot_titles=titles, horizontal_spacing=0.04)
    for column, p in enumerate(primes, start=1):
        rows = table[table["p"] == p]
        for learnable, colour, name in ((True, PALETTE[0], "of a learnable form"), (False, PALETTE[1], "not")):
            _add_bars(drawn, rows[rows["learnable"] == learnable], colour, name, column)
        drawn.add_scatter(
            y=[text(name) for name in rows["polynomial"]],
            x=list(rows["majority"]),
            mode="markers",
            name="commonest answer",
            legendgroup="majority",
            showlegend=column == 1,
            marker={"symbol": "line-ns", "size": 20, "line": {"color": MUTED, "width": 2.5}},
            hovertemplate="commonest answer, %{y}: %{x:.1%}<extra></extra>",
            row=1,
            col=column,
        )
    drawn.update_xaxes(title_text="accuracy on pairs not trained on", tickformat=".0%", range=[0, 1.04])
    drawn.update_yaxes(categoryorder="array", categoryarray=[text(name) for name in reversed(texts)], showgrid=False)
    drawn.update_layout(template=TEMPLATE, height=150 + 40 * len(texts), margin={"t": 80}, legend={"y": 1.09})
    return drawn


def _add_bars(drawn: go.Figure, rows: pd.DataFrame, colour: str, name: str, column: int) -> None:
    drawn.add_bar(
        y=[text(polynomial) for polynomial in rows["polynomial"]],
        x=list(rows["test"]),
        orientation="h",
        name=name,
        legendgroup=name,
        showlegend=column == 1,
        marker={"color": colour},
        width=0.6,
        error_x=error_bars(rows["test"], rows["low"], rows["high"], INK, thickness=1.2, width=4),
        hovertemplate="%{y}: %{x:.1%}<extra></extra>",
        row=1,
        col=column,
    )
