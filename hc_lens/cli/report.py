"""`hc-lens report`: the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hc_lens.cli import output
from hc_lens.cli.ask import opened
from hc_lens.cli.options import RunPaths, at_least_one, parse
from hc_lens.runs import Run


@dataclass(frozen=True)
class Arguments:
    """Write report.html, one self-contained page, and report.md of all that was asked of a run."""

    runs: RunPaths
    """Evaluated pruning runs of one model, the first with its core and whatever else was asked; or a fine-tuning run."""
    title: str = "Which subnetworks generalize?"
    """The page's heading."""
    out: Path | None = None
    """Where to write; into the first run by default."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Write the report."""
    args = parse(Arguments, "report", words)
    paths = at_least_one(args.runs, "report")
    run = opened(paths, "cpu", Run.open(paths[0]).kind)

    from hc_lens.questions.page import run_article
    from hc_lens.report import write_article

    article = run_article(run, title=args.title)
    output.headline(write_article(article, args.out or args.runs[0]), article.answer)
