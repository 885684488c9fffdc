"""A report of any experiment as data: its question, its answer, the sections that show it, and what was run."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import plotly.graph_objects as go

from hc_lens.report.cells import TextTable
from hc_lens.report.findings import Finding

_ANCHOR = re.compile(r"[a-z][a-z0-9-]*")
_TAKEN = ("findings", "run")
_TAKEN_PREFIXES = ("finding-", "figure-")


@dataclass(frozen=True)
class Section:
    """One part of an article: a heading that says what it shows, how to read it, and the numbers behind it.

    Args:
        anchor: its name within the page's address: small letters, digits and hyphens.
        heading: what it shows, as a sentence without full stop.
        caption: how to read it; stands under the figure, or alone where there is none.
        figure: a plotly figure with the height to draw it in (`layout.height`); None for tables alone.
        shown: tables that are open.
        folded: tables that open on a click.
        width: the pixels below which the figure scrolls instead of shrinking, and beyond which it does not grow.

    Raises:
        ValueError: naming the section, if the anchor has other letters or is the page's own, the heading is empty, or the
            widths are not in order.
    """

    anchor: str
    heading: str
    caption: str
    figure: go.Figure | None = None
    shown: Sequence[TextTable] = ()
    folded: Sequence[TextTable] = ()
    width: tuple[int, int] = (0, 1100)

    def __post_init__(self) -> None:
        if not _ANCHOR.fullmatch(self.anchor):
            raise ValueError(f"section {self.anchor!r}: an anchor is made of small letters, digits and -, a letter first")
        if self.anchor in _TAKEN or self.anchor.startswith(_TAKEN_PREFIXES):
            raise ValueError(
                f"section {self.anchor!r}: the page itself uses {_TAKEN} and all that start with {_TAKEN_PREFIXES}"
            )
        if not self.heading.strip():
            raise ValueError(f"section {self.anchor!r} has no heading; it needs one that says what the section shows")
        if not 0 <= self.width[0] <= self.width[1]:
            raise ValueError(
                f"section {self.anchor!r}: width is {self.width}; it must be (least, most) with 0 <= least <= most"
            )


@dataclass(frozen=True)
class Article:
    """What the report of an experiment says and shows; `write_article` makes a page and Markdown of it.

    In sentences, also captions, a name in backticks is set as code; no other markup is obeyed.

    Args:
        title: heading of the page.
        question: what the experiment asks, one or two sentences.
        answer: what came out, with numbers and intervals: a sentence or two; several statements one a line.
        sections: the figures and tables, in the order of the argument.
        facts: what was run, as short names and values: `("Cases", "2 in-domain, 30 out of domain")`.
        warnings: what the runs warned of, one text each.
        notes: remarks to print with the run, one text each.
        provenance: versions, seeds, data and machine, as stored with the run (JSON values, nested as they come).
        config: the configuration of the experiment (JSON values, nested).
        findings: questions answered from the numbers by a rule that the page prints with them.

    Raises:
        ValueError: if title, question or answer is empty, or two sections or two findings have the same name.
    """

    title: str
    question: str
    answer: str
    sections: Sequence[Section]
    facts: Sequence[tuple[str, str]] = ()
    warnings: Sequence[str] = ()
    notes: Sequence[str] = ()
    provenance: Mapping[str, object] = field(default_factory=dict[str, object])
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    findings: Sequence[Finding] = ()

    def __post_init__(self) -> None:
        for name in ("title", "question", "answer"):
            if not str(getattr(self, name)).strip():
                raise ValueError(f"the article {self.title!r} has no {name}; it needs one")
        _unique(self.title, "sections with the anchor", [section.anchor for section in self.sections])
        _unique(self.title, "findings with the key", [finding.key for finding in self.findings])


def _unique(title: str, what: str, names: Sequence[str]) -> None:
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise ValueError(f"the article {title!r} has several {what} {', '.join(map(repr, twice))}; each must be its own")
