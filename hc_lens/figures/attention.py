"""What the tokens of one sentence pair attend to, in heads to choose from."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go
from jaxtyping import Bool

from hc_lens.figures.style import BAND, INK, MUTED, PALETTE, figure, text
from hc_lens.tables import require
from hc_lens.units import Head

_WEIGHTS = ((0.0, "#f7f9fb"), (0.08, "#cfe0ee"), (0.25, "#86b3d3"), (0.55, "#2f7fb5"), (1.0, "#08406b"))
"""Blues that tell small weights apart: of forty tokens, each gets 0.025 on average."""

_SENTENCE = {-1: MUTED, 0: INK, 1: PALETTE[0]}
_MATCH = PALETTE[1]

_PATTERN_COLUMNS = (
    "layer",
    "head",
    "query",
    "key",
    "query_token",
    "key_token",
    "query_sentence",
    "key_sentence",
    "same_word",
    "weight",
)


def attention_map(pattern: pd.DataFrame) -> go.Figure:
    """What every token of a sentence pair attends to, one head at a time: queries downwards, keys to the right.

    Several heads are chosen from by a menu. Labels of the second sentence are blue, those of special tokens grey; lines mark
    where the sentences end and begin; pieces of equal words in different sentences are outlined. All heads share one scale.

    Args:
        pattern: one row per head, query and key, as `attention_pattern` gives it: `layer`, `head` (both from 0), `query`,
            `key` (positions), `query_token`, `key_token`, `query_sentence`, `key_sentence` (0, 1, or -1 for neither),
            `same_word` (bool), `weight` (0..1).

    Raises:
        ValueError: if a column is missing, the table is empty, or a head lacks some (query, key) or has it twice.
    """
    require(pattern, _PATTERN_COLUMNS, "attention_map")
    heads = [Head(int(layer), int(head)) for layer, head in pattern[["layer", "head"]].drop_duplicates().to_numpy().tolist()]
    labels, sentences = _tokens(pattern)
    n = len(labels)
    cell = min(24, max(10, 760 // n))
    margin = 14 + 7 * max(map(len, labels))
    drawn = figure(height=cell * n + margin + 90)
    # As wide as the square needs: a wider figure would leave its menu and its scale far away.
    drawn.update_layout(width=cell * n + margin + 190, autosize=False)
    names = [[(query, key) for key in labels] for query in labels]
    for rank, head in enumerate(heads):
        rows = pattern[(pattern["layer"] == head.layer) & (pattern["head"] == head.index)]
        drawn.add_heatmap(
            z=_grid(rows, "weight", n, head).round(4).tolist(),
            customdata=names,
            coloraxis="coloraxis",
            xgap=1,
            ygap=1,
            name=str(head),
            visible=rank == 0,
            hovertemplate=f"{head}: <b>%{{customdata[0]}}</b> attends to <b>%{{customdata[1]}}</b>"
            "<br>weight %{z:.3f}<extra></extra>",
        )
    first = pattern[(pattern["layer"] == heads[0].layer) & (pattern["head"] == heads[0].index)]
    _add_outlines(drawn, _grid(first, "same_word", n, heads[0]).astype(bool))
    _add_boundaries(drawn, sentences)
    ticks = [
        f'<span style="color:{_SENTENCE[sentence]}">{label}</span>' for label, sentence in zip(labels, sentences, strict=True)
    ]
    axis = {
        "tickvals": list(range(n)),
        "ticktext": ticks,
        "showgrid": False,
        "ticks": "",
        "tickfont": {"size": min(12, cell - 1)},
        "constrain": "domain",
    }
    drawn.update_layout(
        xaxis=axis | {"side": "top", "tickangle": -90, "range": [-0.5, n - 0.5], "title": {"text": "attended to (key)"}},
        yaxis=axis | {"scaleanchor": "x", "range": [n - 0.5, -0.5], "title": {"text": "attending token (query)"}},
    )
    _add_menu(drawn, heads)
    return drawn


def _tokens(pattern: pd.DataFrame) -> tuple[list[str], list[int]]:
    """Labels and sentences of the positions, in order."""
    queries = pattern[["query", "query_token", "query_sentence"]].drop_duplicates("query").sort_values("query")
    return [text(token) for token in queries["query_token"]], queries["query_sentence"].tolist()


def _grid(rows: pd.DataFrame, column: str, n: int, head: Head) -> np.ndarray:
    """A column as queries x keys."""
    cells = set(zip(rows["query"], rows["key"], strict=True))
    if len(rows) != n * n or cells != {(query, key) for query in range(n) for key in range(n)}:
        raise ValueError(f"attention_map needs one row per query and key of 0..{n - 1}; {head} has {len(rows)} rows")
    values = rows[column].to_numpy()
    grid = np.empty((n, n), dtype=values.dtype)
    grid[rows["query"], rows["key"]] = values
    return grid


def _add_outlines(drawn: go.Figure, same: Bool[np.ndarray, "query key"]) -> None:
    """A line around every block of cells whose tokens are pieces of equal words."""
    padded = np.pad(same, 1)
    x: list[float | None] = []
    y: list[float | None] = []
    for query, key in np.argwhere(same).tolist():
        for down, right, ends in (
            (-1, 0, ((-0.5, -0.5), (0.5, -0.5))),
            (1, 0, ((-0.5, 0.5), (0.5, 0.5))),
            (0, -1, ((-0.5, -0.5), (-0.5, 0.5))),
            (0, 1, ((0.5, -0.5), (0.5, 0.5))),
        ):
            if not padded[query + 1 + down, key + 1 + right]:
                x += [*(key + dx for dx, _ in ends), None]
                y += [*(query + dy for _, dy in ends), None]
    drawn.add_scatter(
        x=x, y=y, mode="lines", line={"color": _MATCH, "width": 2}, name="same word in the other sentence", hoverinfo="skip",
        showlegend=bool(x),
    )  # fmt: skip


def _add_boundaries(drawn: go.Figure, sentences: Sequence[int]) -> None:
    """Lines between the sentences and what stands between and around them."""
    n = len(sentences)
    for at in (at for at in range(1, n) if sentences[at] != sentences[at - 1]):
        for line in (
            {"x0": at - 0.5, "x1": at - 0.5, "y0": -0.5, "y1": n - 0.5},
            {"x0": -0.5, "x1": n - 0.5, "y0": at - 0.5, "y1": at - 0.5},
        ):
            drawn.add_shape(type="line", line={"color": MUTED, "width": 1}, **line)


def _add_menu(drawn: go.Figure, heads: Sequence[Head]) -> None:
    buttons = [
        {
            "label": f"head {head}",
            "method": "restyle",
            "args": [{"visible": [other == head for other in heads]}, list(range(len(heads)))],
        }
        for head in heads
    ]
    drawn.update_layout(
        updatemenus=[
            {
                "buttons": buttons,
                "x": 1.02,  # above the colour bar: everywhere else are labels
                "xanchor": "left",
                "y": 1,
                "yanchor": "top",
                "bgcolor": "white",
                "bordercolor": BAND,
            }
        ],
        legend={"x": 0.5, "xanchor": "center", "y": 0, "yanchor": "top"},
        coloraxis={
            "cmin": 0,
            "cmax": 1,
            "colorscale": _WEIGHTS,
            "colorbar": {
                "title": {"text": "share of the<br>query's attention", "font": {"size": 12}},
                "tickfont": {"size": 11},
                "thickness": 12,
                "len": 0.6,
                "outlinewidth": 0,
            },
        },
    )
