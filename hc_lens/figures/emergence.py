"""Figures of core emergence: how much of the final core each checkpoint holds, beside what the model can do by then."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import error_bars, interval_band
from hc_lens.figures.style import BAND, ID_COLOUR, INK, MUTED, OOD_COLOUR, PALETTE, TEMPLATE, percent, text
from hc_lens.tables import require


class _Line(NamedTuple):
    column: str
    name: str
    colour: str
    dash: str
    prefix: str


_RECALL = (
    _Line("recall", "core of all seeds", PALETTE[0], "solid", ""),
    _Line("held_out", "core of the other seeds", PALETTE[4], "dash", "held_out_"),
)
_SIMILAR = (
    _Line("rank", "rank correlation", PALETTE[6], "solid", "rank_"),
    _Line("jaccard_core", "Jaccard with the core", PALETTE[2], "dash", "jaccard_core_"),
    _Line("jaccard_final", "Jaccard with other seeds at the end", PALETTE[3], "dot", "jaccard_final_"),
)
_PANELS = ("Accuracy of the full model", "Recall of the final core", "Similarity to the final checkpoint")
_SHARES, _GAP = (0.3, 0.38, 0.32), 0.09
_STEPS = ("step", "recall", "low", "high", "held_out", "chance", "chance_low", "chance_high", "by_construction", "rank_p")


def emergence_curves(
    evaluations: pd.DataFrame,
    steps: pd.DataFrame,
    *,
    onset: int | None = None,
    level: float | None = None,
    cases: Sequence[str] = (),
) -> go.Figure:
    """When the core is there and when the model generalizes, over fine-tuning: accuracy above, recall and similarity below.

    Bands and whiskers are 95 % intervals over seeds; the grey band is what random subnetworks with as many heads in each layer
    recall. A hollow mark is so by construction: the core and the frequencies are the final checkpoint's own.

    Args:
        evaluations: the full model at every checkpoint: `step`, `case`, `group` ("ID" or "OOD"), `accuracy` (0..1).
        steps: `Emergence.steps`: one row per pruned checkpoint.
        onset: the step at which generalization sets in, marked through all panels.
        level: the accuracy that marks it.
        cases: those that the onset was judged on, if not all out-of-domain ones: their mean is then the strong line.

    Raises:
        ValueError: if a column is missing, a table is empty, or a case is not in it.
    """
    require(evaluations, ("step", "case", "group", "accuracy"), "emergence_curves")
    columns = [*_STEPS, *(name for line in (*_RECALL, *_SIMILAR) for name in (line.column, f"{line.prefix}low"))]
    require(steps, tuple(dict.fromkeys(columns)), "emergence_curves")
    drawn = make_subplots(rows=3, cols=1, shared_xaxes=True, vertical_spacing=_GAP, row_heights=list(_SHARES))
    _add_accuracy(drawn, evaluations, cases, level)
    table = steps.sort_values("step")
    _add_chance(drawn, table)
    for row, lines in ((2, _RECALL), (3, _SIMILAR)):
        for line in lines:
            _add_line(drawn, table, line, row)
    drawn.update_layout(template=TEMPLATE, height=820, margin={"t": 56, "r": 24})
    _place_titles_and_legends(drawn)
    if onset is not None:
        for row in range(1, 4):
            mark_step(drawn, onset, row, 1)
        _note(drawn, float(onset), 0.0, f"onset, step {onset}", xref="x", xanchor="left", yanchor="bottom", color=INK)
    drawn.update_yaxes(tickformat=".0%", range=[-0.04, 1.06], row=1)
    drawn.update_yaxes(tickformat=".0%", range=[-0.04, 1.06], row=2)
    lowest = table[[name for line in _SIMILAR for name in (line.column, f"{line.prefix}low")]].min().min()
    drawn.update_yaxes(range=[min(0.0, float(lowest)) - 0.05, 1.06], row=3)
    drawn.update_xaxes(title_text="fine-tuning step", row=3)
    return drawn


def _add_accuracy(drawn: go.Figure, evaluations: pd.DataFrame, cases: Sequence[str], level: float | None) -> None:
    if unknown := [case for case in cases if case not in set(evaluations["case"])]:
        raise ValueError(f"emergence_curves: no case {unknown[0]!r} was evaluated")
    groups = {group: list(dict.fromkeys(rows["case"])) for group, rows in evaluations.groupby("group", sort=False)}
    chosen = bool(cases) and set(cases) != set(groups.get("OOD", []))
    shown: list[tuple[str, list[str], str, str, float]] = []
    if inside := groups.get("ID", []):
        shown.append((_counted("in-domain", inside), inside, ID_COLOUR, "solid", 1.0))
    if outside := groups.get("OOD", []):
        faint = 0.45 if chosen else 1.0
        shown.append((_counted("out of domain", outside), outside, OOD_COLOUR, "dot" if chosen else "solid", faint))
    if chosen:
        shown.append((_counted("onset judged on", list(cases)), list(cases), OOD_COLOUR, "solid", 1.0))
    for name, members, colour, dash, opacity in shown:
        mean = evaluations[evaluations["case"].isin(members)].groupby("step")["accuracy"].mean().sort_index()
        drawn.add_scatter(
            x=list(mean.index),
            y=list(mean),
            name=name,
            mode="lines+markers",
            line={"color": colour, "width": 2.5, "dash": dash},
            marker={"size": 6},
            opacity=opacity,
            hovertemplate=f"{name}<br>step %{{x}}: %{{y:.1%}}<extra></extra>",
            row=1,
            col=1,
        )
    if level is not None:
        mark_value(drawn, level, 1, 1, dash="dot")
        _note(drawn, 1.0, level, f"level {percent(level)}", xref="x domain", xanchor="right", yanchor="top", color=MUTED)


def _note(drawn: go.Figure, x: float, y: float, words: str, *, xref: str, xanchor: str, yanchor: str, color: str) -> None:
    """Words in the first panel."""
    drawn.add_annotation(
        x=x,
        y=y,
        xref=xref,
        yref="y",
        text=words,
        showarrow=False,
        xanchor=xanchor,
        yanchor=yanchor,
        xshift=4 if xanchor == "left" else -4,
        font={"size": 11, "color": color},
    )


def _counted(name: str, cases: Sequence[str]) -> str:
    return f"{name}: {text(cases[0])}" if len(cases) == 1 else f"{name}, mean of {len(cases)} cases"


def _add_chance(drawn: go.Figure, table: pd.DataFrame) -> None:
    chance = interval_band(table["step"], table["chance_low"], table["chance_high"], _transparent(BAND, 0.45))
    drawn.add_scatter(**chance, legend="legend2", row=2, col=1)
    drawn.add_scatter(
        x=list(table["step"]),
        y=list(table["chance"]),
        name="chance",
        mode="lines",
        line={"color": MUTED, "width": 1.5, "dash": "dot"},
        customdata=[f"{low:.1%} to {high:.1%}" for low, high in zip(table["chance_low"], table["chance_high"], strict=True)],
        hovertemplate="chance<br>step %{x}: %{y:.1%} (95 %: %{customdata})<extra></extra>",
        legend="legend2",
        legendrank=1100,
        row=2,
        col=1,
    )


def _add_line(drawn: go.Figure, table: pd.DataFrame, line: _Line, row: int) -> None:
    low, high = f"{line.prefix}low", f"{line.prefix}high"
    rows = table[table[line.column].notna()]
    if rows.empty:
        return
    legend = f"legend{row}"
    solid = line.dash == "solid"
    known = rows[rows[low].notna()]
    if solid and not known.empty:
        shade = interval_band(known["step"], known[low], known[high], _transparent(line.colour, 0.15))
        drawn.add_scatter(**shade, legend=legend, row=row, col=1)
    hollow = {"recall": rows["by_construction"].astype(bool), "rank": rows["rank_p"].isna()}.get(
        line.column, [False] * len(rows)
    )
    drawn.add_scatter(
        x=list(rows["step"]),
        y=list(rows[line.column]),
        name=line.name,
        mode="lines+markers",
        line={"color": line.colour, "width": 2.5, "dash": line.dash},
        marker={
            "size": 7,
            "color": ["white" if is_hollow else line.colour for is_hollow in hollow],
            "line": {"color": line.colour, "width": 2},
        },
        # Bands of several lines over each other would hide which is whose.
        error_y=None if solid else error_bars(rows[line.column], rows[low], rows[high], thickness=1.2, width=3),
        customdata=[
            ("by construction" if is_hollow else "one seed: no interval" if pd.isna(a) else f"95 %: {a:.3f} to {b:.3f}")
            for a, b, is_hollow in zip(rows[low], rows[high], hollow, strict=True)
        ],
        hovertemplate=f"{line.name}<br>step %{{x}}: %{{y:.3f}} (%{{customdata}})<extra></extra>",
        legend=legend,
        row=row,
        col=1,
    )


def _transparent(colour: str, opacity: float) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{opacity})"


def _place_titles_and_legends(drawn: go.Figure) -> None:
    """Each panel's title at its left, and its legend beside the title, on one line."""
    top = 1.0
    for row, (title, share) in enumerate(zip(_PANELS, _SHARES, strict=True), start=1):
        legend = {"orientation": "h", "x": 1, "xanchor": "right", "y": top, "yanchor": "bottom", "font": {"size": 12}}
        drawn.update_layout({"legend" if row == 1 else f"legend{row}": legend})
        drawn.add_annotation(
            x=0,
            y=top,
            xref="paper",
            yref="paper",
            text=f"<b>{title}</b>",
            showarrow=False,
            xanchor="left",
            yanchor="bottom",
            font={"size": 13, "color": INK},
        )
        top -= share * (1 - 2 * _GAP) + _GAP


def mark_step(drawn: go.Figure, step: int, row: int, column: int, colour: str = INK) -> None:
    """A dashed vertical line through one panel."""
    line = {"color": colour, "width": 1.2, "dash": "dash"}
    drawn.add_shape(type="line", x0=step, x1=step, y0=0, y1=1, yref="y domain", line=line, row=row, col=column)


def mark_value(drawn: go.Figure, value: float, row: int, column: int, dash: str = "solid") -> None:
    """A thin horizontal line through one panel."""
    line = {"color": MUTED, "width": 1, "dash": dash}
    drawn.add_shape(type="line", y0=value, y1=value, x0=0, x1=1, xref="x domain", line=line, row=row, col=column)
