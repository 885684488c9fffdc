"""Figures of what in-context learners can do: accuracy by shot and by step, phases, and agreement with the algorithms."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from plotly.subplots import make_subplots

from hc_lens.figures.marks import error_bars
from hc_lens.figures.style import BAND, FAINT, INK, MUTED, PALETTE, TEMPLATE, figure, text
from hc_lens.modular.incontext.evaluation import PHASES, SETS
from hc_lens.tables import require

_COLOURS = dict(zip(map(str, SETS), (INK, PALETTE[0], PALETTE[4], PALETTE[1]), strict=True))
_DASHES = dict(zip(map(str, SETS), ("dot", "solid", "dot", "solid"), strict=True))
_PHASE_COLOURS = ("#eceff2", "#cfe0ee", "#56B4E9", "#E69F00", "#009E73")
_QUERIES = {
    "ratio matching": (PALETTE[0], "ratio matching answers"),
    "regression alone": (PALETTE[1], "regression alone answers"),
    "neither": (MUTED, "neither answers"),
}


def shot_curves(evaluation: pd.DataFrame, *, chance: float, ceilings: pd.DataFrame | None = None) -> go.Figure:
    """Accuracy on the four sets by how many examples came before the query; bars are 95 % intervals.

    Args:
        evaluation: one row per set and shot, as `accuracy_by_shot` gives it.
        chance: accuracy of guessing, a dotted line.
        ceilings: what each algorithm reaches where it is followed exactly: `algorithm`, `shot`, `share`; thin lines.

    Raises:
        ValueError: if a column is missing or a table is empty.
    """
    require(evaluation, ("tasks", "examples", "shot", "accuracy", "low", "high"), "shot_curves")
    drawn = figure(height=430)
    for of in SETS:
        rows = evaluation[(evaluation["tasks"] == of.tasks) & (evaluation["examples"] == of.examples)].sort_values("shot")
        if rows.empty:
            continue
        name = str(of)
        drawn.add_scatter(
            x=(rows["shot"] - 1).tolist(),
            y=rows["accuracy"].tolist(),
            name=name,
            mode="lines+markers",
            line={"color": _COLOURS[name], "width": 2.2, "dash": _DASHES[name]},
            marker={"size": 5},
            error_y=error_bars(rows["accuracy"], rows["low"], rows["high"], thickness=1, width=2),
            hovertemplate=f"{name}<br>after %{{x}} examples: %{{y:.1%}}<extra></extra>",
        )
    if ceilings is not None:
        _add_ceilings(drawn, ceilings)
    drawn.add_hline(y=chance, line={"color": MUTED, "width": 1, "dash": "dot"})
    drawn.add_annotation(x=1, y=chance, xref="paper", text="chance", showarrow=False, xanchor="right", yanchor="bottom")
    drawn.update_xaxes(title_text="examples before the query")
    drawn.update_yaxes(title_text="accuracy", tickformat=".0%", range=[-0.03, 1.05])
    return drawn


def _add_ceilings(drawn: go.Figure, ceilings: pd.DataFrame) -> None:
    require(ceilings, ("algorithm", "shot", "share"), "shot_curves")
    for (name, rows), dash in zip(ceilings.groupby("algorithm", sort=False), ("dash", "longdashdot"), strict=False):
        drawn.add_scatter(
            x=(rows["shot"] - 1).tolist(),
            y=rows["share"].tolist(),
            name=f"{text(name)}, exact",
            mode="lines",
            line={"color": MUTED, "width": 1.4, "dash": dash},
            hovertemplate=f"{text(name)} answers %{{y:.1%}} after %{{x}} examples<extra></extra>",
        )


def training_curves(runs: dict[str, pd.DataFrame], *, chance: float, threshold: float) -> go.Figure:
    """Accuracy at the last shot over training on the four sets, one panel per run: what comes when, and what is lost again.

    Args:
        runs: by name, in the order of the panels: `step`, `set`, `accuracy`, as `over_training` gives it.
        chance: accuracy of guessing, a dotted line; `threshold`: from where a set counts as solved, a dashed one.

    Raises:
        ValueError: if there is no run, a column is missing, or a table is empty.
    """
    if not runs:
        raise ValueError("training_curves needs at least one run, got none")
    columns = min(2, len(runs))
    n_rows = -(-len(runs) // columns)
    drawn = make_subplots(
        rows=n_rows,
        cols=columns,
        subplot_titles=[text(name) for name in runs],
        vertical_spacing=0.28 / n_rows,
        horizontal_spacing=0.08,
    )
    for place, (run, table) in enumerate(runs.items()):
        require(table, ("step", "set", "accuracy"), f"the table of training_curves, run {run!r}")
        row, column = place // columns + 1, place % columns + 1
        for name, colour in _COLOURS.items():
            rows = table[table["set"] == name].sort_values("step")
            drawn.add_scatter(
                x=rows["step"].tolist(),
                y=rows["accuracy"].tolist(),
                name=name,
                legendgroup=name,
                showlegend=place == 0,
                mode="lines",
                line={"color": colour, "width": 2, "dash": _DASHES[name]},
                hovertemplate=f"{name}<br>step %{{x}}: %{{y:.1%}}<extra></extra>",
                row=row,
                col=column,
            )
        for value, dash in ((chance, "dot"), (threshold, "dash")):
            line = {"color": MUTED, "width": 1, "dash": dash}
            drawn.add_hline(y=value, line=line, row=row, col=column)  # pyright: ignore[reportArgumentType]
    drawn.update_layout(template=TEMPLATE, height=90 + 250 * n_rows, margin={"t": 80})
    drawn.update_layout(legend={"y": 1 + 45 / (250 * n_rows)})
    drawn.update_annotations(font={"size": 12})
    drawn.update_yaxes(tickformat=".0%", range=[-0.03, 1.05])
    for column in range(1, columns + 1):
        drawn.update_xaxes(title_text="training step", row=n_rows, col=column)
    return drawn


def phase_map(phases: pd.DataFrame, *, rows: str, rows_title: str) -> go.Figure:
    """The phase of each setting: numbers of pre-training tasks to the right, something else upwards.

    Args:
        phases: one row per setting: `n_tasks`, the column named by `rows`, `phase`, and `accuracies`, a text for the hover.
        rows: the column that tells rows apart, such as `fraction`.
        rows_title: its title.

    Raises:
        ValueError: if a column is missing, the table is empty, or a phase is unknown.
    """
    require(phases, ("n_tasks", rows, "phase", "accuracies"), "phase_map")
    if unknown := sorted(set(phases["phase"]) - set(PHASES)):
        raise ValueError(f"phase_map: there is no phase {unknown[0]!r}; the phases are {list(PHASES)}")
    grid = phases.pivot(index=rows, columns="n_tasks", values="phase").sort_index()
    hover = phases.pivot(index=rows, columns="n_tasks", values="accuracies").reindex(grid.index)
    codes = grid.map(lambda phase: np.nan if pd.isna(phase) else PHASES.index(phase))
    drawn = figure(height=max(240, 130 + 52 * len(grid)))
    steps = len(PHASES)
    drawn.add_heatmap(
        z=codes.to_numpy(dtype=float).tolist(),
        x=[str(n) for n in grid.columns],
        y=[str(value) for value in grid.index],
        customdata=hover.fillna("").to_numpy().tolist(),
        zmin=-0.5,
        zmax=steps - 0.5,
        colorscale=[(edge / steps, colour) for i, colour in enumerate(_PHASE_COLOURS) for edge in (i, i + 1)],
        colorbar={
            "tickvals": list(range(steps)),
            "ticktext": list(PHASES),
            "thickness": 14,
            "outlinewidth": 0,
            "lenmode": "pixels",
            "len": 170,
        },
        xgap=2,
        ygap=2,
        hoverongaps=False,
        hovertemplate=f"%{{x}} tasks, {text(rows_title)} %{{y}}<br>%{{customdata}}<extra></extra>",
    )
    drawn.update_xaxes(title_text="tasks of pre-training", type="category", showgrid=False)
    drawn.update_yaxes(title_text=text(rows_title), type="category", showgrid=False)
    return drawn


def agreement_by_shot(agreement: pd.DataFrame, *, chance: float) -> go.Figure:
    """Agreement with the algorithms by shot, and how many queries each answers: what only regression answers tells them apart.

    Args:
        agreement: one row per shot and kind of query, as `agreement` gives it: `shot`, `queries`, `share`, `agreement`.
        chance: accuracy of guessing, a dotted line.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(agreement, ("shot", "queries", "share", "agreement"), "agreement_by_shot")
    titles = ("agreement, among these queries", "share of queries")
    drawn = make_subplots(rows=2, cols=1, shared_xaxes=True, subplot_titles=titles, row_heights=[0.62, 0.38])
    for queries, (colour, name) in _QUERIES.items():
        rows = agreement[agreement["queries"] == queries].sort_values("shot")
        for row, column in ((1, "agreement"), (2, "share")):
            drawn.add_scatter(
                x=(rows["shot"] - 1).tolist(),
                y=[None if np.isnan(value) else value for value in rows[column]],
                name=name,
                legendgroup=queries,
                showlegend=row == 1,
                mode="lines+markers",
                line={"color": colour, "width": 2},
                marker={"size": 5},
                hovertemplate=f"{name}<br>after %{{x}} examples: %{{y:.1%}}<extra></extra>",
                row=row,
                col=1,
            )
    drawn.add_hline(y=chance, line={"color": MUTED, "width": 1, "dash": "dot"}, row=1, col=1)  # pyright: ignore[reportArgumentType]
    drawn.update_layout(template=TEMPLATE, height=520, margin={"t": 80}, legend={"y": 1.08})
    drawn.update_annotations(font={"size": 12})
    drawn.update_yaxes(tickformat=".0%", range=[-0.04, 1.06])
    drawn.update_xaxes(title_text="examples before the query", row=2)
    return drawn


def query_map(grid: pd.DataFrame, *, contexts: Sequence[int]) -> go.Figure:
    """All p^2 queries after the same examples: which the model answers, and which ratio matching answers; a panel per number.

    Args:
        grid: one row per number of examples and query: `examples`, `x`, `y`, `correct`, `ratio`, `shown` (is an example).
        contexts: the numbers of examples, in the order of the panels.

    Raises:
        ValueError: if a column is missing or the table is empty.
    """
    require(grid, ("examples", "x", "y", "correct", "ratio", "shown"), "query_map")
    kinds = ("neither", "ratio matching only", "the model only", "both")
    colours = (FAINT, BAND, PALETTE[1], PALETTE[0])
    titles = [f"{n} example{'s' * (n != 1)}" for n in contexts]
    drawn = make_subplots(rows=1, cols=len(contexts), subplot_titles=titles, horizontal_spacing=0.05)
    for place, n in enumerate(contexts, start=1):
        rows = grid[grid["examples"] == n]
        kind = rows.assign(kind=rows["ratio"].astype(int) + 2 * rows["correct"].astype(int))
        table = kind.pivot(index="y", columns="x", values="kind")
        drawn.add_heatmap(
            z=table.to_numpy().tolist(),
            zmin=-0.5,
            zmax=3.5,
            colorscale=[(edge / 4, colour) for i, colour in enumerate(colours) for edge in (i, i + 1)],
            showscale=place == len(contexts),
            colorbar={"tickvals": [0, 1, 2, 3], "ticktext": [f"{k} right" for k in kinds], "thickness": 14, "outlinewidth": 0},
            xgap=1,
            ygap=1,
            hovertemplate="x = %{x}, y = %{y}<extra></extra>",
            row=1,
            col=place,
        )
        shown = rows[rows["shown"]]
        marks = {"symbol": "circle-open", "size": 9, "color": INK, "line": {"width": 2}}
        drawn.add_scatter(
            x=shown["x"].tolist(),
            y=shown["y"].tolist(),
            mode="markers",
            marker=marks,
            showlegend=False,
            hovertemplate="an example: x = %{x}, y = %{y}<extra></extra>",
            row=1,
            col=place,
        )
    drawn.update_layout(template=TEMPLATE, height=380)
    drawn.update_annotations(font={"size": 12})
    drawn.update_xaxes(title_text="x", showgrid=False)
    drawn.update_yaxes(showgrid=False)
    drawn.update_yaxes(title_text="y", col=1)
    return drawn
