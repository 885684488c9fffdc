"""Figures of networks trained on corrupted labels: over time, over neurons, as neurons are removed, and over settings."""

from collections.abc import Sequence

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from hc_lens.figures.marks import interval_band
from hc_lens.figures.style import BAND, FAINT, INK, MUTED, PALETTE, TEMPLATE, figure
from hc_lens.modular.config import GENERALIZING
from hc_lens.modular.corrupted import Stages
from hc_lens.modular.curves import HIGH, LOW, RANDOM
from hc_lens.modular.phases import PHASES
from hc_lens.modular.spectrum import power_spectrum
from hc_lens.tables import require

CURVES = {
    "test": ("test", PALETTE[0]),
    "as_labelled": ("corrupted, as labelled", PALETTE[1]),
    "as_true": ("corrupted, true answer", PALETTE[2]),
    "train": ("train", INK),
}
"""The accuracies that are drawn, with their names and colours, the same in every figure."""

PHASE_COLOURS = dict(zip(PHASES, ("#0072B2", "#56B4E9", "#009E73", "#D55E00", "#E69F00", "#b9c0c8"), strict=True))


def accuracies_over_time(history: pd.DataFrame, stages: Stages | None = None) -> go.Figure:
    """Accuracies by training step, and the steps at which the network generalized and let go of the corrupted labels.

    Args:
        history: `step` and the accuracies; with a column `seed`, each seed is a line of its own.
        stages: steps to mark, for one seed.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(history, ("step", *CURVES), "accuracies_over_time")
    drawn = figure(360)
    runs = [rows for _, rows in history.groupby("seed")] if "seed" in history else [history]
    for column, (name, colour) in CURVES.items():
        for place, rows in enumerate(runs):
            drawn.add_scatter(
                x=list(rows["step"]),
                y=list(rows[column]),
                name=name,
                legendgroup=column,
                showlegend=place == 0,
                mode="lines",
                line={"color": colour, "width": 2 if len(runs) == 1 else 1.4, "dash": "dot" if column == "train" else "solid"},
                hovertemplate=f"{name}, step %{{x}}: %{{y:.3f}}<extra></extra>",
            )
    for step, label in ((stages.grokked, "generalizes"), (stages.unlearned, "unlearned")) if stages else ():
        if step is not None:
            drawn.add_vline(x=step, line={"color": BAND, "width": 1.5, "dash": "dash"})
            drawn.add_annotation(
                x=step, y=0.5, yref="paper", text=label, textangle=-90, showarrow=False, xanchor="left", font={"color": MUTED}
            )
    drawn.update_xaxes(title_text="training step")
    drawn.update_yaxes(title_text="accuracy", range=[-0.03, 1.05])
    return drawn


def ipr_histogram(table: pd.DataFrame, threshold: float = GENERALIZING, bins: int = 40) -> go.Figure:
    """How many neurons have which IPR, and the threshold that tells periodic ones from others.

    Args:
        table: `ipr`, a row per neuron; with a column `run`, each run is a panel of its own, in the order of the table.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("ipr",), "ipr_histogram")
    runs = list(dict.fromkeys(table["run"])) if "run" in table else [""]
    drawn = make_subplots(1, len(runs), shared_yaxes=True, subplot_titles=[str(run) for run in runs], horizontal_spacing=0.03)
    for column, run in enumerate(runs, start=1):
        values = table if run == "" else table[table["run"] == run]
        drawn.add_histogram(
            x=list(values["ipr"]),
            xbins={"start": 0, "end": 1, "size": 1 / bins},
            marker={"color": PALETTE[0]},
            showlegend=False,
            hovertemplate="IPR %{x}: %{y} neurons<extra></extra>",
            row=1,
            col=column,
        )
        line = {"color": PALETTE[1], "width": 1.5, "dash": "dash"}
        drawn.add_vline(x=threshold, line=line, row=1, col=column)  # pyright: ignore[reportArgumentType]
    drawn.update_xaxes(range=[-0.02, 1.02], title_text="IPR of a neuron", tickvals=[0, 0.5, 1])
    drawn.update_yaxes(title_text="neurons", row=1, col=1)
    drawn.update_layout(template=TEMPLATE, height=320, bargap=0.06, margin={"t": 40})
    return drawn


def pruning_curves_figure(curves: pd.DataFrame) -> go.Figure:
    """Accuracies against the share of neurons removed, a panel for each order; a band spans the seeds and random draws.

    Args:
        curves: what `pruning_curves` returns, of one network or of several.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(curves, ("order", "share", *CURVES), "pruning_curves_figure")
    orders = [order for order in (LOW, HIGH, RANDOM) if order in set(curves["order"])]
    drawn = make_subplots(1, len(orders), shared_yaxes=True, subplot_titles=orders, horizontal_spacing=0.03)
    for place, order in enumerate(orders, start=1):
        shares = curves[curves["order"] == order].groupby("share")
        for column, (name, colour) in CURVES.items():
            mean, low, high = (getattr(shares[column], statistic)() for statistic in ("mean", "min", "max"))
            x = list(mean.index)
            drawn.add_scatter(**interval_band(x, low, high, colour), opacity=0.18, row=1, col=place)
            drawn.add_scatter(
                x=x,
                y=list(mean),
                name=name,
                legendgroup=column,
                showlegend=place == 1,
                mode="lines+markers",
                marker={"size": 4},
                line={"color": colour, "width": 2, "dash": "dot" if column == "train" else "solid"},
                hovertemplate=f"{name}, %{{x:.0%}} removed: %{{y:.3f}}<extra></extra>",
                row=1,
                col=place,
            )
    drawn.update_xaxes(title_text="neurons removed", tickformat=".0%", nticks=6)
    drawn.update_yaxes(range=[-0.03, 1.05])
    drawn.update_yaxes(title_text="accuracy", row=1, col=1)
    drawn.update_layout(template=TEMPLATE, height=380, margin={"t": 66}, legend={"y": 1.1})
    return drawn


def phase_diagram(table: pd.DataFrame, x: str, y: str = "xi") -> go.Figure:
    """The phase of each cell by colour, with its test accuracy over its training accuracy in percent.

    A cell of several seeds has the phase that most of them end in, and their mean accuracies.

    Args:
        table: what `phase_table` returns: `phase`, `train`, `test` and the two columns of the axes.
        x, y: the columns along the axes.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, (x, y, "phase", "train", "test"), "phase_diagram")
    cells = table.groupby([y, x]).agg(
        phase=("phase", lambda seeds: seeds.mode()[0]), test=("test", "mean"), train=("train", "mean")
    )
    cells["code"] = [float(PHASES.index(name)) for name in cells["phase"]]
    cells["told"] = [
        f"{100 * test:.0f}<br>{100 * train:.0f}" for test, train in zip(cells["test"], cells["train"], strict=True)
    ]
    codes, told = cells["code"].unstack(), cells["told"].unstack(fill_value="")
    drawn = figure(130 + 52 * len(codes))
    drawn.add_heatmap(
        x=[f"{value:g}" for value in codes.columns],
        y=[f"{value:g}" for value in codes.index],
        z=codes.to_numpy().tolist(),
        text=told.to_numpy().tolist(),
        texttemplate="%{text}",
        textfont={"size": 11, "color": "white"},
        zmin=-0.5,
        zmax=len(PHASES) - 0.5,
        colorscale=_steps(list(PHASE_COLOURS.values())),
        showscale=False,
        xgap=2,
        ygap=2,
        hovertemplate=f"{_AXES.get(x, x)} %{{x}}, {_AXES.get(y, y)} %{{y}}: test, train %{{text}}<extra></extra>",
    )
    for name in PHASES:
        if name in set(cells["phase"]):
            marker = {"color": PHASE_COLOURS[name], "symbol": "square", "size": 12}
            drawn.add_scatter(x=[None], y=[None], mode="markers", marker=marker, name=name)
    drawn.update_xaxes(type="category", title_text=_AXES.get(x, x), showgrid=False)
    drawn.update_yaxes(type="category", title_text=_AXES.get(y, y), showgrid=False)
    return drawn


_AXES = {
    "xi": "corrupted share of labels, xi",
    "alpha": "share of pairs trained on, alpha",
    "weight_decay": "weight decay",
    "dropout": "dropout",
}


def _steps(colours: Sequence[str]) -> list[list[object]]:
    """A colour scale of as many flat steps as colours."""
    n = len(colours)
    return [[edge / n, colour] for place, colour in enumerate(colours) for edge in (place, place + 1)]


def norm_weight_against_ipr(table: pd.DataFrame) -> go.Figure:
    """BatchNorm's scale of each neuron against its IPR.

    Args:
        table: what `norm_weights` returns: `ipr` and `weight`, a row per neuron.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("ipr", "weight"), "norm_weight_against_ipr")
    drawn = figure(360)
    drawn.add_scatter(
        x=list(table["ipr"]),
        y=list(table["weight"]),
        mode="markers",
        marker={"color": PALETTE[0], "size": 6, "opacity": 0.5},
        showlegend=False,
        hovertemplate="IPR %{x:.2f}: |weight| %{y:.4f}<extra></extra>",
    )
    drawn.update_xaxes(title_text="IPR of a neuron", range=[0, 1])
    drawn.update_yaxes(title_text="|BatchNorm weight|", rangemode="tozero")
    return drawn


def neuron_spectra(
    weights: Float[Tensor, "residue neuron"], ipr: Float[Tensor, " neuron"], neurons: Sequence[int]
) -> go.Figure:
    """Weight vectors of some neurons over the numbers, and below each its share of power at every frequency.

    Args:
        weights: one table of the network's, such as `neuron_weights(model)[0]`.
        ipr: of every neuron, for the titles.
        neurons: which to draw.

    Raises:
        ValueError: if there is none to draw.
    """
    if not neurons:
        raise ValueError("neuron_spectra needs at least one neuron to draw")
    titles = [f"neuron {neuron}, IPR {float(ipr[neuron]):.2f}" for neuron in neurons]
    drawn = make_subplots(2, len(neurons), subplot_titles=titles, vertical_spacing=0.2, horizontal_spacing=0.05)
    power = power_spectrum(weights)
    for column, neuron in enumerate(neurons, start=1):
        colour = PALETTE[0] if ipr[neuron] >= GENERALIZING else PALETTE[1]
        line = {"color": colour, "width": 1.4}
        drawn.add_scatter(y=weights[:, neuron].tolist(), mode="lines", line=line, showlegend=False, row=1, col=column)
        share = power[:, neuron] / power[:, neuron].sum()
        drawn.add_bar(y=share.tolist(), marker={"color": colour}, showlegend=False, row=2, col=column)
    drawn.update_layout(template=TEMPLATE, height=400, bargap=0.1, margin={"t": 40})
    drawn.update_xaxes(title_text="number", nticks=5, title_standoff=2, row=1)
    drawn.update_xaxes(title_text="frequency", nticks=5, row=2)
    drawn.update_yaxes(nticks=4, gridcolor=FAINT)
    drawn.update_yaxes(title_text="weight", row=1, col=1)
    drawn.update_yaxes(title_text="share of power", row=2, col=1)
    return drawn
