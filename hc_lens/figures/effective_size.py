"""Figures of sparsity grids: how small a faithful subnetwork is over fine-tuning, and accuracy against sparsity."""

from typing import NamedTuple

import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import interval_band
from hc_lens.figures.style import ID_COLOUR, INK, MUTED, OOD_COLOUR, PALETTE, TEMPLATE, percent, wrapped
from hc_lens.tables import require


class _Look(NamedTuple):
    """How a set of cases is called and drawn."""

    label: str
    colour: str
    symbol: str
    dash: str = "solid"
    rank: int = 0


_SETS = {
    "mixed": _Look("mixed", PALETTE[0], "square", "dot", 3),
    "ID": _Look("in-domain", ID_COLOUR, "circle", rank=1),
    "OOD": _Look("out of domain", OOD_COLOUR, "diamond", rank=2),
}

_PANEL, _GAP, _EDGES = 170, 74, 130
"""Pixels: the height of a panel, between panels (for the next titles), and above and below all."""


def effective_size_curves(table: pd.DataFrame) -> go.Figure:
    """The size of the smallest faithful subnetwork over fine-tuning, above the full model's accuracy.

    The bands are the table's intervals; the mixed set's is in the hover text. An open mark says that the full model is at the
    floor there: within the tolerance of zero, so that even a subnetwork that is always wrong is faithful. A "≤" says that some
    seed's size is the smallest of the grid.

    Args:
        table: as `hc_lens.effective_size` returns, of one semantics, curve and tolerance: `step`, `set` ("ID", "OOD", "mixed"),
            `size`, `low`, `high` (%, NaN where unknown), `n`, `full` (0..1), `floor`, `bound`, `semantics`, `curve` and
            `tolerance`.

    Raises:
        ValueError: if a column is missing, the table is empty, or it holds several semantics, curves or tolerances.
    """
    columns = ("step", "set", "size", "low", "high", "n", "full", "floor", "bound", "semantics", "curve", "tolerance")
    require(table, columns, "effective_size_curves")
    kinds = table[["semantics", "curve", "tolerance"]].drop_duplicates()
    if len(kinds) > 1:
        raise ValueError(
            f"effective_size_curves draws one semantics, curve and tolerance; the table holds {len(kinds)}: choose"
        )
    semantics, curve = str(table["semantics"].iloc[0]), str(table["curve"].iloc[0])
    tolerance = float(table["tolerance"].iloc[0])
    drawn = make_subplots(rows=2, cols=1, shared_xaxes=True, row_heights=[0.66, 0.34], vertical_spacing=0.06)
    drawn.update_layout(template=TEMPLATE, height=560, margin={"t": 70})
    for name, look in _SETS.items():
        rows = table[table["set"] == name].sort_values("step")
        if not rows.empty:
            _add_sizes(drawn, rows, look, band=name != "mixed")
            if name != "mixed":
                _add_full(drawn, rows, look)
    if table["floor"].any():
        _add_key(drawn, f"open: full model below {percent(tolerance)}, anything is faithful")
    intervals = "" if table["low"].isna().all() else f"; bands: 95 % over {int(table['n'].max())} seeds"
    _add_note(drawn, f"{semantics.replace('_', ' ')}, {curve} curve, tolerance {percent(tolerance)}{intervals}", 34)
    drawn.update_yaxes(title_text="effective size (units kept)", ticksuffix=" %", range=[0, 104], dtick=25, row=1, col=1)
    drawn.update_yaxes(title_text="accuracy of<br>full model", tickformat=".0%", range=[-0.04, 1.04], dtick=0.5, row=2, col=1)
    drawn.update_xaxes(title_text="fine-tuning step", row=2, col=1)
    return drawn


def _add_sizes(drawn: go.Figure, rows: pd.DataFrame, look: _Look, band: bool) -> None:
    if band:
        known = rows.dropna(subset=["low", "high"])
        drawn.add_scatter(**interval_band(known["step"], known["low"], known["high"], look.colour), opacity=0.16, row=1, col=1)
    drawn.add_scatter(
        x=list(rows["step"]),
        y=list(rows["size"]),
        name=look.label,
        legendgroup=look.label,
        legendrank=look.rank,
        mode="lines+markers+text",
        text=["≤" if bound else "" for bound in rows["bound"]],
        textposition="bottom center" if band else "middle right",
        textfont={"color": look.colour, "size": 15},
        line={"color": look.colour, "width": 2.5 if band else 2, "dash": look.dash},
        marker={
            "symbol": look.symbol,
            "size": 9 if band else 6,
            "color": ["white" if floor else look.colour for floor in rows["floor"]],
            "line": {"width": 2, "color": look.colour},
        },
        customdata=[_told(*row) for row in zip(rows["low"], rows["high"], rows["n"], rows["bound"], strict=True)],
        hovertemplate=f"{look.label}, step %{{x}}: %{{y:.1f}} %%{{customdata}}<extra></extra>",
        row=1,
        col=1,
    )


def _told(low: float, high: float, n: int, bound: bool) -> str:
    """The interval, and what limits the size, for the hover text."""
    interval = "" if pd.isna(low) else f"<br>95 % interval {low:.1f} to {high:.1f}"
    return f"{interval}<br>{n} seeds" + ("<br>at most: the grid ends here" if bound else "")


def _add_full(drawn: go.Figure, rows: pd.DataFrame, look: _Look) -> None:
    drawn.add_scatter(
        x=list(rows["step"]),
        y=list(rows["full"]),
        name=look.label,
        legendgroup=look.label,
        showlegend=False,
        mode="lines+markers",
        line={"color": look.colour, "width": 2},
        marker={"symbol": look.symbol, "size": 6},
        hovertemplate=f"full model {look.label}, step %{{x}}: %{{y:.1%}}<extra></extra>",
        row=2,
        col=1,
    )


def _add_key(drawn: go.Figure, label: str) -> None:
    """A legend entry that stands for marks drawn elsewhere."""
    marker = {"symbol": "circle-open", "size": 9, "color": MUTED, "line": {"width": 2}}
    drawn.add_scatter(x=[None], y=[None], mode="markers", name=label, marker=marker, row=1, col=1)


def _add_note(drawn: go.Figure, note: str, above: int) -> None:
    """What lines and bands mean, so many pixels above the upper left panel."""
    font = {"size": 12, "color": MUTED}
    place = {"x": 0, "y": 1, "xref": "paper", "yref": "paper", "xanchor": "left", "yanchor": "bottom"}
    drawn.add_annotation(text=note, showarrow=False, yshift=above, font=font, **place)


def accuracy_vs_sparsity(table: pd.DataFrame, columns: int = 4) -> go.Figure:
    """Accuracy of subnetworks against their sparsity, a panel per case: dark in-domain, coloured out of domain.

    The line is the mean over seeds, the band reaches from the least to the most accurate one, dashes are the full model.
    Where a group has several cases, its mean over them has a panel of its own, first.

    Args:
        table: one row per subnetwork and case, the full model included as `subnetwork == "full"`: `subnetwork`, `seed`,
            `target` (share of units removed, 0..1), `case`, `group` ("ID" or "OOD"), `accuracy` (0..1; NaN for a failed run).
        columns: panels beside each other.

    Raises:
        ValueError: if a column is missing, the table is empty, or a subnetwork and case come twice (several checkpoints, say).
    """
    require(table, ("subnetwork", "seed", "target", "case", "group", "accuracy"), "accuracy_vs_sparsity")
    if (twice := table.duplicated(["subnetwork", "target", "case"])).any():
        row = table[twice].iloc[0]
        raise ValueError(
            f"accuracy_vs_sparsity needs one row per subnetwork, target and case; {row['subnetwork']} on {row['case']} "
            "has several: choose a checkpoint"
        )
    panels = _panels(table)
    columns = min(columns, len(panels))
    n_rows = -(-len(panels) // columns)
    height = _EDGES + n_rows * _PANEL + (n_rows - 1) * _GAP
    drawn = make_subplots(
        rows=n_rows,
        cols=columns,
        shared_xaxes=True,
        shared_yaxes=True,
        horizontal_spacing=0.03,
        vertical_spacing=_GAP / (height - _EDGES) if n_rows > 1 else 0,
        subplot_titles=[panel.title for panel in panels],
    )
    drawn.update_layout(template=TEMPLATE, height=height, margin={"t": 78}, showlegend=False)
    drawn.update_annotations(font={"size": 12, "color": INK})
    _add_note(drawn, "line: mean over seeds; band: least to most accurate seed; dashes: full model", 48)
    for index, panel in enumerate(panels):
        _add_panel(drawn, panel, 1 + index // columns, 1 + index % columns)
        last = index + columns >= len(panels)
        drawn.update_xaxes(showticklabels=last, row=1 + index // columns, col=1 + index % columns)
        if last:
            drawn.update_xaxes(title_text="sparsity", row=1 + index // columns, col=1 + index % columns)
    drawn.update_xaxes(tickformat=".0%", range=[0, 1.04 * float(table["target"].max())])
    drawn.update_yaxes(tickformat=".0%", range=[-0.04, 1.04], dtick=0.5)
    drawn.update_yaxes(title_text="accuracy", col=1)
    return drawn


class _Panel(NamedTuple):
    """One panel: its title, the look of its group, and a row per subnetwork."""

    title: str
    look: _Look
    rows: pd.DataFrame


def _panels(table: pd.DataFrame) -> list[_Panel]:
    """The mean of each group that has several cases, then the cases, in-domain first."""
    means: list[_Panel] = []
    single: list[_Panel] = []
    for group in ("ID", "OOD"):
        rows = table[table["group"] == group]
        cases = list(dict.fromkeys(rows["case"]))
        look = _SETS[group]
        if len(cases) > 1:
            # Without every case a run has no mean: the mean over the others is of something else.
            wide = rows.pivot(index=["subnetwork", "target"], columns="case", values="accuracy")
            mean = wide.mean(axis=1, skipna=False).rename("accuracy").reset_index()
            means.append(_Panel(f"<b>{look.label}: mean of {len(cases)}</b>", look, mean))
        single += [_Panel(wrapped(case, 26), look, rows[rows["case"] == case]) for case in cases]
    return means + single


def _add_panel(drawn: go.Figure, panel: _Panel, row: int, column: int) -> None:
    whole = panel.rows["subnetwork"] == "full"
    over = panel.rows[~whole].groupby("target")["accuracy"].agg(["mean", "min", "max", "count"])
    known = over.dropna()  # the line has a gap where no seed gave a subnetwork
    drawn.add_scatter(
        **interval_band(known.index, known["min"], known["max"], panel.look.colour), opacity=0.16, row=row, col=column
    )
    for accuracy in panel.rows.loc[whole, "accuracy"]:
        drawn.add_scatter(
            x=[0, 1],
            y=[float(accuracy)] * 2,
            mode="lines",
            line={"color": MUTED, "width": 1.5, "dash": "dash"},
            hovertemplate="full model: %{y:.1%}<extra></extra>",
            row=row,
            col=column,
        )
    drawn.add_scatter(
        x=list(over.index),
        y=list(over["mean"]),
        mode="lines+markers",
        line={"color": panel.look.colour, "width": 2.5},
        marker={"size": 6},
        customdata=over[["min", "max", "count"]].to_numpy().tolist(),
        hovertemplate="%{x:.0%} sparsity: %{y:.1%}<br>%{customdata[2]} seeds, %{customdata[0]:.1%} to %{customdata[1]:.1%}"
        "<extra></extra>",
        row=row,
        col=column,
    )
