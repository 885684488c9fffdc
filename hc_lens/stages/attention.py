"""What the heads of a pruning run's full model attend to, kept in the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from hc_lens.limits import require_at_least_one
from hc_lens.precision import Precision, settled
from hc_lens.stages.kept import remembered_tables

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.data.words import Matching
    from hc_lens.models import Classifier
    from hc_lens.stages.pruned import Pruned


class AttentionTables(NamedTuple):
    """Scores by case, the same with the cases of a group pooled, and a profile for every head over all cases pooled."""

    scores: pd.DataFrame
    groups: pd.DataFrame
    profiles: pd.DataFrame


def attention_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    *,
    cases: Sequence[str] | None = None,
    max_rows: int | None,
    words: Matching = "word",
    batch_size: int = 32,
    precision: Precision = "fp32",
    seed: int = 0,
) -> AttentionTables:
    """What every head of the full model attends to; kept as `attention`, `attention_groups` and `profiles` tables.

    `seed` draws the rows where `max_rows` limits them, the shuffled pairs, and the bootstrap. `precision` is that of products.

    Raises:
        HookError, KeyError, TypeError, ValueError: as `attention_scores`.
    """
    from hc_lens.analysis import attention_scores

    require_at_least_one("max_rows", max_rows)
    require_at_least_one("batch_size", batch_size)
    kind = settled(pruned.run, precision, model, batch_size)
    options = {
        "task": task.fingerprint,
        "cases": None if cases is None else list(cases),
        "max_rows": max_rows,
        "words": words,
        "seed": seed,
        **({} if kind == "fp32" else {"precision": kind}),  # tables of earlier versions are in fp32
    }

    def compute() -> dict[str, pd.DataFrame]:
        found = attention_scores(
            model,
            task,
            cases=cases,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            seed=seed,
            words=words,
            precision=kind,
        )
        return {
            "attention": found.table(seed=seed),
            "attention_groups": found.by_group().table(seed=seed),
            "profiles": found.profiles(seed=seed),
        }

    names = ("attention", "attention_groups", "profiles")
    return AttentionTables(*remembered_tables(pruned.run, names, options, compute))
