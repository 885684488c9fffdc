"""What shows an interval: error bars on a mark, and the band around a line."""

from collections.abc import Iterable

import pandas as pd


def error_bars(
    value: pd.Series, low: pd.Series, high: pd.Series, colour: str | None = None, *, thickness: int | float, width: int | float
) -> dict[str, object]:
    """Plotly's `error_x` or `error_y` for bars from `low` to `high`: none where a bound is missing.

    They have the mark's colour by default; `thickness` and `width` (of the caps) are in pixels.
    """
    bars: dict[str, object] = {
        "type": "data",
        "symmetric": False,
        "array": list((high - value).fillna(0)),
        "arrayminus": list((value - low).fillna(0)),
        "thickness": thickness,
        "width": width,
    }
    return bars if colour is None else bars | {"color": colour}


def interval_band(x: Iterable[object], low: Iterable[float], high: Iterable[float], colour: str) -> dict[str, object]:
    """A scatter trace that fills what lies between two lines, without an edge, a hover text or an entry in the legend."""
    xs = list(x)
    return {
        "x": [*xs, *reversed(xs)],
        "y": [*high, *reversed(list(low))],
        "fill": "toself",
        "fillcolor": colour,
        "mode": "lines",
        "line": {"width": 0},
        "hoverinfo": "skip",
        "showlegend": False,
    }
