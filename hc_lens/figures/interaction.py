"""Figure of pairs: what two heads cost together beyond what each costs alone."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.style import DIVERGING, FAINT, FONT, INK, MUTED, TEMPLATE, wrapped
from hc_lens.tables import require
from hc_lens.units import parse

_SCALES = {"accuracy": ("accuracy", ".0%", ""), "margin": ("margin", "", "nats"), "metric": ("metric", "", "")}

_Row = Mapping[Hashable, Any]
"""A row of a table."""

INTERACTION_COLUMNS = (
    *("a", "b", "case", "scale", "effect_a", "effect_b", "interaction", "low", "high", "floor_limited"),
    *("control_low", "control_high"),
)
"""What `interaction_matrix` needs of `interactions`."""


def interaction_matrix(table: pd.DataFrame, cases: Sequence[str] = ("ID mean", "OOD mean"), scale: str = "margin") -> go.Figure:
    """What each pair of heads costs beyond the sum of its two heads, one panel per case, one colour scale for all.

    Orange: together they cost more than one by one; blue: less. Below the diagonal, since pairs have no order; on it, in grey,
    what each head costs alone.

    Args:
        table: of `hc_lens.analysis.interactions`: one row per pair, case and scale, with `INTERACTION_COLUMNS`. A star marks a
            pair whose interval excludes zero and that lies outside the central 95 % of its random pairs (where there are any),
            a dagger one whose interaction the floor of accuracy hides.
        cases: the places beside each other; those that the table lacks are left out.
        scale: "margin" (nats), "accuracy" (shown in points) or "metric".

    Raises:
        ValueError: if a column is missing, or the table has none of the cases in this scale.
    """
    require(table, INTERACTION_COLUMNS, "interaction_matrix")
    shown = [table[(table["case"] == case) & (table["scale"] == scale)] for case in cases]
    if not any(map(len, shown)):
        raise ValueError(
            f"interaction_matrix finds none of {list(cases)} in {scale!r}: the table has the cases "
            f"{list(dict.fromkeys(table['case']))} and the scales {list(dict.fromkeys(table['scale']))}"
        )
    shown = [rows for rows in shown if len(rows)]
    heads = sorted({*table["a"], *table["b"]}, key=parse)
    titles = [f"<b>{wrapped(rows['case'].iloc[0], 40)}</b>" for rows in shown]
    drawn = make_subplots(rows=1, cols=len(shown), subplot_titles=titles, shared_yaxes=True, horizontal_spacing=0.03)
    for column, rows in enumerate(shown, start=1):
        _add_pairs(drawn, rows, heads, scale, column)
    most = max(float(rows["interaction"].abs().max()) for rows in shown) or 1.0
    name, tickformat, unit = _SCALES[scale]
    drawn.update_layout(
        template=TEMPLATE,
        height=170 + 40 * len(heads),
        margin={"t": 34, "b": 96},
        coloraxis={
            "cmin": -most,
            "cmax": most,
            "colorscale": DIVERGING,
            "colorbar": {
                "title": {"text": f"{name} lost<br>beyond the sum<br>({unit})" if unit else f"{name} lost<br>beyond the sum"}
                | {"font": {"size": 12}},
                "tickfont": {"size": 11},
                "tickformat": tickformat,
                "thickness": 12,
                "outlinewidth": 0,
            },
        },
    )
    drawn.update_annotations(font={"size": 13, "color": INK})
    drawn.update_xaxes(showgrid=False, showline=False, tickangle=-45, ticks="", ticklabelstandoff=4)
    drawn.update_yaxes(showgrid=False, showline=False, ticks="", ticklabelstandoff=4, autorange="reversed")
    _add_note(drawn, _pairs_note(pd.concat(shown)), 66)
    return drawn


def _add_pairs(drawn: go.Figure, rows: pd.DataFrame, heads: Sequence[str], scale: str, column: int) -> None:
    place = {head: i for i, head in enumerate(heads)}
    size = len(heads)
    values, alone = np.full((size, size), np.nan), np.full((size, size), np.nan)
    written = np.full((size, size), "", dtype=object)
    hover = np.full((size, size), "", dtype=object)
    for row in rows.to_dict("records"):
        a, b = sorted((place[row["a"]], place[row["b"]]))
        values[b, a] = row["interaction"]
        written[b, a] = _written(row["interaction"], scale) + _marks(row)
        hover[b, a] = (
            f"{row['a']} and {row['b']}: {row['interaction']:+.3f}<br>95 % interval {row['low']:+.3f} to {row['high']:+.3f}"
            f"{_random_pairs(row)}<br>alone {row['effect_a']:.3f} and {row['effect_b']:.3f}"
        )
        for head, effect in ((row["a"], row["effect_a"]), (row["b"], row["effect_b"])):
            alone[place[head], place[head]] = effect
            written[place[head], place[head]] = _written(effect, scale)
            hover[place[head], place[head]] = f"{head} alone costs {effect:.3f}"
    for z, colours in (
        (alone, {"colorscale": ((0, FAINT), (1, FAINT)), "showscale": False}),
        (values, {"coloraxis": "coloraxis"}),
    ):
        here = ~np.isnan(z)
        drawn.add_heatmap(
            z=z.tolist(),
            x=list(heads),
            y=list(heads),
            text=np.where(here, written, "").tolist(),
            customdata=np.where(here, hover, "").tolist(),
            texttemplate="%{text}",
            textfont={"size": 11 if size <= 12 else 9, "family": FONT},
            hovertemplate="%{customdata}<extra></extra>",
            hoverongaps=False,
            xgap=1.5,
            ygap=1.5,
            row=1,
            col=column,
            **colours,
        )


def _written(value: float, scale: str) -> str:
    rounded = f"{100 * value:+.0f}" if scale == "accuracy" else f"{value:+.2f}"
    return rounded if float(rounded) else rounded.lstrip("+-")


def _stands_out(row: _Row) -> bool:
    apart = row["low"] > 0 or row["high"] < 0
    random = pd.notna(row["control_low"])
    return bool(apart and (not random or not row["control_low"] <= row["interaction"] <= row["control_high"]))


def _marks(row: _Row) -> str:
    return ("*" if _stands_out(row) else "") + ("†" if row["floor_limited"] else "")


def _random_pairs(row: _Row) -> str:
    if pd.isna(row["control_low"]):
        return ""
    return f"<br>random pairs {row['control_low']:+.3f} to {row['control_high']:+.3f}"


def _pairs_note(rows: pd.DataFrame) -> str:
    random = rows["control_low"].notna().any()
    parts = ["grey: the head alone"]
    parts.append("* 95 % interval without zero" + (", and outside 95 % of layer-matched random pairs" if random else ""))
    if rows["floor_limited"].any():
        parts.append("† hidden by the floor of accuracy")
    return "   ".join(parts)


def _add_note(drawn: go.Figure, note: str, below: int) -> None:
    drawn.add_annotation(
        text=note,
        xref="paper",
        yref="paper",
        x=0,
        y=0,
        yshift=-below,
        xanchor="left",
        yanchor="top",
        align="left",
        showarrow=False,
        font={"size": 12, "color": MUTED},
    )
