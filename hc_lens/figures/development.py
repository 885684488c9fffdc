"""Core heads over fine-tuning, one by one: when each enters the subnetworks, what it attends to, what its ablation costs."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.emergence import mark_step, mark_value
from hc_lens.figures.marks import error_bars
from hc_lens.figures.style import BLUES, ID_COLOUR, INK, OOD_COLOUR, PALETTE, TEMPLATE, text
from hc_lens.tables import require
from hc_lens.units import Head

_ABREAST = 5
"""Heads beside each other; more go on in a further line."""

_GAP = 44
"""Pixels between two rows of panels: tick labels, and the title of the next."""


def core_entry(heads: pd.DataFrame, onset: int | None = None) -> go.Figure:
    """When each core head enters the subnetworks: one row per core head, one column per checkpoint, the seeds that keep it.

    Args:
        heads: `Emergence.heads`: `step`, `layer`, `head`, `count` of `of` subnetworks.
        onset: the step at which generalization sets in: a line before its column.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(heads, ("step", "layer", "head", "count", "of"), "core_entry")
    table = heads.assign(unit=_units(heads), share=heads["count"] / heads["of"])
    units = list(dict.fromkeys(table.sort_values(["layer", "head"])["unit"]))
    steps = sorted(set(table["step"]))
    share = table.pivot_table(index="unit", columns="step", values="share").reindex(index=units, columns=steps)
    kept = table.assign(kept=[f"{c}/{n}" for c, n in zip(table["count"], table["of"], strict=True)])
    told = kept.pivot_table(index="unit", columns="step", values="kept", aggfunc="first").reindex(index=units, columns=steps)
    drawn = go.Figure(
        go.Heatmap(
            x=[str(step) for step in steps],
            y=units,
            z=share.to_numpy().tolist(),
            text=told.fillna("").to_numpy().tolist(),
            texttemplate="%{text}",
            textfont={"size": 11},
            colorscale=[list(stop) for stop in BLUES],
            zmin=0,
            zmax=1,
            xgap=2,
            ygap=2,
            colorbar={
                "title": {"text": "share<br>of seeds<br> ", "font": {"size": 12}},
                "lenmode": "pixels",
                "len": 190,
                "y": 1,
                "yanchor": "top",
                "tickformat": ".0%",
                "tickfont": {"size": 11},
                "thickness": 12,
                "outlinewidth": 0,
            },
            hovertemplate="%{y} at step %{x}: kept by %{text} subnetworks<extra></extra>",
        )
    )
    drawn.update_layout(template=TEMPLATE, height=120 + 28 * len(units), margin={"t": 34})
    drawn.update_xaxes(type="category", title_text="fine-tuning step", showgrid=False)
    drawn.update_yaxes(autorange="reversed", showgrid=False, title_text="core head")
    if onset is not None and (later := [place for place, step in enumerate(steps) if step >= onset]):
        edge = {"x0": later[0] - 0.5, "x1": later[0] - 0.5, "y0": 0, "y1": 1}
        drawn.add_shape(type="line", xref="x", yref="paper", line={"color": OOD_COLOUR, "width": 2.5}, **edge)
        drawn.add_annotation(
            x=later[0] - 0.5, y=1, yref="paper", yanchor="bottom", text="onset", showarrow=False, font={"color": OOD_COLOUR}
        )
    return drawn


def core_head_development(table: pd.DataFrame, onset: int | None = None) -> go.Figure:
    """How each core head develops: one column per head, its attention scores above, the cost of ablating it below.

    All heads share the scale of a row, so that they can be compared. Whiskers are 95 % intervals.

    Args:
        table: one row per head, checkpoint and quantity: `step`, `unit` ("L4.H0"), `quantity` ("overlap attention", "ablation
            effect ID", "ablation effect OOD"), `value`, `low`, `high`: `hc_lens.analysis.core_head_development` has these.
        onset: the step at which generalization sets in, marked in every panel.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("step", "unit", "quantity", "value", "low", "high"), "core_head_development")
    units = list(dict.fromkeys(table["unit"]))
    kinds = _kinds(table)
    abreast = min(_ABREAST, len(units))
    lines = -(-len(units) // abreast)
    n_rows = lines * len(kinds)
    height = 110 + n_rows * (120 + _GAP)
    titles = [
        f"<b>{text(units[i])}</b>" if kind == 0 and (i := line * abreast + column) < len(units) else ""
        for line in range(lines)
        for kind in range(len(kinds))
        for column in range(abreast)
    ]
    drawn = make_subplots(
        rows=n_rows,
        cols=abreast,
        shared_yaxes=True,
        subplot_titles=titles,
        horizontal_spacing=0.02,
        vertical_spacing=_GAP / (height - 80) if n_rows > 1 else 0.0,
    )
    for place, unit in enumerate(units):
        for offset, (_, quantities) in enumerate(kinds):
            row, column = place // abreast * len(kinds) + offset + 1, place % abreast + 1
            for quantity in quantities:
                rows = table[(table["unit"] == unit) & (table["quantity"] == quantity)].sort_values("step")
                _add(drawn, rows, quantity, _colour(quantity, quantities), row, column, legend=place == 0)
            mark_value(drawn, 0.0, row, column)
            if onset is not None:
                mark_step(drawn, onset, row, column)
    drawn.update_layout(template=TEMPLATE, height=height, margin={"t": 70})
    drawn.update_annotations(font={"size": 12, "color": INK})
    drawn.update_layout(legend={"y": 1 + 34 / (height - 80)})
    _label_axes(drawn, table, kinds, lines, len(units), abreast)
    return drawn


def _kinds(table: pd.DataFrame) -> list[tuple[str, list[str]]]:
    """The rows of panels: attention scores, and ablation effects, each with the quantities drawn in it."""
    quantities = list(dict.fromkeys(table["quantity"]))
    effects = [name for name in quantities if name.startswith("ablation effect")]
    scores = [name for name in quantities if name not in effects]
    return [(title, names) for title, names in (("attention score", scores), ("ablation effect", effects)) if names]


def _colour(quantity: str, quantities: list[str]) -> str:
    if quantity.startswith("ablation effect"):
        return ID_COLOUR if quantity.endswith(" ID") else OOD_COLOUR
    return (PALETTE[0], PALETTE[2], PALETTE[4], PALETTE[3])[quantities.index(quantity) % 4]


def _add(drawn: go.Figure, rows: pd.DataFrame, quantity: str, colour: str, row: int, column: int, *, legend: bool) -> None:
    drawn.add_scatter(
        x=list(rows["step"]),
        y=list(rows["value"]),
        name=text(quantity),
        legendgroup=quantity,
        showlegend=legend,
        mode="lines+markers",
        line={"color": colour, "width": 2},
        marker={"size": 5},
        error_y=error_bars(rows["value"], rows["low"], rows["high"], colour, thickness=1, width=2),
        customdata=[f"{low:.3f} to {high:.3f}" for low, high in zip(rows["low"], rows["high"], strict=True)],
        hovertemplate=f"{text(quantity)}<br>step %{{x}}: %{{y:.3f}} (95 %: %{{customdata}})<extra></extra>",
        row=row,
        col=column,
    )


def _label_axes(
    drawn: go.Figure, table: pd.DataFrame, kinds: list[tuple[str, list[str]]], lines: int, n_units: int, abreast: int
) -> None:
    drawn.update_xaxes(nticks=4, showticklabels=False, matches="x")
    for line in range(lines):
        for offset, (title, quantities) in enumerate(kinds):
            row = line * len(kinds) + offset + 1
            shown = table[table["quantity"].isin(quantities)]
            low, high = min(0.0, float(shown["low"].min())), float(max(shown["high"].max(), shown["value"].max()))
            pad = 0.06 * (high - low)
            drawn.update_yaxes(range=[low - pad, high + pad], row=row, nticks=5)
            drawn.update_yaxes(title_text=title, row=row, col=1)
        last = (line + 1) * len(kinds)
        for column in range(1, abreast + 1):
            if line * abreast + column <= n_units:
                title = "fine-tuning step" if (line + 1) * abreast + column > n_units else None
                drawn.update_xaxes(showticklabels=True, title_text=title, row=last, col=column)
            else:
                for row in range(line * len(kinds) + 1, last + 1):
                    drawn.update_xaxes(visible=False, row=row, col=column)
                    drawn.update_yaxes(visible=False, row=row, col=column)


def _units(table: pd.DataFrame) -> list[str]:
    return [str(Head(int(layer), int(head))) for layer, head in zip(table["layer"], table["head"], strict=True)]
