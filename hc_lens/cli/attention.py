"""`hc-lens attention`: what heads attend to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.heads import chosen_heads
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import Computing, RunPath, device_of_name, parse
from hc_lens.cli.origin import model_and_task
from hc_lens.data.words import Matching
from hc_lens.precision import Precision
from hc_lens.stages import AttentionTables, Pruned, attention_into, open_pruned
from hc_lens.units import Head

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data import Task
    from hc_lens.report import Article

_EVIDENCE = ["head", "profile", "relation", "score", "low", "high", "baseline", "ratio", "shuffled", "runner_up"]


@dataclass(frozen=True)
class Arguments:
    """What each head of the full model attends to: the same word in the other sentence, its neighbours, separators, itself."""

    run: RunPath
    """A pruning run whose core was found, or any pruning run with --heads."""
    heads: tuple[str, ...] = ()
    """Which heads to show, as L4.H0 L5.H2, in place of the core; all heads are measured."""
    case: tuple[str, ...] = ()
    """Which cases, by name; all by default."""
    max_rows: Count | None = 200
    """Rows of each case; None for all."""
    words: Matching = "word"
    """What is compared between the sentences: whole words, or the text of each token."""
    pair: tuple[str, str] | None = None
    """Two sentences whose attention is drawn token by token; by default a pair of the data."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them, the shuffled pairs, and the bootstrap of the intervals."""
    batch_size: Count = 32
    """Pairs in one forward pass."""
    precision: Precision = "fp32"
    """Of the model's products: fp32, bf16, or auto, whichever is faster where it is first asked for in RUN."""
    common: tyro.conf.OmitArgPrefixes[Computing] = field(default_factory=Computing)


def main(words: Sequence[str]) -> None:
    """Measure, and leave the tables and a page of figures in the run."""
    args = parse(Arguments, "attention", words)

    pruned = open_pruned(args.run)
    heads = chosen_heads(pruned, args.heads)
    device = device_of_name(args.common.device)

    from hc_lens.analysis import attention_pattern
    from hc_lens.report import write_article

    model, task = model_and_task(pruned.run, device)
    pruned.means.require_model(model)
    if unknown := [case for case in args.case if case not in task.cases]:
        raise ValueError(f"--case {unknown[0]}: the task has the cases {', '.join(task.cases)}")
    tables = attention_into(
        pruned,
        model,
        task,
        cases=args.case or None,
        max_rows=args.max_rows,
        words=args.words,
        batch_size=args.batch_size,
        precision=args.precision,
        seed=args.seed,
    )
    output.keep(tables.scores, args.common.out, "attention")
    output.keep(tables.groups, args.common.out, "attention_groups")
    output.keep(tables.profiles, args.common.out, "profiles")
    name = "chosen" if args.heads else "core"
    shown = _evidence(tables.profiles, heads)
    output.table(shown, f"what the {name} heads mostly attend to, over all cases")
    answer = _answer(shown, name)
    article = _article(args, pruned, tables, heads, answer, attention_pattern(model, *_pair(args, task), heads))
    page = write_article(article, pruned.run.path, "attention")
    output.say(f"figures in {page}")
    output.headline(args.run, answer)


def _evidence(profiles: pd.DataFrame, heads: Sequence[Head]) -> pd.DataFrame:
    """The profiles of these heads, in their order."""
    by_head = profiles.set_index(["layer", "head"]).loc[list(heads)].reset_index(drop=True)
    return by_head.assign(head=[str(head) for head in heads])[_EVIDENCE]


def _answer(shown: pd.DataFrame, name: str) -> str:
    """How many of the heads have which profile."""
    from hc_lens.figures import PROFILES

    told = [
        f"{len(rows)} {meaning} ({', '.join(rows['head'])})"
        for profile, (_, meaning) in PROFILES.items()
        if len(rows := shown[shown["profile"] == profile])
    ]
    return f"of {len(shown)} {name} heads: {'; '.join(told)}"


def _pair(args: Arguments, task: Task) -> tuple[str, str]:
    """The pair asked for, else the first of the first case: out of domain, if there is one."""
    if args.pair is not None:
        return args.pair
    split = task.cases[next(iter(args.case or (*task.ood, *task.in_domain)))]
    return split.first[0], split.second[0]


def _article(
    args: Arguments, pruned: Pruned, tables: AttentionTables, heads: Sequence[Head], answer: str, pattern: pd.DataFrame
) -> Article:
    from hc_lens.analysis.profiles import FACTOR, MINIMUM
    from hc_lens.figures import attention_dots, attention_map, head_profiles
    from hc_lens.report import Article, Section, text_table

    scores = tables.groups if len(args.case) not in (1, 2, 3, 4) else tables.scores
    drawn = scores[[Head(*at) in heads for at in zip(scores["layer"], scores["head"], strict=True)]]
    profiles = tables.profiles.assign(
        head=[str(Head(*at)) for at in zip(*(tables.profiles[c] for c in ("layer", "head")), strict=True)]
    )
    return Article(
        title="What heads attend to",
        question="Which tokens of a sentence pair do the heads attend to: equal words in the other sentence, neighbours, "
        "separators, or themselves?",
        answer=answer[0].upper() + answer[1:] + ".",
        sections=[
            Section(
                "profiles",
                "What every head mostly attends to",
                "A head is named after the relation with its largest score, if that is at least "
                f"{MINIMUM:g} and its interval lies above {FACTOR:g} times the baseline; else it is mixed. The baseline is "
                "even attention and, for equal words, what as many other words of the other sentence get.",
                head_profiles(tables.profiles, heads),
                folded=[text_table(profiles[_EVIDENCE], "Every head's profile and its evidence")],
            ),
            Section(
                "scores",
                "Scores against their baselines",
                "Share of a word's attention that goes to its targets, mean over the words that have one; intervals resample "
                "pairs. Bars: even attention to all visible tokens. Hollow: the same first sentences with the second sentences "
                "of other rows; only words that such a pair shares count there.",
                attention_dots(scores, heads),
                folded=[text_table(drawn, "Scores of these heads")],
                width=(760, 1100),
            ),
            Section(
                "pair",
                "One pair, token by token",
                "Choose a head by the menu. Rows attend, columns are attended to; equal words of the sentences are outlined.",
                attention_map(pattern),
                width=(760, 1100),
            ),
        ],
        provenance=dict(pruned.run.provenance),
        config={"cases": list(args.case) or "all", "max_rows": args.max_rows or "all", "words": args.words, "seed": args.seed},
    )
