"""What do the heads of the heuristic core attend to: the same word in the other sentence, neighbours, separators?

The Heuristic Core, Figure 9, shows it by example; here it is measured for every head: share of a word's attention that goes to
the same word of the other sentence, to its neighbours, to separators, to itself, beside even attention and shuffled pairs, in
domain and out of it. Is a core head more often an overlap head than another head of its layer?

Run: `python -m experiments.how_core_heads_attend --preset desk`; the same command resumes.
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from experiments.shared.base import SMOKE_SEEDS, SMOKE_SPARSITIES, Base, pruned_base
from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset, nli_desk, nli_paper, smoke
from hc_lens.analysis import layer_matched_sets
from hc_lens.data.task import Task
from hc_lens.questions import Attention, AttentionMap
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.sample import Sample
from hc_lens.statistics import monte_carlo_p
from hc_lens.units import Head

QUESTION = "What do the heads of the heuristic core attend to, and do other heads of their layers do the same?"
N_SETS = 2_000


def base_of(preset: Preset, places: Places) -> tuple[Base, int]:
    """The pruned model at each scale, and how many rows of each case are read."""
    if preset == "smoke":
        return pruned_base(smoke(), places, sparsities=SMOKE_SPARSITIES, seeds=SMOKE_SEEDS), 20
    return (pruned_base(nli_desk(), places), 60) if preset == "desk" else (pruned_base(nli_paper(), places), 500)


def against_others(groups: pd.DataFrame, core: Sequence[Head]) -> pd.DataFrame:
    """Mean score of the core heads in each relation, against random sets of as many other heads of their layers.

    `control_p`: (1 + sets with at least this score) / (1 + sets).
    """
    shape = (int(groups["layer"].max()) + 1, int(groups["head"].max()) + 1)
    rows: list[dict[str, object]] = []
    for (case, relation), table in groups.groupby(["case", "relation"], sort=False):
        scores = np.full(shape, np.nan)
        scores[table["layer"], table["head"]] = table["score"]
        sets = layer_matched_sets(core, N_SETS, exclude=set(core), seed=0, n_layers=shape[0], n_heads=shape[1])
        others = np.array([np.mean([scores[head] for head in heads]) for heads in sets])
        mine = float(np.mean([scores[head] for head in core]))
        low, high = np.quantile(others, [0.025, 0.975])
        rows.append(
            {
                "pairs": case,
                "relation": relation,
                "core": mine,
                "even": float(table["uniform"].iloc[0]),
                "other heads": float(others.mean()),
                "others_low": float(low),
                "others_high": float(high),
                "sets": len(others),
                "control_p": monte_carlo_p(others, mine),
            }
        )
    return pd.DataFrame(rows)


def longest_pair(task: Task, words: int = 20) -> tuple[str, str]:
    """An out-of-domain pair of at most so many words a sentence, the longest there is."""
    split = next(iter(task.ood.values()))
    fitting = [pair for pair in zip(split.first, split.second, strict=True) if max(len(text.split()) for text in pair) <= words]
    return max(fitting, key=lambda pair: sum(len(text.split()) for text in pair))


def told(compared: pd.DataFrame, profiles: pd.DataFrame, core: Sequence[Head]) -> str:
    """Profiles of the core heads and their mean overlap attention, in sentences."""
    mine = profiles.set_index(["layer", "head"])
    named = ", ".join(f"{head} {mine.loc[tuple(head), 'profile']}" for head in core)
    rows = [
        f"{100 * row.core:.1f} % {row.pairs} (even {100 * row.even:.1f} %, other heads of their layers {100 * row.other:.1f} % "
        f"[{100 * row.others_low:.1f}, {100 * row.others_high:.1f}], p = {row.control_p:.2g})"
        for row in compared[compared["relation"] == "overlap"].rename(columns={"other heads": "other"}).itertuples()
    ]
    return f"Profiles of the core: {named}. Its heads give the same word of the other sentence {' and '.join(rows)}."


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    base, rows = base_of(preset, places)
    run, core = base.opened(), base.core.heads
    names = tuple(map(str, core))
    scores = run.ask(Attention(names), Sample(rows))
    pair = run.ask(AttentionMap(names, longest_pair(run.task)))
    compared = against_others(scores["attention_groups"], core)
    against = Section(
        "others",
        "Core heads against random sets of as many other heads of their layers",
        "Mean score of the core heads in each relation, and of 2,000 layer-matched sets without them (95 %).",
        shown=[
            text_table(
                with_interval(compared, "other heads", low="others_low", high="others_high", percent=True),
                "Share of attention",
                labels=2,
                percent=["core", "even"],
            )
        ],
    )
    return Article(
        title="How core heads attend",
        question=QUESTION,
        answer=told(compared, scores["profiles"], core),
        sections=[against, *scores.sections, *pair.sections],
        notes=base.trained.setting.notes,
        provenance=versions(),
        config={"rows of each case": rows, "core": [str(head) for head in core], "k": base.core.k, "n": base.core.n},
    )


if __name__ == "__main__":
    run_experiment("how_core_heads_attend", QUESTION, experiment)
