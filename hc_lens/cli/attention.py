"""`hc-lens attention`: what heads attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tyro

from hc_lens.cli import output
from hc_lens.cli.ask import SampleChoice, opened, require_cases
from hc_lens.cli.options import Computing, RunPath, parse
from hc_lens.questions import Attention, AttentionMap

_QUESTION = (
    "Which tokens of a sentence pair do the heads attend to: equal words in the other sentence, neighbours, separators, or "
    "themselves?"
)


@dataclass(frozen=True)
class Arguments:
    """What each head of the full model attends to: the same word in the other sentence, its neighbours, separators, itself."""

    run: RunPath
    """A pruning run whose core was found, or any pruning run with --heads."""
    pair: tuple[str, str] | None = None
    """Two sentences whose attention is drawn token by token; by default a pair of the data."""
    question: tyro.conf.OmitArgPrefixes[Attention] = field(default_factory=Attention)
    rows: tyro.conf.OmitArgPrefixes[SampleChoice] = field(default_factory=lambda: SampleChoice.of(Attention))
    common: tyro.conf.OmitArgPrefixes[Computing] = field(default_factory=Computing)


def main(words: Sequence[str]) -> None:
    """Measure, and leave the tables and a page of figures in the run."""
    args = parse(Arguments, "attention", words)
    run, sample = opened([args.run], args.common.device), args.rows.sample()
    require_cases(run, args.rows.case)
    answers = [run.ask(args.question, sample), run.ask(AttentionMap(args.question.heads, args.pair), sample)]
    output.answer(answers[0], args.common.out)

    from hc_lens.questions.page import article
    from hc_lens.report import write_article

    told = article(answers, title="What heads attend to", question=_QUESTION, provenance=dict(run.home.provenance))
    output.say(f"figures in {write_article(told, run.home.path, 'attention')}")
    output.headline(args.run, answers[0].short)
