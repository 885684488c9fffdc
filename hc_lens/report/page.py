"""A study's report: one self-contained HTML page, and the same in Markdown."""

import re
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from plotly.offline import get_plotlyjs

from hc_lens.atomic import atomic_path
from hc_lens.report import tables
from hc_lens.report.inputs import ReportInputs
from hc_lens.report.reading import headline, read
from hc_lens.report.sections import Section, sections

_CHART = {"displayModeBar": False, "responsive": True}
_MARKDOWN = re.compile(r"([\\`*_\[\]<>|#~$])")
_UNBREAKABLE = re.compile(r"(?<=\d) (?=%)|(?<=\bp) (?=[=<])|(?<=\bp =) ")


def write_report(inputs: ReportInputs, directory: Path) -> Path:
    """Write `report.html`, one page that needs no network, and `report.md` into a directory; returns the page's path.

    Both are written atomically. Texts from the data are escaped.

    Raises:
        OSError: naming the file, when it cannot be written; nothing half-written stays.
    """
    for name, render in (("report.md", markdown), ("report.html", html)):
        with atomic_path(directory / name) as temporary:
            temporary.write_text(render(inputs), encoding="utf-8")
    return directory / "report.html"


def html(inputs: ReportInputs) -> str:
    """The report as a self-contained HTML page."""
    return _render("report.html.j2", inputs, autoescape=True, plotly_js=get_plotlyjs())


def markdown(inputs: ReportInputs) -> str:
    """The report as Markdown, with each figure's numbers as a table."""
    return _render("report.md.j2", inputs, autoescape=False)


def _render(template: str, inputs: ReportInputs, *, autoescape: bool, plotly_js: str = "") -> str:
    environment = Environment(
        loader=PackageLoader("hc_lens.report"),
        autoescape=autoescape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"chart": _chart, "set_type": _set_type, "md": _escape_markdown}
    findings = read(inputs)
    return environment.get_template(template).render(
        inputs=inputs,
        findings=findings,
        headline=headline(findings),
        sections=sections(inputs, findings),
        run=_run_facts(inputs),
        provenance=tables.settings_table("Versions, data and machine", inputs.provenance),
        config=tables.settings_table("Configuration", inputs.config),
        plotly_js=plotly_js,
    )


def _run_facts(inputs: ReportInputs) -> list[tuple[str, str]]:
    """What was run, as counted in the tables."""
    rows = inputs.full.groupby("group")["n"].sum() if "n" in inputs.full.columns else {}
    cases = [
        (len(inputs.cases(group)), where, rows.get(group)) for group, where in (("ID", "in-domain"), ("OOD", "out of domain"))
    ]
    told = [f"{number} {where}" + ("" if n is None else f" ({int(n):,} rows)") for number, where, n in cases]
    facts = [("Cases", ", ".join(told))]
    for share, runs in inputs.by_sparsity.items():
        seeds = sorted({int(seed) for seed in runs["seed"].dropna()})
        named = f", {_seeds(seeds)}" if seeds else ""
        facts.append((f"{100 * share:.0f} % sparsity", f"{runs['subnetwork'].nunique()} subnetworks{named}"))
    return facts


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


def _chart(section: Section) -> str:
    """A figure as an HTML fragment for the page's one copy of plotly.js; plotly escapes its JSON for the script element."""
    return section.figure.to_html(
        full_html=False,
        include_plotlyjs=False,
        div_id=f"figure-{section.anchor}",
        default_width="100%",
        default_height=f"{section.figure.layout.height}px",
        config=_CHART,
    )


def _set_type(text: str) -> str:
    """Keep a number and its percent sign, and a p-value, on one line."""
    return _UNBREAKABLE.sub("\N{NARROW NO-BREAK SPACE}", text)


def _escape_markdown(text: object) -> str:
    """A text from the data inside a line of Markdown: markup is shown, not obeyed; line breaks become spaces."""
    return _MARKDOWN.sub(r"\\\1", " ".join(str(text).split()))
