"""Figures of the insides of in-context learners: attention maps, and the circles that heads and embeddings lie on."""

import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Float
from plotly.subplots import make_subplots
from torch import Tensor

from hc_lens.figures.style import BLUES, FONT, INK, MUTED, TEMPLATE, figure
from hc_lens.tables import require

_WHEEL = ((0.0, "#0072B2"), (0.25, "#009E73"), (0.5, "#E69F00"), (0.75, "#CC79A7"), (1.0, "#0072B2"))
"""Colours that end where they begin, as logarithms do."""


def attention_heads(maps: Float[Tensor, "layer head query key"], *, last: int | None = None) -> go.Figure:
    """Attention of every head, mean over sequences: a panel per head, queries downwards, keys to the right.

    Tokens are called x, y or z and the number of their example.

    Args:
        maps: as `attention_maps` gives them.
        last: show only this many of the last tokens; all by default.

    Raises:
        ValueError: if `last` is not positive.
    """
    if last is not None and last < 1:
        raise ValueError(f"last must be at least 1, got {last}")
    n_layers, n_heads, n, _ = maps.shape
    start = 0 if last is None else max(0, n - last)
    names = [f"{'xyz'[place % 3]}{place // 3 + 1}" for place in range(start, n)]
    titles = [f"L{layer}.H{head}" for layer in range(n_layers) for head in range(n_heads)]
    drawn = make_subplots(
        rows=n_layers,
        cols=n_heads,
        subplot_titles=titles,
        horizontal_spacing=0.03,
        vertical_spacing=0.16 / n_layers,
        shared_xaxes=True,
        shared_yaxes=True,
    )
    for layer in range(n_layers):
        for head in range(n_heads):
            drawn.add_heatmap(
                z=maps[layer, head, start:, start:].tolist(),
                x=names,
                y=names,
                coloraxis="coloraxis",
                hovertemplate=f"L{layer}.H{head}: %{{y}} attends to %{{x}}: %{{z:.3f}}<extra></extra>",
                row=layer + 1,
                col=head + 1,
            )
    drawn.update_layout(
        template=TEMPLATE,
        height=100 + 260 * n_layers,
        coloraxis={"colorscale": BLUES, "cmin": 0, "colorbar": {"thickness": 12, "title": {"text": "weight"}}},
    )
    drawn.update_annotations(font={"size": 12, "family": FONT})
    drawn.update_xaxes(showgrid=False, tickfont={"size": 9})
    drawn.update_yaxes(autorange="reversed", showgrid=False, tickfont={"size": 9})
    return drawn


def head_circles_figure(points: pd.DataFrame, circles: pd.DataFrame, *, by: str = "x") -> go.Figure:
    """The two principal components of every head's output over all queries; a panel per head, coloured by a logarithm.

    A head whose outputs lie on a circle in the order of the colours computes with the logarithm.

    Args:
        points: `layer`, `head`, `x`, `y`, `log_x`, `log_y`, `first`, `second`, as `head_circles` gives them first.
        circles: `layer`, `head`, `of`, `frequency`, `r2`, `chance`, as it gives them second; the titles' numbers.
        by: "x" or "y": whose logarithm colours the points.

    Raises:
        ValueError: if a column is missing, a table is empty, or `by` is neither.
    """
    if by not in ("x", "y"):
        raise ValueError(f"by must be 'x' or 'y', got {by!r}")
    require(points, ("layer", "head", "x", "y", f"log_{by}", "first", "second"), "head_circles_figure")
    require(circles, ("layer", "head", "of", "frequency", "r2", "chance"), "head_circles_figure")
    fits = circles[circles["of"] == by].set_index(["layer", "head"])
    n_layers, n_heads = int(points["layer"].max()) + 1, int(points["head"].max()) + 1
    titles = [
        f"L{layer}.H{head}: R² {fits.loc[(layer, head), 'r2']:.2f}, chance {fits.loc[(layer, head), 'chance']:.2f}"
        for layer in range(n_layers)
        for head in range(n_heads)
    ]
    drawn = make_subplots(
        rows=n_layers, cols=n_heads, subplot_titles=titles, horizontal_spacing=0.05, vertical_spacing=0.16 / n_layers
    )
    for (layer, head), rows in points.groupby(["layer", "head"]):
        drawn.add_scatter(
            x=rows["first"].tolist(),
            y=rows["second"].tolist(),
            mode="markers",
            marker={"size": 6, "color": rows[f"log_{by}"].tolist(), "coloraxis": "coloraxis"},
            customdata=rows[["x", "y", "log_x", "log_y"]].to_numpy().tolist(),
            hovertemplate="x %{customdata[0]} (log %{customdata[2]}), y %{customdata[1]} (log %{customdata[3]})<extra></extra>",
            showlegend=False,
            row=int(layer) + 1,  # pyright: ignore[reportArgumentType]
            col=int(head) + 1,  # pyright: ignore[reportArgumentType]
        )
    drawn.update_layout(
        template=TEMPLATE,
        height=100 + 250 * n_layers,
        coloraxis={
            "colorscale": _WHEEL,
            "cmin": 0,
            "cmax": int(points[f"log_{by}"].max()) + 1,  # where the colours, like the logarithms, begin again
            "colorbar": {"thickness": 12, "title": {"text": f"log {by}"}},
        },
    )
    drawn.update_annotations(font={"size": 11})
    drawn.update_xaxes(showticklabels=False)
    drawn.update_yaxes(showticklabels=False)
    return drawn


def embedding_circle_figure(points: pd.DataFrame) -> go.Figure:
    """The two principal components of the embeddings of 1..p-1, joined in the order of their logarithms.

    Args:
        points: `number`, `log`, `first`, `second`, as `embedding_circle` gives them.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(points, ("number", "log", "first", "second"), "embedding_circle_figure")
    rows = points.sort_values("log")
    ring = pd.concat([rows, rows.iloc[:1]])
    drawn = figure(height=420)
    drawn.add_scatter(
        x=ring["first"].tolist(),
        y=ring["second"].tolist(),
        mode="lines",
        line={"color": MUTED, "width": 1},
        hoverinfo="skip",
        showlegend=False,
    )
    drawn.add_scatter(
        x=rows["first"].tolist(),
        y=rows["second"].tolist(),
        mode="markers+text",
        text=rows["number"].astype(str).tolist(),
        textposition="top center",
        textfont={"color": INK},
        marker={
            "size": 10,
            "color": rows["log"].tolist(),
            "colorscale": _WHEEL,
            "cmin": 0,
            "cmax": len(rows),
            "colorbar": {"thickness": 12, "title": {"text": "log"}},
        },
        customdata=rows["log"].tolist(),
        hovertemplate="%{text}, log %{customdata}<extra></extra>",
        showlegend=False,
    )
    drawn.update_xaxes(title_text="first component")
    drawn.update_yaxes(title_text="second component", scaleanchor="x")
    return drawn
