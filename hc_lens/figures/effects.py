"""Figures of ablation: what a head or a set costs on each case, and whether a set costs more than its heads one by one."""

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import error_bars
from hc_lens.figures.style import BAND, FAINT, ID_COLOUR, INK, MUTED, PALETTE, SYMBOLS, TEMPLATE, pitch, text, wrapped
from hc_lens.tables import require, require_once

_SCALES = {
    "accuracy": ("accuracy lost jointly, beyond the sum", ".0%"),
    "margin": ("margin lost jointly, beyond the sum (nats)", ""),
    "metric": ("metric lost jointly, beyond the sum", ""),
}

ADDITIVITY_COLUMNS = (
    "set",
    "case",
    "scale",
    "joint",
    "summed",
    "excess",
    "low",
    "high",
    "floor_limited",
    "control_low",
    "control_high",
)
"""What `additivity` and the report need of `Ablation.super_additivity()`."""


def ablation_bars(table: pd.DataFrame, columns: int = 4) -> go.Figure:
    """What ablating each group of units costs, one panel per case: bars to the right are accuracy lost, with intervals.

    Args:
        table: one row per group of units and case: `group` (what was ablated, `L4.H0` or a set's name), `case`, `effect`
            (accuracy of the full model minus that of the ablated one, so positive is damage; a share, 0.1 is ten points),
            `low`, `high` (its 95 % interval; NaN where there is none). In-domain cases are dark where there is a column
            `case_group` ("ID" or "OOD").
            `Ablation.table()` has these; of its scales, choose the accuracy.
        columns: panels beside each other.

    Raises:
        ValueError: if a column is missing, the table is empty, or a group and case have several rows (of several scales, say).
    """
    require(table, ("group", "case", "effect", "low", "high"), "ablation_bars")
    require_once(table, ("group", "case"), "ablation_bars", "choose a scale")
    inside = set(table.loc[table["case_group"] == "ID", "case"]) if "case_group" in table.columns else set[str]()
    cases = list(dict.fromkeys(table["case"]))
    groups = list(dict.fromkeys(table["group"]))
    columns = min(columns, len(cases))
    n_rows = -(-len(cases) // columns)
    panel, gap = 20 * len(groups) + 16, 62
    height = 90 + n_rows * panel + (n_rows - 1) * gap
    drawn = make_subplots(
        rows=n_rows,
        cols=columns,
        subplot_titles=[f"<b>{wrapped(case, 24)}</b>" for case in cases],
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=gap / height if n_rows > 1 else 0.0,
    )
    for place, case in enumerate(cases):
        colour = ID_COLOUR if case in inside else PALETTE[0]
        _add_bars(drawn, table[table["case"] == case], text(case), colour, place // columns + 1, place % columns + 1)
    drawn.update_layout(template=TEMPLATE, height=height, bargap=0.25, margin={"t": 46})
    drawn.update_annotations(font={"size": 12, "color": INK})
    drawn.update_xaxes(matches="x", tickformat=".0%", nticks=5, zeroline=True, zerolinecolor=MUTED, zerolinewidth=1)
    drawn.update_yaxes(
        matches="y", categoryorder="array", categoryarray=[text(group) for group in reversed(groups)], showgrid=False
    )
    for column in range(1, columns + 1):
        last = (len(cases) - column) // columns + 1
        drawn.update_xaxes(title_text="accuracy lost", showticklabels=True, row=last, col=column)
    return drawn


def _add_bars(drawn: go.Figure, rows: pd.DataFrame, case: str, colour: str, row: int, column: int) -> None:
    drawn.add_bar(
        x=list(rows["effect"]),
        y=[text(group) for group in rows["group"]],
        orientation="h",
        name=case,
        marker={"color": colour, "opacity": 0.8},
        error_x=error_bars(rows["effect"], rows["low"], rows["high"], MUTED, thickness=1.3, width=3),
        customdata=[_interval(low, high) for low, high in zip(rows["low"], rows["high"], strict=True)],
        hovertemplate=f"{case}<br>%{{y}} ablated: %{{x:.1%}} lost<br>%{{customdata}}<extra></extra>",
        showlegend=False,
        row=row,
        col=column,
    )


def _interval(low: float, high: float) -> str:
    return f"95 % interval {low:.1%} to {high:.1%}" if pd.notna(low) and pd.notna(high) else "without an interval"


def additivity(table: pd.DataFrame) -> go.Figure:
    """Joint effect minus the sum of single effects, per set and case, against random sets: right of zero is super-additive.

    One panel per scale. The grey band spans the central 95 % of layer-matched random sets of the same size; a hollow mark is
    limited by the floor (its heads' summed damage is more than there was to lose, so it could not show super-additivity).

    Args:
        table: one row per set, case and scale: `set` (a name), `case`, `scale` ("accuracy", "margin" or "metric"), `joint` and
            `summed` (loss when ablated together, and the sum of single losses), `excess` (joint - summed), `low`, `high` (its
            interval), `floor_limited` (bool), `control_low`, `control_high` (2.5 % and 97.5 % quantiles of the excess of random
            sets; NaN where there were none). Shares on the accuracy scale, nats of log-odds on the margin scale.
            `Ablation.super_additivity()` has these.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ADDITIVITY_COLUMNS, "additivity")
    scales = [scale for scale in _SCALES if scale in set(table["scale"])]
    sets = list(dict.fromkeys(table["set"]))
    rows_at = {key: place for place, key in enumerate(dict.fromkeys(zip(table["case"], table["set"], strict=True)))}
    drawn = make_subplots(rows=1, cols=len(scales), shared_yaxes=True, horizontal_spacing=0.05)
    for column, scale in enumerate(scales, start=1):
        shown = table[table["scale"] == scale]
        _add_controls(drawn, shown, [rows_at[k] for k in zip(shown["case"], shown["set"], strict=True)], column)
        for rank, name in enumerate(sets):
            rows = shown[shown["set"] == name]
            _add_excess(drawn, rows, [rows_at[case, name] for case in rows["case"]], rank, column)
        title, tickformat = _SCALES[scale]
        drawn.update_xaxes(
            title_text=title, tickformat=tickformat, zeroline=True, zerolinecolor=INK, zerolinewidth=1, col=column, row=1
        )
    labels = [wrapped(case) if len(sets) == 1 else f"{wrapped(case)}: {text(name)}" for case, name in rows_at]
    drawn.update_yaxes(
        tickvals=list(rows_at.values()), ticktext=labels, range=[len(rows_at) - 0.4, -0.6], gridcolor=FAINT, showgrid=True
    )
    drawn.update_layout(template=TEMPLATE, height=110 + pitch(labels, 30) * len(rows_at))
    return drawn


def _add_controls(drawn: go.Figure, rows: pd.DataFrame, places: list[int], column: int) -> None:
    """Thick grey segments, drawn first so that the measured values stand on them."""
    known = [
        (place, low, high)
        for place, low, high in zip(places, rows["control_low"], rows["control_high"], strict=True)
        if pd.notna(low) and pd.notna(high)
    ]
    drawn.add_scatter(
        x=[x for _, low, high in known for x in (low, high, None)],
        y=[y for place, _, _ in known for y in (place, place, None)],
        name="layer-matched random sets (central 95 %)",
        mode="lines",
        line={"color": BAND, "width": 12},
        showlegend=column == 1 and bool(known),
        legendgroup="controls",
        hoverinfo="skip",
        row=1,
        col=column,
    )


def _add_excess(drawn: go.Figure, rows: pd.DataFrame, places: list[int], rank: int, column: int) -> None:
    symbol = SYMBOLS[rank % len(SYMBOLS)]
    drawn.add_scatter(
        x=list(rows["excess"]),
        y=places,
        name=text(rows["set"].iloc[0]) if len(rows) else "",
        mode="markers",
        marker={
            "symbol": [f"{symbol}-open" if limited else symbol for limited in rows["floor_limited"]],
            "size": 10,
            "color": PALETTE[rank % len(PALETTE)],
            "line": {"width": 2, "color": PALETTE[rank % len(PALETTE)]},
        },
        error_x=error_bars(rows["excess"], rows["low"], rows["high"], PALETTE[rank % len(PALETTE)], thickness=1.5, width=4),
        customdata=rows[["joint", "summed", "low", "high"]].to_numpy().tolist(),
        hovertemplate="%{y}<br>joint %{customdata[0]:.3f}, summed %{customdata[1]:.3f}, excess %{x:.3f}"
        "<br>95 % interval %{customdata[2]:.3f} to %{customdata[3]:.3f}<extra></extra>",
        showlegend=column == 1,
        legendgroup=str(rank),
        row=1,
        col=column,
    )
