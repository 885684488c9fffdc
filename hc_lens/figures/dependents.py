"""Figure of the heads that build on a core: how much each changes when core heads are ablated."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from hc_lens.figures.style import BLUES, INK, PALETTE, figure, text
from hc_lens.tables import require

DEPENDENCE_COLUMNS = ("source", "layer", "head", "among", "change", "low", "high", "control_low", "control_high")
"""What `dependence` needs of `dependence_on`."""


def dependence(table: pd.DataFrame) -> go.Figure:
    """How much every later head's output changes when a core head, or all of them, are ablated: layers from left to right.

    1 is as much as ablating the later head itself. A dot marks changes larger than those by layer-matched random heads; a
    triangle above marks later heads that are in the core themselves.

    Args:
        table: of `hc_lens.analysis.dependence_on`, with `DEPENDENCE_COLUMNS`: one row per source and later head.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, DEPENDENCE_COLUMNS, "dependence")
    sources = list(dict.fromkeys(table["source"]))
    layers = sorted(table["layer"].unique().tolist())
    n_heads = int(table["head"].max()) + 1
    starts = {layer: i * (n_heads + 1) for i, layer in enumerate(layers)}  # an empty column between two layers
    at = [
        (sources.index(source), starts[layer] + head)
        for source, layer, head in zip(table["source"], table["layer"], table["head"], strict=True)
    ]
    width = len(layers) * (n_heads + 1) - 1
    values, hover = np.full((len(sources), width), np.nan), np.full((len(sources), width), "", dtype=object)
    for (y, x), row in zip(at, table.to_dict("records"), strict=True):
        values[y, x] = row["change"]
        hover[y, x] = (
            f"{text(row['source'])} → L{row['layer']}.H{row['head']}: {row['change']:.3f}"
            f"<br>95 % interval {row['low']:.3f} to {row['high']:.3f}{_random_heads(row)}"
        )
    drawn = figure(height=130 + 27 * len(sources))
    _add_unreachable(drawn, values, [starts[layer] + i for layer in layers for i in range(n_heads)])
    drawn.add_heatmap(
        z=values.tolist(),
        customdata=hover.tolist(),
        colorscale=BLUES,
        zmin=0,
        zmax=float(np.nanmax(values)) if np.isfinite(values).any() and np.nanmax(values) > 0 else 1.0,
        colorbar={"title": {"text": "relative<br>change", "font": {"size": 12}}, "thickness": 12, "outlinewidth": 0}
        | {"tickfont": {"size": 11}},
        hovertemplate="%{customdata}<extra></extra>",
        hoverongaps=False,
        xgap=0.5 if width > 60 else 1,
        ygap=1,
    )
    _add_dependence_marks(drawn, table, at)
    _label_axes(drawn, sources, {layer: start + (n_heads - 1) / 2 for layer, start in starts.items()}, width)
    return drawn


def _label_axes(drawn: go.Figure, sources: Sequence[str], centres: Mapping[int, float], width: int) -> None:
    """Names of the sources at the left, of the layers below the centres of their heads."""
    drawn.update_xaxes(
        title_text="later heads, by layer",
        tickvals=list(centres.values()),
        ticktext=[f"layer {layer}" if len(centres) <= 8 else str(layer) for layer in centres],
        ticks="",
        showgrid=False,
        showline=False,
        range=[-0.7, width - 0.3],
    )
    drawn.update_yaxes(
        title_text="ablated",
        tickvals=list(range(len(sources))),
        ticktext=[text(source) for source in sources],
        ticks="",
        showgrid=False,
        showline=False,
        range=[len(sources) - 0.45, -1.1],
    )


def _random_heads(row: Mapping[Hashable, Any]) -> str:
    if pd.isna(row["control_low"]):
        return ""
    return f"<br>random heads {row['control_low']:.3f} to {row['control_high']:.3f}"


def _add_unreachable(drawn: go.Figure, values: np.ndarray, columns: Sequence[int]) -> None:
    """A faint ground under heads that do not come after the source, so that they do not read as a change of 0."""
    ground = np.full(values.shape, np.nan)
    ground[:, list(columns)] = 0
    drawn.add_heatmap(
        z=np.where(np.isnan(values), ground, np.nan).tolist(),
        colorscale=((0, "#f3eeea"), (1, "#f3eeea")),
        showscale=False,
        hoverinfo="skip",
        xgap=0.5,
        ygap=1,
    )


def _add_dependence_marks(drawn: go.Figure, table: pd.DataFrame, at: Sequence[tuple[int, int]]) -> None:
    outside = [place for place, low, high in zip(at, table["low"], table["control_high"], strict=True) if low > high]
    drawn.add_scatter(
        x=[x for _, x in outside],
        y=[y for y, _ in outside],
        name="more than random heads do",
        mode="markers",
        marker={"symbol": "circle", "size": 5, "color": INK, "line": {"width": 1, "color": "white"}},
        showlegend=bool(outside),
        hoverinfo="skip",
    )
    core = sorted({x for (_, x), among in zip(at, table["among"], strict=True) if among})
    drawn.add_scatter(
        x=core,
        y=[-0.75] * len(core),
        name="in the core",
        mode="markers",
        marker={"symbol": "triangle-down", "size": 8, "color": PALETTE[1]},
        showlegend=bool(core),
        hoverinfo="skip",
    )
