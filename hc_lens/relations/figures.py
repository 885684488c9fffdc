"""Figures of linear knowledge: readability and generalization, layers, correlations, wrong labels, single facts, and units."""

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import error_bars, interval_band
from hc_lens.figures.style import BAND, BLUES, DIVERGING, INK, MUTED, PALETTE, SYMBOLS, TEMPLATE, figure, pitch, text, wrapped
from hc_lens.relations.facts import ACTIVE, INERT, NOT_RECALLED
from hc_lens.tables import require
from hc_lens.units import Head, parse

_SOURCES = {
    "probe": ("linear probe's top answers", PALETTE[0]),
    "model": ("pretrained model's own", PALETTE[1]),
    "frequency": ("as many by frequency", MUTED),
    "random": ("as many at random", BAND),
}
_STATES = {
    ACTIVE: (PALETTE[0], "circle"),
    INERT: (PALETTE[1], "diamond"),
    NOT_RECALLED: (MUTED, "x-thin-open"),
}
_ABOVE = "above the majority rate"


def readability_scatter(table: pd.DataFrame, told: str = "") -> go.Figure:
    """Generalization after fine-tuning against linear readability before it: a point per relation, and the line of best fit.

    Args:
        table: `relation`, `readability`, `generalization` (both accuracies above the majority rate: 1 is perfect, 0 is chance);
            with `low` and `high`, generalization has an interval; with `kind`, such as the source of the relation, a colour.
        told: the correlation in words, in the corner.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("relation", "readability", "generalization"), "readability_scatter")
    drawn = figure(480)
    for line in (drawn.add_hline, drawn.add_vline):
        line(0, line={"color": BAND, "width": 1.5, "dash": "dot"})
    if len(table) > 2 and np.ptp(table["readability"]) > 0:
        slope, start = np.polyfit(table["readability"], table["generalization"], 1)
        ends = [float(table["readability"].min()), float(table["readability"].max())]
        fitted = [slope * end + start for end in ends]
        drawn.add_scatter(x=ends, y=fitted, mode="lines", line={"color": BAND, "width": 2}, showlegend=False, hoverinfo="skip")
    kinds = table.groupby("kind", sort=False) if "kind" in table else [("", table)]
    for place, (kind, rows) in enumerate(kinds):
        drawn.add_scatter(
            x=list(rows["readability"]),
            y=list(rows["generalization"]),
            error_y=error_bars(rows["generalization"], rows["low"], rows["high"], INK, thickness=1.1, width=3)
            if {"low", "high"} <= set(rows.columns)
            else None,
            customdata=[text(name) for name in rows["relation"]],
            name=text(kind),
            showlegend="kind" in table,
            mode="markers",
            marker={"color": PALETTE[place % len(PALETTE)], "symbol": SYMBOLS[place % len(SYMBOLS)], "size": 9},
            hovertemplate="%{customdata}<br>readability %{x:.2f}, generalization %{y:.2f}<extra></extra>",
        )
    corner = {"xref": "paper", "yref": "paper", "x": 0.01, "y": 0.98, "xanchor": "left", "yanchor": "top"}
    drawn.add_annotation(text=text(told), showarrow=False, font={"size": 14}, **corner)
    drawn.update_xaxes(title_text=f"linear readability before fine-tuning, {_ABOVE}")
    drawn.update_yaxes(title_text=f"held-out accuracy after fine-tuning, {_ABOVE}")
    return drawn


def layer_profile(table: pd.DataFrame) -> go.Figure:
    """Readability by layer: the median and the quartiles over relations, and below a row for each relation, the best on top.

    A ring marks the layer that inner cross-validation chose, a faint one a layer that it chose on some splits only.

    Args:
        table: a row per relation and layer: `relation`, `layer` (0 is the embedding), `above` (held-out accuracy above the
            majority rate), `chosen` (yes or no, or on which share of several splits).

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("relation", "layer", "above", "chosen"), "layer_profile")
    weighted = table.assign(chosen=table["chosen"].astype(float), read=table["above"] * table["chosen"])
    chosen = weighted[weighted["chosen"] > 0]
    order = chosen.groupby("relation")["read"].sum().sort_values().index
    grid = table.pivot(index="relation", columns="layer", values="above").loc[order]
    names = [text(name) for name in grid.index]
    layers = [int(str(layer)) for layer in grid.columns]
    heights = [190, 40 + 17 * len(names)]
    drawn = make_subplots(2, 1, shared_xaxes=True, row_heights=heights, vertical_spacing=26 / sum(heights))
    _add_quartiles(drawn, grid)
    drawn.add_heatmap(
        x=layers,
        y=names,
        z=grid.to_numpy().tolist(),
        zmin=0,
        zmax=1,
        colorscale=BLUES,
        colorbar={"thickness": 12, "outlinewidth": 0, "len": 150, "lenmode": "pixels", "y": 0, "yanchor": "bottom"},
        xgap=1,
        ygap=1,
        hovertemplate="%{y}, layer %{x}: %{z:.2f}<extra></extra>",
        row=2,
        col=1,
    )
    drawn.add_scatter(
        x=list(chosen["layer"]),
        y=[text(name) for name in chosen["relation"]],
        mode="markers",
        marker={
            "symbol": "circle-open",
            "size": 8,
            "color": PALETTE[1],
            "line": {"width": 2},
            "opacity": list(0.4 + 0.6 * chosen["chosen"]),
        },
        showlegend=False,
        hovertemplate="%{y}: layer %{x} was chosen<extra></extra>",
        row=2,
        col=1,
    )
    drawn.update_xaxes(showgrid=False, range=[layers[0] - 0.6, layers[-1] + 0.6])
    drawn.update_xaxes(title_text="layer (0 is the embedding)", row=2)
    drawn.update_yaxes(title_text=f"accuracy,<br>{_ABOVE}", rangemode="tozero", row=1)
    drawn.update_yaxes(showgrid=False, dtick=1, tickfont={"size": 11}, row=2)
    drawn.update_layout(template=TEMPLATE, height=90 + sum(heights))
    return drawn


def _add_quartiles(drawn: go.Figure, grid: pd.DataFrame) -> None:
    """Median and quartiles over relations, by layer, in the upper row."""
    layers = [int(str(layer)) for layer in grid.columns]
    low, middle, high = (list(grid.quantile(share)) for share in (0.25, 0.5, 0.75))
    drawn.add_scatter(**interval_band(layers, low, high, PALETTE[0]), opacity=0.18, row=1, col=1)
    line = {"color": PALETTE[0], "width": 2}
    hover = "layer %{x}: median %{y:.2f}<extra></extra>"
    drawn.add_scatter(x=layers, y=middle, mode="lines", line=line, hovertemplate=hover, showlegend=False, row=1, col=1)


def correlation_dots(table: pd.DataFrame) -> go.Figure:
    """Correlations with their intervals, a row each from the top: given different controls, or with different label categories.

    Args:
        table: `label` (the name of the row), `r`, `low`, `high` (NaN: undefined).

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(table, ("label", "r", "low", "high"), "correlation_dots")
    labels = [wrapped(label, 44) for label in table["label"]]
    drawn = figure(96 + pitch(labels, 30) * len(labels))
    drawn.add_scatter(
        x=list(table["r"]),
        y=list(range(len(labels))),
        error_x=error_bars(table["r"], table["low"], table["high"], INK, thickness=1.1, width=3),
        mode="markers",
        marker={"color": PALETTE[0], "size": 9},
        customdata=table[["low", "high"]].to_numpy().tolist(),
        text=labels,
        hovertemplate="%{text}: %{x:.2f} [%{customdata[0]:.2f}, %{customdata[1]:.2f}]<extra></extra>",
        showlegend=False,
    )
    drawn.add_vline(0, line={"color": BAND, "width": 1.5})
    drawn.update_xaxes(title_text="correlation over relations", range=[min(-0.05, float(table["low"].min()) - 0.05), 1.05])
    drawn.update_yaxes(tickvals=list(range(len(labels))), ticktext=labels, range=[len(labels) - 0.4, -0.6])
    return drawn


def recovery_bars(shares: pd.DataFrame) -> go.Figure:
    """How often the answer behind a wrong label is among the k best of the probe, of the pretrained model, and by chance.

    Args:
        shares: `recovery_shares`: `k`, `source`, `share`, `low`, `high`, `errors`, `relations`.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(shares, ("k", "source", "share", "low", "high", "errors", "relations"), "recovery_bars")
    drawn = figure(360)
    for source, (name, colour) in _SOURCES.items():
        rows = shares[shares["source"] == source]
        drawn.add_bar(
            x=[
                f"top {k}<br>{errors} wrong labels, {n} relations"
                for k, errors, n in zip(rows["k"], rows["errors"], rows["relations"], strict=True)
            ],
            y=list(rows["share"]),
            error_y=error_bars(rows["share"], rows["low"], rows["high"], INK, thickness=1.1, width=3),
            name=name,
            marker={"color": colour},
            hovertemplate=f"{name}, %{{x}}: %{{y:.1%}}<extra></extra>",
        )
    drawn.update_layout(bargap=0.28, bargroupgap=0.06, barmode="group")
    drawn.update_xaxes(showgrid=False)
    drawn.update_yaxes(title_text="share of wrong labels", tickformat=".0%", rangemode="tozero")
    return drawn


def margin_scatter(facts: pd.DataFrame) -> go.Figure:
    """How often each fact's new label is right when the fact is recalled, against the probe's margin for its old answer.

    Points are spread a little up and down; facts that were never recalled stand below.

    Args:
        facts: `fact_states`: `relation`, `subject`, `times`, `right`, `margin`, `state`.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(facts, ("relation", "subject", "times", "right", "margin", "state"), "margin_scatter")
    drawn = figure(440)
    drawn.add_vline(0, line={"color": BAND, "width": 1.5, "dash": "dot"})
    for state, (colour, symbol) in _STATES.items():
        rows = facts[facts["state"] == state]
        spread = 0.09 * ((np.arange(len(rows)) * 0.618) % 1 - 0.5)
        drawn.add_scatter(
            x=list(rows["margin"]),
            y=list(rows["right"].fillna(-0.2) + spread),
            customdata=[
                f"{text(row.subject)} ({text(row.relation)}), held out {row.times} times"
                for row in rows.itertuples(index=False)
            ],
            name=f"{state} ({len(rows)})",
            mode="markers",
            marker={"color": colour, "symbol": symbol, "size": 6, "opacity": 0.55, "line": {"width": 1, "color": colour}},
            hovertemplate="%{customdata}<br>margin %{x:.2f}<extra></extra>",
        )
    drawn.update_xaxes(title_text="margin of the true answer in the probe, before fine-tuning")
    drawn.update_yaxes(
        title_text="new label right, when recalled",
        range=[-0.3, 1.1],
        tickvals=[-0.2, 0, 0.25, 0.5, 0.75, 1],
        ticktext=[NOT_RECALLED, "0", "25%", "50%", "75%", "100%"],
    )
    return drawn


def unit_effects(effects: pd.DataFrame, title: str = "probe accuracy lost") -> go.Figure:
    """What ablating each head and MLP costs, layers upwards, heads to the right, MLPs in a column of their own.

    Args:
        effects: `unit` (`L4.H0`, `L4.MLP`) and `effect` (a share of facts; positive is damage); several rows of a unit, of
            several relations, are averaged.
        title: what the effect is.

    Raises:
        ValueError: if a column is missing, the table is empty, or a unit has no such name.
    """
    require(effects, ("unit", "effect"), "unit_effects")
    means = effects.groupby("unit", sort=False)["effect"].mean()
    units = {parse(str(name)): float(effect) for name, effect in means.items()}
    n_layers = 1 + max(unit.layer for unit in units)
    n_heads = 1 + max((unit.index for unit in units if isinstance(unit, Head)), default=-1)
    values, names = np.full((n_layers, n_heads + 1), np.nan), np.full((n_layers, n_heads + 1), "", dtype=object)
    for unit, effect in units.items():
        at = unit.layer, unit.index if isinstance(unit, Head) else n_heads
        values[at], names[at] = effect, str(unit)
    most = float(np.nanmax(np.abs(values))) or 1.0
    drawn = figure(max(260, 110 + max(17, min(34, 400 // n_layers)) * n_layers))
    drawn.add_heatmap(
        x=[*map(str, range(n_heads)), "MLP"],
        y=list(range(n_layers)),
        z=values.tolist(),
        customdata=names.tolist(),
        zmin=-most,
        zmax=most,
        colorscale=DIVERGING,
        colorbar={
            "title": {"text": text(title).replace(" ", "<br>", 1)},
            "thickness": 12,
            "outlinewidth": 0,
            "tickformat": ".1%",
        },
        xgap=1.5,
        ygap=1.5,
        hoverongaps=False,
        hovertemplate="%{customdata}: %{z:.1%}<extra></extra>",
    )
    drawn.update_xaxes(title_text="head", type="category", showgrid=False)
    drawn.update_yaxes(title_text="layer", dtick=1 if n_layers <= 16 else 5, showgrid=False)
    return drawn
