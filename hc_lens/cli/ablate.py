"""`hc-lens ablate`: what heads do alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import tyro

from hc_lens.cli import output
from hc_lens.cli.ask import SampleChoice, opened, require_cases
from hc_lens.cli.options import Computing, RunPath, parse
from hc_lens.limits import Natural
from hc_lens.questions import Ablation, Dependence, Estimate, Greedy, Pairs, Removal
from hc_lens.questions.question import Question


@dataclass(frozen=True)
class Arguments:
    """Mean-ablate every head of the full model alone, and the core together: what it costs on ID and OOD cases."""

    run: RunPath
    """A pruning run whose core was found, or any pruning run with --heads."""
    question: tyro.conf.OmitArgPrefixes[Ablation] = field(default_factory=Ablation)
    estimate: bool = False
    """Estimate what every head and MLP costs from one backward pass, and how well that ranks the heads."""
    pairs: bool = False
    """Ablate every pair: which heads make up for each other, in domain and out of domain."""
    greedy: Natural = 0
    """Grow a set of so many heads, each time by the one that costs most out of domain; 0 for none."""
    greedy_from: Literal["core", "all"] = "core"
    """Heads that --greedy chooses from: the core (or --heads), or all of the model."""
    removal: bool = False
    """Remove the heads from every subnetwork of the run, too: does the full model lose more out of domain?"""
    dependence: bool = False
    """How much the output of every later head changes without them."""
    rows: tyro.conf.OmitArgPrefixes[SampleChoice] = field(default_factory=lambda: SampleChoice.of(Ablation))
    common: tyro.conf.OmitArgPrefixes[Computing] = field(default_factory=Computing)

    def questions(self) -> list[Question]:
        """What is asked: the ablation, and what else was named."""
        heads, controls = self.question.heads, self.question.controls
        named: list[tuple[object, Question]] = [
            (True, self.question),
            (self.estimate, Estimate()),
            (self.pairs, Pairs(heads, controls)),
            (self.greedy, Greedy(max(1, self.greedy), self.greedy_from, heads, controls=controls)),
            (self.removal, Removal(heads)),
            (self.dependence, Dependence(heads, controls)),
        ]
        return [question for asked, question in named if asked]


def main(words: Sequence[str]) -> None:
    """Ablate, and leave the tables in the run."""
    args = parse(Arguments, "ablate", words)
    run = opened([args.run], args.common.device)
    require_cases(run, args.rows.case)
    told: list[str] = []
    for question in args.questions():
        answer = run.ask(question, args.rows.sample())
        output.answer(answer, args.common.out)
        told.append(answer.short)
    output.headline(args.run, "; ".join(told))
