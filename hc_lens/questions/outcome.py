"""Did every pruning run go as asked?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import report
from hc_lens.prose import counted, sparsity
from hc_lens.questions.question import Answer, Question

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample


@dataclass(frozen=True)
class Outcome(Question):
    """What pruning warned of: seeds that collapsed, missed targets, undecided gates."""

    name: ClassVar[str] = "outcome"
    tables: ClassVar[tuple[str, ...]] = ()

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        return {}

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        told = {
            "warnings": tuple(text for each in run.pruned for text in each.warnings),
            "collapsed": {each.config.sparsity: each.collapse for each in run.pruned if each.collapse},
        }
        return Answer(self, {}, told)

    def kept(self, run: Subject) -> Answer | None:
        return self.ask(run) if run.pruned else None

    def findings(self, answer: Answer) -> list[report.Finding]:
        return [_clean(answer)]


def _clean(answer: Answer) -> report.Finding:
    """Whether every pruning run reached its target with decided gates."""
    warnings, collapsed = answer.options["warnings"], answer.options["collapsed"]
    question = "Did every pruning run go as asked?"
    rule = (
        "A run is warned of if its trained sparsity, before the last cut to exact size, is more than 5 points off its "
        "target, or if more than 10 % of its gates are neither open nor closed (|a| < 1.6). A seed collapses, and gives no "
        "subnetwork, if all its gates end open or all closed."
    )
    if not warnings:
        sentence = "No run missed its target sparsity, and none left more than a tenth of its gates undecided."
        return report.Finding("clean", question, "yes", "every pruning run went as asked", sentence, rule)
    number = counted(len(warnings), "warning")
    lost = [f"at {sparsity(share)} {told}" for share, told in collapsed.items()]
    without = f" {report.heading('; '.join(lost))}. Every finding is of the others." if lost else ""
    sentence = f"Pruning gave {number}, listed under the findings; what rests on those runs is to be taken with care.{without}"
    return report.Finding("clean", question, "no", f"pruning gave {number}", sentence, rule)
