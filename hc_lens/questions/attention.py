"""What do heads attend to: the same word in the other sentence, neighbours, separators, themselves?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from hc_lens import analysis, figures, report
from hc_lens.data.words import Matching
from hc_lens.questions.heads import Heads, heads_of
from hc_lens.questions.question import Answer, Question
from hc_lens.sample import Sample
from hc_lens.units import Head

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject

_EVIDENCE = ["head", "profile", "relation", "score", "low", "high", "baseline", "ratio", "shuffled", "runner_up"]
_FEW = 4
"""With as many cases each is drawn; more of them are pooled."""


@dataclass(frozen=True)
class Attention(Question):
    """What each head of the full model attends to: the same word in the other sentence, its neighbours, separators, itself."""

    heads: Heads = ()
    """Which heads to tell of, as L4.H0 L5.H2, in place of the core; all heads are measured."""
    words: Matching = "word"
    """What is compared between the sentences: whole words, or the text of each token."""

    name: ClassVar[str] = "attention"
    tables: ClassVar[tuple[str, ...]] = ("attention", "attention_groups", "profiles")
    sample: ClassVar[Sample] = Sample(200, batch_size=32)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        """As earlier versions kept them: precision only where it is not fp32."""
        options = {"cases": None} | super().options(run, sample) | {"words": self.words}
        return {name: value for name, value in options.items() if (name, value) != ("precision", "fp32")}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        found = analysis.attention_scores(run.model, run.task, sample, words=self.words)
        return {
            "attention": found.table(seed=sample.seed),
            "attention_groups": found.by_group().table(seed=sample.seed),
            "profiles": found.profiles(seed=sample.seed),
        }

    @property
    def _told(self) -> str:
        return "chosen" if self.heads else "core"

    def ask(self, run: Subject, sample: Sample | None = None) -> Answer:
        heads = heads_of(run, self.heads)  # refused before anything is measured
        return _told_of(super().ask(run, sample), heads)

    def kept(self, run: Subject) -> Answer | None:
        found = super().kept(run)
        core = run.home.file("core", "json").exists() if found is not None else False
        return _told_of(found, run.core.heads if core else ()) if found is not None else None

    def short(self, answer: Answer) -> str:
        """How many of the heads have which profile."""
        shown = _evidence(answer, _heads(answer))
        counted = [
            f"{len(rows)} {meaning} ({', '.join(rows['head'])})"
            for profile, (_, meaning) in figures.PROFILES.items()
            if len(rows := shown[shown["profile"] == profile])
        ]
        return f"of {len(shown)} {self._told} heads: {'; '.join(counted)}"

    def sections(self, answer: Answer) -> list[report.Section]:
        from hc_lens.analysis.profiles import FACTOR, MINIMUM

        heads, profiles = _heads(answer), answer["profiles"]
        scores = answer["attention" if answer["attention"]["case"].nunique() <= _FEW else "attention_groups"]
        drawn = scores[[Head(*at) in heads for at in zip(scores["layer"], scores["head"], strict=True)]]
        everyone = [Head(*at) for at in zip(profiles["layer"], profiles["head"], strict=True)]
        return [
            report.Section(
                "profiles",
                report.heading(answer.short),
                "A head is named after the relation with its largest score, if that is at least "
                f"{MINIMUM:g} and its interval lies above {FACTOR:g} times the baseline; else it is mixed. The baseline is "
                "even attention and, for equal words, what as many other words of the other sentence get.",
                figures.head_profiles(profiles, heads),
                shown=[
                    report.text_table(
                        _evidence(answer, heads), f"what the {self._told} heads mostly attend to, over all cases", labels=3
                    )
                ],
                folded=[report.text_table(_evidence(answer, everyone), "Every head's profile and its evidence", labels=3)],
            ),
            report.Section(
                "scores",
                "Attention scores against their baselines",
                "Share of a word's attention that goes to its targets, mean over the words that have one; intervals resample "
                "pairs. Bars: even attention to all visible tokens. Hollow: the same first sentences with the second sentences "
                "of other rows; only words that such a pair shares count there.",
                figures.attention_dots(scores, heads),
                folded=[report.text_table(drawn, "Scores of these heads", labels=3)],
                width=(760, 1100),
            ),
        ]


@dataclass(frozen=True)
class AttentionMap(Question):
    """One pair of sentences, token by token: what each head attends to."""

    heads: Heads = ()
    """As L4.H0 L5.H2, in place of the core."""
    pair: tuple[str, str] | None = None
    """Two sentences; by default the first pair of the first case, out of domain, if there is one."""

    name: ClassVar[str] = "attention-map"
    tables: ClassVar[tuple[str, ...]] = ("attention_pair",)

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        heads = [str(head) for head in heads_of(run, self.heads)]
        asked = {"task": run.task.fingerprint, "heads": heads, "pair": list(self._pair(run, sample))}
        return asked | {name: value for name, value in run.options(sample).items() if name == "max_length"}

    def _pair(self, run: Subject, sample: Sample) -> tuple[str, str]:
        if self.pair is not None:
            return self.pair
        split = run.task.cases[next(iter(sample.cases or (*run.task.ood, *run.task.in_domain)))]
        return split.first[0], split.second[0]

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        first, second = self._pair(run, sample)
        heads, length = heads_of(run, self.heads), sample.max_length
        return {"attention_pair": analysis.attention_pattern(run.model, first, second, heads, max_length=length)}

    def short(self, answer: Answer) -> str:
        first, second = answer.options["pair"]
        return f"attention of {len(answer.options['heads'])} heads on {first!r:.60} and {second!r:.60}"

    def sections(self, answer: Answer) -> list[report.Section]:
        return [
            report.Section(
                "pair",
                "One pair, token by token",
                "Choose a head by the menu. Rows attend, columns are attended to; equal words of the sentences are outlined.",
                figures.attention_map(answer["attention_pair"]),
                width=(760, 1100),
            )
        ]


def _told_of(answer: Answer, heads: tuple[Head, ...]) -> Answer:
    """The answer, told of these heads; of all where there are none."""
    return Answer(answer.question, answer.tables, {**answer.options, "heads": [str(head) for head in heads]})


def _heads(answer: Answer) -> list[Head]:
    profiles = answer["profiles"]
    everyone = [Head(*at) for at in zip(profiles["layer"], profiles["head"], strict=True)]
    by_name = {str(head): head for head in everyone}
    return [by_name[name] for name in answer.options["heads"]] or everyone


def _evidence(answer: Answer, heads: list[Head]) -> pd.DataFrame:
    """The profiles of these heads with their evidence, in their order."""
    by_head = answer["profiles"].set_index(["layer", "head"]).loc[heads].reset_index(drop=True)
    return by_head.assign(head=[str(head) for head in heads])[_EVIDENCE]
