"""What each head mostly attends to, and the scores of chosen heads against their baselines."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, cast

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import error_bars
from hc_lens.figures.style import BAND, FAINT, INK, MUTED, PALETTE, SYMBOLS, TEMPLATE, figure, outline_heads, text
from hc_lens.tables import require
from hc_lens.units import Head

PROFILES = {
    "overlap": (PALETTE[1], "same word, other sentence"),
    "previous": (PALETTE[2], "previous token"),
    "next": (PALETTE[4], "next token"),
    "separator": (PALETTE[0], "separator"),
    "first": (PALETTE[5], "first token"),
    "self": (PALETTE[3], "itself"),
    "mixed": (FAINT, "mixed"),
}
"""Colour and name of each profile."""

_MOST_CASES = 4


def head_profiles(profiles: pd.DataFrame, core: Collection[Head] = ()) -> go.Figure:
    """What every head mostly attends to, layers upwards: a colour per profile, its score as text, core heads outlined.

    Args:
        profiles: one row per head, as `AttentionScores.profiles()` gives it: `layer`, `head` (both from 0), `profile` (a key of
            `PROFILES`), `relation`, `score`, `low`, `high`, `baseline` (0..1).
        core: the heads to outline.

    Raises:
        ValueError: if a column is missing, the table is empty, or a profile is unknown.
    """
    require(profiles, ("layer", "head", "profile", "relation", "score", "low", "high", "baseline"), "head_profiles")
    if unknown := sorted(set(profiles["profile"]) - set(PROFILES)):
        raise ValueError(f"head_profiles knows the profiles {list(PROFILES)}, not {unknown[0]!r}")
    n_layers, n_heads = int(profiles["layer"].max()) + 1, int(profiles["head"].max()) + 1
    drawn = figure(height=110 + 34 * n_layers)
    for name, (colour, told) in PROFILES.items():
        rows = profiles[profiles["profile"] == name]
        if rows.empty:
            continue
        values = np.full((n_layers, n_heads), np.nan)
        written = np.full((n_layers, n_heads), "", dtype=object)
        hover = np.full((n_layers, n_heads), "", dtype=object)
        for row in cast("list[dict[str, Any]]", rows.to_dict("records")):
            at = row["layer"], row["head"]
            values[at], hover[at] = 1, _evidence(row)
            written[at] = "" if name == "mixed" else f"{row['score']:.2f}"
        drawn.add_heatmap(
            z=values.tolist(),
            text=written.tolist(),
            texttemplate="%{text}",
            textfont={"size": 11, "color": INK if name in ("next", "first", "self", "mixed") else "white"},
            customdata=hover.tolist(),
            colorscale=[[0, colour], [1, colour]],
            showscale=False,
            xgap=2,
            ygap=2,
            hoverongaps=False,
            hovertemplate="%{customdata}<extra></extra>",
        )
        drawn.add_scatter(
            x=[None],
            y=[None],
            mode="markers",
            name=f"{told} ({len(rows)})",
            marker={"symbol": "square", "size": 12, "color": colour, "line": {"width": 1, "color": BAND}},
        )
    outline_heads(drawn, core, INK)
    if core:
        line = {"symbol": "square-open", "size": 12, "color": INK, "line": {"width": 2.5}}
        drawn.add_scatter(x=[None], y=[None], mode="markers", name="core", marker=line)
    drawn.update_xaxes(title_text="head", dtick=1, showgrid=False, range=[-0.6, n_heads - 0.4])
    drawn.update_yaxes(title_text="layer", dtick=1, showgrid=False, range=[-0.6, n_layers - 0.4])
    return drawn


def attention_dots(table: pd.DataFrame, heads: Sequence[Head]) -> go.Figure:
    """Scores of chosen heads with their intervals: a row per head, a panel per relation, a colour per case.

    The bar is the score of a head that attends evenly; the hollow mark is the score on shuffled pairs.

    Args:
        table: `AttentionScores.table()`: `case`, `layer`, `head`, `relation`, `score`, `low`, `high` (its interval; missing
            where there is none), `uniform`, `shuffled` (0..1; missing where it was not measured). At most four cases.
        heads: the rows, from the top.

    Raises:
        ValueError: if a column is missing, the table has nothing about these heads, or it has too many cases.
    """
    require(table, ("case", "layer", "head", "relation", "score", "low", "high", "uniform", "shuffled"), "attention_dots")
    places = {head: place for place, head in enumerate(dict.fromkeys(heads))}
    named = [Head(int(layer), int(head)) for layer, head in zip(table["layer"], table["head"], strict=True)]
    shown = table.assign(place=[places.get(head, -1) for head in named])
    shown = shown[(shown["place"] >= 0) & shown["relation"].isin(PROFILES)]
    if shown.empty:
        raise ValueError(
            f"attention_dots: the table has no scores of {', '.join(map(str, heads)) or 'any head: none was chosen'}"
        )
    cases = list(dict.fromkeys(shown["case"]))
    if len(cases) > _MOST_CASES:
        raise ValueError(f"attention_dots shows at most {_MOST_CASES} cases, the table has {len(cases)}: choose, or pool them")
    relations = [name for name in PROFILES if name in set(shown["relation"])]
    titles = [f"<b>{PROFILES[name][1].replace(', ', ',<br>')}</b>" for name in relations]
    drawn = make_subplots(rows=1, cols=len(relations), shared_yaxes=True, horizontal_spacing=0.02, subplot_titles=titles)
    for column, relation in enumerate(relations, start=1):
        for rank, case in enumerate(cases):
            rows = shown[(shown["relation"] == relation) & (shown["case"] == case)]
            offset = (rank - (len(cases) - 1) / 2) * 0.7 / len(cases)
            _add_scores(drawn, rows, rank, offset, column)
    pitch = max(26, 16 * len(cases))
    drawn.update_layout(
        template=TEMPLATE,
        height=140 + pitch * len(places),
        margin={"t": 84},
        legend={"yref": "container", "y": 0.995, "yanchor": "top"},
    )
    drawn.update_annotations(font={"size": 12, "color": INK})
    most = float(np.nanmax(shown[["score", "high", "shuffled", "uniform"]].to_numpy(dtype=np.float64)))
    drawn.update_xaxes(range=[-0.03 * most, 1.06 * most], nticks=4, rangemode="tozero")
    drawn.update_xaxes(title_text="share of attention", row=1, col=(len(relations) + 1) // 2)
    drawn.update_yaxes(
        tickvals=list(places.values()),
        ticktext=[str(head) for head in places],
        range=[len(places) - 0.5, -0.5],
        gridcolor=FAINT,
    )
    return drawn


def _evidence(row: Mapping[str, Any]) -> str:
    """A head's profile and the numbers behind it, as hover text."""
    lead = "mixed; most to" if row["profile"] == "mixed" else "mostly"
    interval = f" ({row['low']:.3f} to {row['high']:.3f})" if pd.notna(row["low"]) else ""
    told = f"{Head(row['layer'], row['head'])}: {lead} {PROFILES[row['relation']][1]}"
    return f"{told}<br>{row['score']:.3f}{interval}, baseline {row['baseline']:.3f}"


def _add_scores(drawn: go.Figure, rows: pd.DataFrame, rank: int, offset: float, column: int) -> None:
    places = [place + offset for place in rows["place"]]
    colour = PALETTE[rank]
    case = text(rows["case"].iloc[0]) if len(rows) else ""
    shared = {"y": places, "mode": "markers", "legendgroup": str(rank), "row": 1, "col": column}
    drawn.add_scatter(
        x=list(rows["uniform"]),
        name="even attention",
        marker={"symbol": "line-ns", "size": 11, "line": {"width": 2, "color": MUTED}},
        showlegend=column == 1 and rank == 0,
        hovertemplate=case + ": even attention %{x:.3f}<extra></extra>",
        **(shared | {"legendgroup": "even"}),
    )
    drawn.add_scatter(
        x=list(rows["shuffled"]),
        name="shuffled pairs",
        marker={"symbol": f"{SYMBOLS[rank]}-open", "size": 8, "color": colour, "line": {"width": 1.3}},
        showlegend=column == 1 and rank == 0,
        hovertemplate=case + ": shuffled pairs %{x:.3f}<extra></extra>",
        **(shared | {"legendgroup": "shuffled"}),
    )
    drawn.add_scatter(
        x=list(rows["score"]),
        name=case,
        marker={"symbol": SYMBOLS[rank], "size": 8, "color": colour},
        error_x=error_bars(rows["score"], rows["low"], rows["high"], colour, thickness=1.5, width=3),
        showlegend=column == 1,
        customdata=rows[["low", "high"]].to_numpy().tolist(),
        hovertemplate=case + ": %{x:.3f} (%{customdata[0]:.3f} to %{customdata[1]:.3f})<extra></extra>",
        **shared,
    )
