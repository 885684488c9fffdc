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
from hc_lens import figures
from hc_lens.analysis import attention_pattern, layer_matched_sets
from hc_lens.data.task import Task
from hc_lens.report import Article, Section, text_table, with_interval
from hc_lens.stages import attention_into
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
    model, task, core = base.trained.model, base.trained.task, base.core.heads
    tables = attention_into(base.pruned[0], model, task, max_rows=rows)
    compared = against_others(tables.groups, core)
    mine = tables.groups[[Head(a, b) in core for a, b in zip(tables.groups["layer"], tables.groups["head"], strict=True)]]
    first, second = longest_pair(task)
    profiles = with_interval(tables.profiles, "score", percent=True)
    sections = [
        Section(
            "scores",
            "What the core heads attend to, in-domain and out of domain",
            "Share of a word's attention that goes to its targets, mean over words that have one; whiskers: 95 % intervals "
            "over pairs. Bar: even attention. Hollow: pairs with another row's second sentence.",
            figures.attention_dots(mine, core),
            shown=[
                text_table(
                    with_interval(compared, "other heads", low="others_low", high="others_high", percent=True),
                    "Core heads against random sets of as many other heads of their layers",
                    labels=2,
                    percent=["core", "even"],
                )
            ],
            folded=[text_table(with_interval(mine, "score", percent=True), "Every core head", labels=4)],
        ),
        Section(
            "profiles",
            "What every head mostly attends to",
            "A relation names a head if its score is at least 25 % and its interval lies above twice the baseline; else mixed. "
            "Outlined: the core.",
            figures.head_profiles(tables.profiles, core),
            folded=[text_table(profiles, "Every head", labels=2, percent=["baseline", "runner_up_score"])],
        ),
        Section(
            "map",
            "One out-of-domain pair, token by token",
            "Choose a core head above. Queries downwards, keys to the right; outlined: the same word in the two sentences.",
            figures.attention_map(attention_pattern(model, first, second, core)),
        ),
    ]
    return Article(
        title="How core heads attend",
        question=QUESTION,
        answer=told(compared, tables.profiles, core),
        sections=sections,
        notes=base.trained.setting.notes,
        provenance=versions(),
        config={"rows of each case": rows, "core": [str(head) for head in core], "k": base.core.k, "n": base.core.n},
    )


if __name__ == "__main__":
    run_experiment("how_core_heads_attend", QUESTION, experiment)
