"""`hc-lens evaluate`: the full model and its subnetworks on every case."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hc_lens.cli import output
from hc_lens.cli.ask import arguments_of, opened, require_cases
from hc_lens.cli.options import at_least_one, parse
from hc_lens.questions import Accuracy

if TYPE_CHECKING:
    import pandas as pd


def main(words: Sequence[str]) -> None:
    """Evaluate each run on its own, and leave the tables in it."""
    args = parse(arguments_of(Accuracy), "evaluate", words)
    paths = at_least_one(args.runs, "evaluate")
    runs = [opened([path], args.common.device) for path in paths]
    tables: list[pd.DataFrame] = []
    for path, run in zip(paths, runs, strict=True):
        require_cases(run, args.rows.case)
        answer = run.ask(args.question, args.rows.sample())
        output.answer(answer, None)
        tables.append(answer["evaluation"].assign(run=str(path)))
        output.headline(run.home.path / "evaluation", "; ".join(filter(None, [answer.short, run.first.collapse])))
    if args.common.out is not None:
        import pandas as pd

        output.keep(pd.concat(tables, ignore_index=True), args.common.out, "evaluation")
