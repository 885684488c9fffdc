"""Figure of a set that grows head by head: what it costs together, in domain and out of domain."""

import pandas as pd
import plotly.graph_objects as go

from hc_lens.figures.marks import error_bars, interval_band
from hc_lens.figures.style import BAND, ID_COLOUR, MUTED, OOD_COLOUR, figure, text
from hc_lens.tables import require

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
        _add_random(drawn, random)
    for case, label, colour, symbol, aside in (
        ("ID mean", "in domain", ID_COLOUR, "square", -0.02),
        ("OOD mean", "out of domain", OOD_COLOUR, "circle", 0.02),
    ):
        rows = shown[shown["case"] == case]
        if len(rows):
            _add_path(drawn, rows, label, colour, symbol, aside)
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


def _add_random(drawn: go.Figure, rows: pd.DataFrame) -> None:
    shade = interval_band(rows["size"], rows["control_low"], rows["control_high"], BAND)
    named = {"name": "random sets, out of domain (95 %)", "showlegend": None, "line": {"width": 0, "color": BAND}}
    drawn.add_scatter(**shade | named)


def _add_path(drawn: go.Figure, rows: pd.DataFrame, label: str, colour: str, symbol: str, aside: float) -> None:
    drawn.add_scatter(
        x=[size + aside for size in rows["size"]],
        y=list(rows["joint"]),
        name=f"{label}, together",
        mode="lines+markers",
        line={"color": colour, "width": 2.5},
        marker={
            "symbol": [f"{symbol}-open" if limited else symbol for limited in rows["floor_limited"]],
            "size": 9,
            "line": {"width": 2, "color": colour},
        },
        error_y=error_bars(rows["joint"], rows["joint_low"], rows["joint_high"], colour, thickness=1.3, width=4),
        customdata=rows[["size", "joint_low", "joint_high", "summed"]].to_numpy().tolist(),
        hovertemplate=f"{label}, %{{customdata[0]}} heads: %{{y:.3f}}<br>95 % interval %{{customdata[1]:.3f}} to "
        "%{customdata[2]:.3f}<br>sum of singles %{customdata[3]:.3f}<extra></extra>",
    )
    drawn.add_scatter(
        x=[size + aside for size in rows["size"]],
        y=list(rows["summed"]),
        name=f"{label}, one by one",
        mode="lines",
        line={"color": colour, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )
