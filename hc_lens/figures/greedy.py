"""Figure of a set that grows head by head: what it costs together, in domain and out of domain."""

import pandas as pd
import plotly.graph_objects as go

from hc_lens.figures.style import BAND, ID_COLOUR, MUTED, OOD_COLOUR, figure, require, text

_SCALES = {"accuracy": ("accuracy lost", ".0%"), "margin": ("margin lost (nats)", "")}

GREEDY_COLUMNS = (
    *("size", "added", "case", "scale", "joint", "joint_low", "joint_high", "summed", "floor_limited"),
    *("control_low", "control_high"),
)
"""What `greedy_path` needs of `GreedyPath.table()`."""


def greedy_path(table: pd.DataFrame, scale: str = "margin") -> go.Figure:
    """What a growing set of heads costs in and out of domain, beside the sum of what its heads cost alone.

    Solid: the set ablated together, with its 95 % interval. Dashed: the sum of single effects. Grey: layer-matched random sets
    of the same size out of domain, central 95 %. A hollow mark is limited by the floor of accuracy.

    Args:
        table: of `GreedyPath.table()`, with `GREEDY_COLUMNS`; its rows "ID mean" and "OOD mean" are drawn.
        scale: "margin" or "accuracy".

    Raises:
        ValueError: if a column is missing, or there is no mean over cases in this scale.
    """
    require(table, GREEDY_COLUMNS, "greedy_path")
    shown = table[(table["scale"] == scale) & table["case"].isin(["ID mean", "OOD mean"])].sort_values("size")
    if shown.empty:
        raise ValueError(
            f"greedy_path draws 'ID mean' and 'OOD mean' in {scale!r}: the table has the cases "
            f"{list(dict.fromkeys(table['case']))} and the scales {list(dict.fromkeys(table['scale']))}"
        )
    drawn = figure(height=420)
    random = shown[(shown["case"] == "OOD mean") & shown["control_low"].notna()]
    if len(random):
        _add_band(drawn, random["size"], random["control_low"], random["control_high"], BAND, "random sets, OOD (95 %)")
    for case, label, colour, symbol in (
        ("ID mean", "in domain", ID_COLOUR, "square"),
        ("OOD mean", "out of domain", OOD_COLOUR, "circle"),
    ):
        rows = shown[shown["case"] == case]
        if len(rows):
            _add_path(drawn, rows, label, colour, symbol)
    steps = shown.drop_duplicates("size")
    title, tickformat = _SCALES[scale]
    drawn.update_xaxes(
        title_text="heads ablated, in the order in which they were added",
        tickvals=list(steps["size"]),
        ticktext=[
            f"{size}<br>{'+ ' if size > 1 else ''}{text(added)}"
            for size, added in zip(steps["size"], steps["added"], strict=True)
        ],
        showgrid=False,
    )
    drawn.update_yaxes(title_text=title, tickformat=tickformat, zeroline=True, zerolinecolor=MUTED, zerolinewidth=1)
    return drawn


def _add_band(drawn: go.Figure, x: pd.Series, low: pd.Series, high: pd.Series, colour: str, name: str = "") -> None:
    drawn.add_scatter(
        x=[*x, *reversed(list(x))],
        y=[*high, *reversed(list(low))],
        name=name,
        fill="toself",
        mode="lines",
        line={"width": 0, "color": colour},
        fillcolor=colour,
        opacity=0.45 if name else 0.16,
        showlegend=bool(name),
        hoverinfo="skip",
    )


def _add_path(drawn: go.Figure, rows: pd.DataFrame, label: str, colour: str, symbol: str) -> None:
    _add_band(drawn, rows["size"], rows["joint_low"], rows["joint_high"], colour)
    drawn.add_scatter(
        x=list(rows["size"]),
        y=list(rows["joint"]),
        name=f"{label}, together",
        mode="lines+markers",
        line={"color": colour, "width": 2.5},
        marker={
            "symbol": [f"{symbol}-open" if limited else symbol for limited in rows["floor_limited"]],
            "size": 9,
            "line": {"width": 2, "color": colour},
        },
        customdata=rows[["joint_low", "joint_high", "summed"]].to_numpy().tolist(),
        hovertemplate=f"{label}, %{{x}} heads: %{{y:.3f}}<br>95 % interval %{{customdata[0]:.3f}} to %{{customdata[1]:.3f}}"
        "<br>sum of singles %{customdata[2]:.3f}<extra></extra>",
    )
    drawn.add_scatter(
        x=list(rows["size"]),
        y=list(rows["summed"]),
        name=f"{label}, sum of singles",
        mode="lines",
        line={"color": colour, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )
