"""Figures that set two runs side by side: how often each keeps every head, and how alike their subnetworks are."""

import math

import pandas as pd
import plotly.graph_objects as go

from hc_lens.figures.style import BAND, BLUES, INK, MUTED, PALETTE, SYMBOLS, figure, text
from hc_lens.tables import require
from hc_lens.units import Head

_GREY = "#aab3bd"
_NAMED = 48  # names that fit beside the plot


def frequency_scatter(table: pd.DataFrame, names: tuple[str, str] = ("first run", "second run")) -> go.Figure:
    """Every head by how many subnetworks of one run and of the other keep it; on the diagonal, the runs agree.

    Heads with the same two counts are spread within their cell. The heads of both cores are named.

    Args:
        table: one row per head: `layer`, `head`, `first` of `first_of` and `second` of `second_of` subnetworks keep it, `core`
            ("both", "neither", or the name of the run whose core it is in). `Comparison.frequency` has these.
        names: of the runs, as in `core`.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("layer", "head", "first", "first_of", "second", "second_of", "core"), "frequency_scatter")
    x_top, y_top = int(table["first_of"].max()), int(table["second_of"].max())
    placed = _spread(table, x_top, y_top)
    drawn = figure(height=620)
    drawn.add_shape(
        type="line", x0=0, y0=0, x1=x_top, y1=y_top, line={"color": BAND, "width": 1.5, "dash": "dash"}, layer="below"
    )
    kinds = {
        "neither": ("in neither core", _GREY, SYMBOLS[0]),
        names[0]: (f"core of {text(names[0])} only", PALETTE[0], SYMBOLS[1]),
        names[1]: (f"core of {text(names[1])} only", PALETTE[2], SYMBOLS[2]),
        "both": ("in both cores", PALETTE[1], SYMBOLS[3]),
    }
    for kind, (label, colour, symbol) in kinds.items():
        rows = placed[placed["core"] == kind]
        if rows.empty:
            continue
        drawn.add_scatter(
            x=list(rows["x"]),
            y=list(rows["y"]),
            name=f"{label} ({len(rows)})",
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 9, "opacity": 0.9, "line": {"width": 1, "color": "white"}},
            customdata=rows[["unit", "first", "first_of", "second", "second_of"]].to_numpy().tolist(),
            hovertemplate="%{customdata[0]}<br>"
            + f"{text(names[0])}: %{{customdata[1]}} of %{{customdata[2]}}<br>"
            + f"{text(names[1])}: %{{customdata[3]}} of %{{customdata[4]}}<extra></extra>",
        )
    _name_shared(drawn, placed[placed["core"] == "both"])
    for axis, title, top in (("xaxis", names[0], x_top), ("yaxis", names[1], y_top)):
        drawn.update_layout(
            {
                axis: {
                    "title": {"text": f"subnetworks of {text(title)} that keep the head"},
                    "range": [-0.6, top + 0.6],
                    "dtick": 1 if top <= 14 else 2,
                    "tick0": 0,
                }
            }
        )
    return drawn


def _spread(table: pd.DataFrame, x_top: int, y_top: int) -> pd.DataFrame:
    """Where each head is drawn: those of one cell side by side, closer where they are many."""
    placed = table.assign(
        unit=[str(Head(int(layer), int(head))) for layer, head in zip(table["layer"], table["head"], strict=True)]
    )
    parts: list[pd.DataFrame] = []
    for _, rows in placed.groupby(["first", "second"]):
        rows = rows.sort_values(["core", "layer", "head"])
        # Cells are about twice as wide as they are high.
        abreast = math.ceil(math.sqrt(2 * len(rows)))
        lines = -(-len(rows) // abreast)
        right = min(0.0105 * (x_top + 1.2), 0.8 / max(abreast - 1, 1))
        down = min(0.021 * (y_top + 1.2), 0.8 / max(lines - 1, 1))
        x = [
            rows["first"].iloc[0] + (index % abreast - (min(abreast, len(rows)) - 1) / 2) * right for index in range(len(rows))
        ]
        y = [rows["second"].iloc[0] - (index // abreast - (lines - 1) / 2) * down for index in range(len(rows))]
        parts.append(rows.assign(x=x, y=y))
    return pd.concat(parts, ignore_index=True)


def _name_shared(drawn: go.Figure, shared: pd.DataFrame) -> None:
    """The heads of both cores, listed at the right."""
    if shared.empty:
        return
    units = list(shared["unit"])
    lines = [", ".join(units[start : start + 2]) for start in range(0, min(len(units), _NAMED), 2)]
    more = [f"and {len(units) - _NAMED} more"] if len(units) > _NAMED else []
    drawn.add_annotation(
        x=1.01,
        y=1,
        xref="paper",
        yref="paper",
        text="<b>in both cores</b><br>" + "<br>".join([*lines, *more]),
        showarrow=False,
        align="left",
        xanchor="left",
        yanchor="top",
        font={"size": 12, "color": INK},
    )
    drawn.update_layout(margin={"r": 140})


def jaccard_heatmap(similarity: pd.DataFrame, sizes: tuple[int, ...] = ()) -> go.Figure:
    """Jaccard similarity of every two sets of heads: subnetworks of one or more runs, or the cores of several.

    Args:
        similarity: a square table labelled by set on both sides, values 0..1.
        sizes: how many of its rows are of each run, in order: lines are drawn between runs.

    Raises:
        ValueError: for a table that is not square, or sizes that do not add up to its rows.
    """
    n = len(similarity)
    if n == 0 or list(similarity.index) != list(similarity.columns):
        raise ValueError(f"jaccard_heatmap needs one row and one column per set, got {n} x {len(similarity.columns)}")
    if sizes and sum(sizes) != n:
        raise ValueError(f"jaccard_heatmap: the runs have {list(sizes)} subnetworks, {sum(sizes)} in all, the table {n} rows")
    labels = [text(name) for name in similarity.index]
    values = similarity.to_numpy()
    drawn = figure(height=150 + max(26 * n, 160))
    drawn.add_heatmap(
        z=values.tolist(),
        text=[[f"{value:.2f}" for value in row] for row in values] if n <= 16 else None,
        texttemplate="%{text}" if n <= 16 else None,
        textfont={"size": 11},
        customdata=[[[a, b] for b in labels] for a in labels],
        colorscale=[list(stop) for stop in BLUES],
        zmin=0,
        zmax=1,
        xgap=1,
        ygap=1,
        colorbar={
            "title": {"text": "Jaccard<br>similarity<br> ", "font": {"size": 12}},
            "tickfont": {"size": 11},
            "thickness": 12,
            "outlinewidth": 0,
        },
        hovertemplate="%{customdata[0]}<br>%{customdata[1]}<br>%{z:.3f}<extra></extra>",
    )
    edge = 0
    for size in sizes[:-1]:
        edge += size
        for axis in ("x", "y"):
            across, along = (("x0", "x1"), ("y0", "y1")) if axis == "x" else (("y0", "y1"), ("x0", "x1"))
            ends = dict.fromkeys(across, edge - 0.5) | dict(zip(along, (-0.5, n - 0.5), strict=True))
            drawn.add_shape(type="line", line={"color": PALETTE[1], "width": 2.5}, **ends)
    places = list(range(n))
    drawn.update_xaxes(tickvals=places, ticktext=labels, tickangle=-40, showgrid=False, tickfont={"size": 11, "color": MUTED})
    drawn.update_yaxes(
        tickvals=places, ticktext=labels, autorange="reversed", showgrid=False, tickfont={"size": 11, "color": MUTED}
    )
    return drawn
