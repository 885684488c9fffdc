"""Accuracy figures: how it grows over fine-tuning, and how subnetworks scatter over the cases."""

import pandas as pd
import plotly.graph_objects as go

from hc_lens.figures.style import (
    BAND,
    FAINT,
    ID_COLOUR,
    INK,
    OOD_COLOUR,
    PALETTE,
    SYMBOLS,
    figure,
    percent,
    pitch,
    text,
    wrapped,
)
from hc_lens.tables import require

_FEW = 7  # with at most this many out-of-domain cases each gets a colour; beyond, thin lines and their mean
_DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot", "5px,2px,1px,2px")
_GROUPS = {"ID": "In-domain", "OOD": "Out of domain"}


def training_curves(checkpoints: pd.DataFrame) -> go.Figure:
    """Accuracy over the checkpoints of fine-tuning, in-domain against out of domain.

    Few out-of-domain cases have a colour and a legend entry each; many are thin lines around their mean.

    Args:
        checkpoints: one row per checkpoint and case: `step`, `case`, `group` ("ID" or "OOD"), `accuracy` (0..1).

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(checkpoints, ("step", "case", "group", "accuracy"), "training_curves")
    drawn = figure(height=400)
    ood_cases = list(dict.fromkeys(checkpoints.loc[checkpoints["group"] == "OOD", "case"]))
    many = len(ood_cases) > _FEW
    for (group, case), rows in checkpoints.sort_values("step", kind="stable").groupby(["group", "case"], sort=False):
        rank = ood_cases.index(case) if group == "OOD" else 0
        colour = ID_COLOUR if group == "ID" else OOD_COLOUR if many else PALETTE[rank]
        thin = many and group == "OOD"
        drawn.add_scatter(
            x=list(rows["step"]),
            y=list(rows["accuracy"]),
            name=text(case) + (" (in-domain)" if group == "ID" else ""),
            mode="lines" if thin else "lines+markers",
            line={
                "color": colour,
                "width": 1 if thin else 3 if group == "ID" else 2,
                "dash": _DASHES[rank] if group == "OOD" and not many else "solid",
            },
            marker={"size": 5},
            opacity=0.35 if thin else 1,
            showlegend=not thin,
            hovertemplate=f"{text(case)}<br>step %{{x}}: %{{y:.1%}}<extra></extra>",
        )
    if many:
        mean = checkpoints[checkpoints["group"] == "OOD"].groupby("step")["accuracy"].mean()
        drawn.add_scatter(
            x=list(mean.index),
            y=list(mean),
            name=f"mean of {len(ood_cases)} out-of-domain cases (thin: each case)",
            mode="lines+markers",
            line={"color": OOD_COLOUR, "width": 3},
            hovertemplate="out-of-domain mean<br>step %{x}: %{y:.1%}<extra></extra>",
        )
    drawn.update_xaxes(title_text="fine-tuning step", rangemode="tozero")
    drawn.update_yaxes(title_text="accuracy", tickformat=".0%", range=[-0.02, 1.04])
    return drawn


def strip(evaluation: pd.DataFrame) -> go.Figure:
    """Every subnetwork's accuracy on every case: one row per case, one mark per subnetwork, a bar for the full model.

    Sparsities differ in colour, symbol and height within the row; the faint line joins the least and the most accurate one.
    Intervals (`low`, `high`) are in the hover text.

    Args:
        evaluation: one row per subnetwork and case, the full model included as `subnetwork == "full"`: `subnetwork`, `seed`,
            `sparsity` (share of units removed, 0..1; the `target` column is used in its place where there is one, so that
            runs that realise 0.48 and 0.53 of a target of 0.5 stay together), `case`, `group` ("ID" or "OOD"), `accuracy`,
            `low`, `high` (0..1).

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(evaluation, ("subnetwork", "seed", "sparsity", "case", "group", "accuracy", "low", "high"), "strip")
    places, ticks = _rows_of_cases(evaluation)
    full = evaluation[evaluation["subnetwork"] == "full"]
    pruned = evaluation[evaluation["subnetwork"] != "full"]
    by = "target" if "target" in pruned.columns else "sparsity"
    sparsities = sorted(pruned[by].unique())
    drawn = figure(height=90 + pitch(ticks.values(), max(30, 16 * len(sparsities))) * len(ticks))
    for rank, sparsity in enumerate(sparsities):
        offset = (rank - (len(sparsities) - 1) / 2) * 0.8 / max(len(sparsities), 1)
        _add_sparsity(drawn, pruned[pruned[by] == sparsity], float(sparsity), rank, offset, places)
    drawn.add_scatter(
        x=list(full["accuracy"]),
        y=[places[case] for case in full["case"]],
        name="full model",
        mode="markers",
        marker={"symbol": "line-ns", "size": 20, "line": {"width": 3, "color": INK}, "color": INK},
        customdata=full[["case", "low", "high"]].map(_safe).to_numpy().tolist(),
        hovertemplate="full model<br>%{customdata[0]}: %{x:.1%}"
        "<br>95 % interval %{customdata[1]} to %{customdata[2]}<extra></extra>",
    )
    drawn.update_xaxes(title_text="accuracy", tickformat=".0%", range=[-0.02, 1.02])
    bottom = max(ticks) + 0.6
    drawn.update_yaxes(tickvals=list(ticks), ticktext=list(ticks.values()), range=[bottom, -0.6], showgrid=False)
    for place in places.values():
        drawn.add_hline(y=place, line={"color": FAINT, "width": 1}, layer="below")
    return drawn


def _rows_of_cases(evaluation: pd.DataFrame) -> tuple[dict[str, int], dict[int, str]]:
    """Where each case stands, and the label of each row: a heading per group, then its cases in the table's order."""
    places: dict[str, int] = {}
    ticks: dict[int, str] = {}
    for group, heading in _GROUPS.items():
        cases = list(dict.fromkeys(evaluation.loc[evaluation["group"] == group, "case"]))
        if cases:
            ticks[len(ticks)] = f"<b>{heading}</b>"
        for case in cases:
            places[case] = len(ticks)
            ticks[len(ticks)] = wrapped(case)
    return places, ticks


def _add_sparsity(
    drawn: go.Figure, rows: pd.DataFrame, sparsity: float, rank: int, offset: float, places: dict[str, int]
) -> None:
    colour = PALETTE[rank % len(PALETTE)]
    spans = rows.groupby("case", sort=False)["accuracy"].agg(["min", "max"])
    drawn.add_scatter(
        x=[x for low, high in zip(spans["min"], spans["max"], strict=True) for x in (low, high, None)],
        y=[y for case in spans.index for y in (places[case] + offset, places[case] + offset, None)],
        mode="lines",
        line={"color": BAND, "width": 2},
        showlegend=False,
        hoverinfo="skip",
    )
    drawn.add_scatter(
        x=list(rows["accuracy"]),
        y=[places[case] + offset for case in rows["case"]],
        name=f"subnetworks at {percent(sparsity)} sparsity",
        mode="markers",
        marker={
            "color": colour,
            "symbol": SYMBOLS[rank % len(SYMBOLS)],
            "size": 9,
            "opacity": 0.65,
            "line": {"width": 1, "color": "white"},
        },
        customdata=rows[["subnetwork", "case", "low", "high"]].map(_safe).to_numpy().tolist(),
        hovertemplate="%{customdata[0]}, " + percent(sparsity) + " sparsity<br>%{customdata[1]}: %{x:.1%}"
        "<br>95 % interval %{customdata[2]} to %{customdata[3]}<extra></extra>",
    )


def _safe(value: object) -> str:
    return f"{value:.1%}" if isinstance(value, float) else text(value)
