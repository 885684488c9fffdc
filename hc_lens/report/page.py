"""An article as one self-contained HTML page, and the same in Markdown."""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from plotly.offline import get_plotlyjs

from hc_lens.atomic import atomic_path
from hc_lens.report.article import Article, Section
from hc_lens.report.cells import settings_table
from hc_lens.report.findings import heading

_CHART = {"displayModeBar": False, "responsive": True}
_USUAL_HEIGHT = 450  # of a figure that says nothing of its height: plotly's own
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CODE = re.compile(r"`([^`\n]+)`")
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~$])")
_UNBREAKABLE = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<])|(?<=\bp =) ")


def write_article(article: Article, directory: Path, name: str = "report") -> Path:
    """Write `name.html`, one page that needs no network, and `name.md` into a directory; returns the page's path.

    Both are written atomically. Texts from the data are escaped.

    Raises:
        ValueError: if the name is not that of a file: letters, digits, dots, underscores and hyphens.
        OSError: naming the file, when it cannot be written; nothing half-written stays.
    """
    if not _NAME.fullmatch(name):
        raise ValueError(f"the report's name is {name!r}; allowed are letters, digits, and . _ - after the first")
    page = directory / f"{name}.html"
    for path, text in ((directory / f"{name}.md", markdown(article, page.name)), (page, html(article))):
        with atomic_path(path) as temporary:
            temporary.write_text(text, encoding="utf-8")
    return page


def html(article: Article) -> str:
    """The article as a self-contained HTML page; plotly.js is in it once if there is a figure, else not at all."""
    drawn = any(section.figure is not None for section in article.sections)
    return _render("report.html.j2", article, autoescape=True, plotly_js=get_plotlyjs() if drawn else "")


def fragment(short: str, sections: Sequence[Section]) -> str:
    """Sections as a piece of HTML for a notebook's cell: the short answer, then figures and open tables."""
    parts = [f"<p><b>{escape(heading(short))}.</b></p>"]
    for section in sections:
        if section.figure is not None:
            parts.append(section.figure.to_html(full_html=False, include_plotlyjs="cdn", config=_CHART))
        for table in section.shown:
            frame = pd.DataFrame(table.rows, columns=list(table.columns))
            parts.append(f"<p>{escape(table.title)}</p>{frame.to_html(index=False, border=0)}")
        parts.append(f"<p><small>{escape(section.caption)}</small></p>")
    return "".join(parts)


def markdown(article: Article, page: str = "report.html") -> str:
    """The article as Markdown, each figure's numbers as tables; `page` is the file that has the figures."""
    return _render("report.md.j2", article, autoescape=False, page=page)


def _render(template: str, article: Article, *, autoescape: bool, **more: str) -> str:
    environment = Environment(
        loader=PackageLoader("hc_lens.report"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "chart": _chart,
        "set_type": _set_type,
        "prose": _prose,
        "md": _escape_markdown,
        "md_prose": _prose_in_markdown,
    }
    settings = (("Versions, data and machine", article.provenance), ("Configuration", article.config))
    tables = [settings_table(title, values) for title, values in settings if values]
    return environment.get_template(template).render(article=article, settings=tables, **more)


def _chart(section: Section) -> str:
    """A figure as an HTML fragment for the page's one copy of plotly.js; plotly escapes its JSON for the script element."""
    figure = section.figure
    if figure is None:
        return ""
    return figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{section.anchor}",
        default_width="100%",
        default_height=f"{figure.layout.height or _USUAL_HEIGHT}px",
        config=_CHART,
    )


def _set_type(text: str) -> str:
    """Keep a number and its percent sign, and a p-value, on one line."""
    return _UNBREAKABLE.sub("\N{NARROW NO-BREAK SPACE}", text)


def _prose(text: str) -> Markup:
    """A sentence for the page: escaped, then names in backticks as code."""
    return Markup(_CODE.sub(r"<code>\1</code>", str(escape(_set_type(text)))))


def _prose_in_markdown(text: str) -> str:
    """A sentence for Markdown: escaped, but for names in backticks, in which Markdown obeys nothing."""
    pieces = _CODE.split(" ".join(text.split()))
    return "".join(f"`{piece}`" if place % 2 else _escape_markdown_in_place(piece) for place, piece in enumerate(pieces))


def _escape_markdown(text: object) -> str:
    """A text from the data inside a line of Markdown: markup is shown, not obeyed; line breaks become spaces."""
    return _escape_markdown_in_place(" ".join(str(text).split()))


def _escape_markdown_in_place(line: str) -> str:
    return _MARKDOWN.sub(r"\\\1", line)
