"""Figures of the heads that subnetworks keep: how often each is kept, and whether two sparsities agree on it."""

from collections.abc import Collection

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.style import BAND, BLUES, INK, PALETTE, TEMPLATE, figure, outline_heads, percent
from hc_lens.tables import require
from hc_lens.units import Head

_CORE = PALETTE[1]


def head_heatmap(frequency: pd.DataFrame, core: Collection[Head] = ()) -> go.Figure:
    """In how many subnetworks each head is kept: one panel per sparsity, layers upwards, core heads outlined.

    Args:
        frequency: one row per sparsity and head: `sparsity` (0..1), `layer`, `head` (both from 0), `count` (runs that keep the
            head), `of` (runs).
        core: the heads to outline.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(frequency, ("sparsity", "layer", "head", "count", "of"), "head_heatmap")
    sparsities = sorted(frequency["sparsity"].unique())
    titles = [f"{percent(float(s))} sparsity" for s in sparsities]
    drawn = make_subplots(rows=1, cols=len(sparsities), subplot_titles=titles, horizontal_spacing=0.06, shared_yaxes=True)
    n_layers, n_heads = int(frequency["layer"].max()) + 1, int(frequency["head"].max()) + 1
    for column, sparsity in enumerate(sparsities, start=1):
        rows = frequency[frequency["sparsity"] == sparsity]
        counts = np.full((n_layers, n_heads), np.nan)
        shares = np.full((n_layers, n_heads), np.nan)
        counts[rows["layer"], rows["head"]] = rows["count"]
        shares[rows["layer"], rows["head"]] = rows["count"] / rows["of"]
        drawn.add_heatmap(
            z=shares.tolist(),
            text=[["" if np.isnan(c) else f"{c:.0f}" for c in row] for row in counts],
            texttemplate="%{text}",
            textfont={"size": 11},
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            hovertemplate=f"L%{{y}}.H%{{x}}: kept in %{{text}} of {int(rows['of'].max())} runs<extra></extra>",
            row=1,
            col=column,
        )
        outline_heads(drawn, core, _CORE, row=1, col=column)
    drawn.update_layout(
        template=TEMPLATE,
        height=90 + max(26 * n_layers, 130),
        margin={"t": 26},
        coloraxis={
            "cmin": 0,
            "cmax": 1,
            "colorscale": BLUES,
            "colorbar": {
                "title": {"text": "share<br>of runs", "font": {"size": 12}},
                "tickfont": {"size": 11},
                "tickformat": ".0%",
                "thickness": 12,
                "outlinewidth": 0,
            },
        },
    )
    drawn.update_annotations(font={"size": 13, "color": INK})
    drawn.update_xaxes(title_text="head", dtick=1, showgrid=False)
    drawn.update_yaxes(dtick=1, showgrid=False)
    drawn.update_yaxes(title_text="layer", row=1, col=1)
    return drawn


def joint_histogram(
    table: pd.DataFrame,
    x_title: str = "runs that keep the head, first set",
    y_title: str = "runs that keep the head, second set",
) -> go.Figure:
    """How many heads are kept in `i` runs of one set of subnetworks and in `j` runs of another: on the diagonal the sets agree.

    The area of a mark is the number of heads, which is also written on it.

    Args:
        table: one row per pair: `i`, `j` (runs that keep the head), `heads` (how many heads; pairs with none may be left out).
        x_title: what `i` counts.
        y_title: what `j` counts.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("i", "j", "heads"), "joint_histogram")
    shown = table[table["heads"] > 0]
    top = int(max(table["i"].max(), table["j"].max()))
    drawn = figure(height=max(360, 32 * (top + 1) + 70))
    drawn.update_layout(margin={"t": 10})
    drawn.add_shape(type="line", x0=0, y0=0, x1=top, y1=top, line={"color": BAND, "width": 1.5, "dash": "dash"}, layer="below")
    most = float(shown["heads"].max()) if len(shown) else 1.0
    drawn.add_scatter(
        x=list(shown["i"]),
        y=list(shown["j"]),
        text=[str(heads) for heads in shown["heads"]],
        customdata=list(shown["heads"]),
        mode="markers+text",
        textfont={"size": 11, "color": INK},
        marker={
            "size": list(shown["heads"]),
            "sizemode": "area",
            "sizeref": 2 * most / 46**2,
            "sizemin": 9,
            "color": "#a9cbe3",
            "line": {"width": 1, "color": PALETTE[0]},
        },
        hovertemplate="%{customdata} heads kept in %{x} runs of one set and %{y} of the other<extra></extra>",
        showlegend=False,
    )
    step = 1 if top <= 14 else 2
    drawn.update_xaxes(title_text=x_title, dtick=step, range=[-0.8, top + 0.8])
    drawn.update_yaxes(title_text=y_title, dtick=step, range=[-0.8, top + 0.8])
    return drawn
