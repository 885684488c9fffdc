"""The look every figure shares: palette, template, and how names and numbers from the data are written."""

import html
from collections.abc import Iterable

import plotly.graph_objects as go

from hc_lens.units import Head

INK = "#1d2733"
MUTED = "#69737f"
FAINT = "#e4e8ec"
BAND = "#c9d0d8"

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7A5195")
"""Okabe and Ito's colours (2008), strongest first: told apart under the common colour-vision deficiencies."""

SYMBOLS = ("circle", "diamond", "square", "triangle-up", "pentagon", "star", "hexagon")
ID_COLOUR = INK
OOD_COLOUR = PALETTE[1]
BLUES = ((0.0, "#f7f9fb"), (0.25, "#cfe0ee"), (0.5, "#86b3d3"), (0.75, "#2f7fb5"), (1.0, "#08406b"))
DIVERGING = ((0.0, "#0b5394"), (0.25, "#7fb1d8"), (0.5, "#ffffff"), (0.75, "#eb9f6c"), (1.0, "#b34700"))

FONT = 'system-ui, -apple-system, "Segoe UI", "Helvetica Neue", "Liberation Sans", Arial, sans-serif'

_AXIS = {
    "gridcolor": FAINT,
    "linecolor": BAND,
    "tickcolor": BAND,
    "zeroline": False,
    "automargin": True,
    "title": {"font": {"size": 13, "color": MUTED}, "standoff": 10},
    "tickfont": {"size": 12},
}

TEMPLATE = go.layout.Template(
    layout={
        "font": {"family": FONT, "size": 13, "color": INK},
        "paper_bgcolor": "white",
        "plot_bgcolor": "white",
        "colorway": list(PALETTE),
        "margin": {"l": 10, "r": 16, "t": 44, "b": 10},
        "hoverlabel": {"bgcolor": "white", "bordercolor": BAND, "font": {"family": FONT, "size": 12, "color": INK}},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 1, "yanchor": "bottom", "font": {"size": 12}},
        "xaxis": _AXIS,
        "yaxis": _AXIS,
    }
)


def figure(height: int) -> go.Figure:
    """An empty figure, `height` pixels high and as wide as its container, with the shared look."""
    return go.Figure(layout={"template": TEMPLATE, "height": height, "autosize": True})


def text(value: object) -> str:
    """A name from the data as plotly text: markup in it is shown, not obeyed."""
    return html.escape(str(value), quote=False)


def wrapped(name: object, width: int = 30) -> str:
    """A long case name over several lines, escaped: broken after underscores, spaces and slashes, else anywhere."""
    lines = [""]
    for piece in _pieces(str(name), width):
        if lines[-1] and len(lines[-1]) + len(piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "<br>".join(text(line.rstrip()) for line in lines)


def pitch(labels: Iterable[str], least: int) -> int:
    """Pixels from one row to the next so that wrapped labels do not touch, at least `least`."""
    return max(least, 8 + 15 * (1 + max(label.count("<br>") for label in labels)))


def percent(share: float) -> str:
    """A share as a whole percentage, one decimal where it needs it: `50 %`, `69.4 %`."""
    return f"{100 * share:.1f}".removesuffix(".0") + " %"


def outline_heads(drawn: go.Figure, heads: Iterable[Head], colour: str, **panel: int) -> None:
    """A frame around these heads' cells of a heat map with heads to the right and layers upwards; `panel`: its row and col."""
    for head in heads:
        drawn.add_shape(
            type="rect",
            x0=head.index - 0.5,
            x1=head.index + 0.5,
            y0=head.layer - 0.5,
            y1=head.layer + 0.5,
            line={"color": colour, "width": 2.5},
            **panel,
        )


def _pieces(name: str, width: int) -> list[str]:
    pieces = [""]
    for letter in name:
        if len(pieces[-1]) == width:
            pieces.append("")
        pieces[-1] += letter
        if letter in "_ /":
            pieces.append("")
    return [piece for piece in pieces if piece]
