"""`hc-lens report`: the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hc_lens.cli import output
from hc_lens.cli.options import RunPaths, at_least_one, parse
from hc_lens.cli.origin import finetuned_of
from hc_lens.stages import open_pruned, report_inputs


@dataclass(frozen=True)
class Arguments:
    """Write report.html, one self-contained page, and report.md from evaluated pruning runs."""

    runs: RunPaths
    """Evaluated pruning runs of one model, the first with its core (and, if it was run, ablation)."""
    title: str = "Which subnetworks generalize?"
    """The page's heading."""
    out: Path | None = None
    """Where to write; into the first run by default."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Write the report."""
    args = parse(Arguments, "report", words)

    pruned = [open_pruned(path) for path in at_least_one(args.runs, "report")]

    from hc_lens.report import study_article, write_article

    inputs = report_inputs(pruned, title=args.title, finetuned=finetuned_of(pruned[0].run))
    article = study_article(inputs)
    page = write_article(article, args.out or args.runs[0])
    output.headline(page, article.answer)
