"""What a pruning run keeps of ablating heads from its full model: every single head, and sets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hc_lens.precision import Precision, settled
from hc_lens.runs import digest
from hc_lens.stages.kept import remembered_tables
from hc_lens.stages.rows import Rows

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.analysis import Ablation
    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.stages.pruned import Pruned
    from hc_lens.units import Head

ABLATION = ("additivity", "effects")
"""The tables of an ablation, which are kept together."""


@dataclass(frozen=True, eq=False)
class AblationTables:
    """`effects`, one row per group, case and scale; `additivity`, one per set of several heads, case and scale."""

    effects: pd.DataFrame
    additivity: pd.DataFrame


def singles_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
    seed: int = 0,
) -> Ablation:
    """Ablate every head of the full model alone; every row's values are kept as `singles.safetensors`."""
    from hc_lens.analysis import ablate, single_heads
    from hc_lens.analysis.stored import from_tensors, to_tensors

    run = pruned.run
    precision = settled(run, precision, model, batch_size)
    options = digest(Rows(max_rows, seed, batch_size, precision).options(task))
    with run.locked("singles", wait=True):
        if not run.file("singles", "safetensors").exists() or run.read_metadata("singles")["options"] != options:
            result = ablate(
                model,
                task,
                pruned.means,
                single_heads(pruned.means),
                max_rows=max_rows,
                max_length=pruned.config.max_length,
                batch_size=batch_size,
                seed=seed,
                precision=precision,
            )
            tensors, metadata = to_tensors(result)
            run.write_tensors("singles", tensors, metadata | {"options": options})
        return from_tensors(run.read_tensors("singles"), run.read_metadata("singles"))


def ablate_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    sets: Mapping[str, Sequence[Head]],
    *,
    max_rows: int | None,
    controls: int = 20,
    batch_size: int = 64,
    precision: Precision = "fp32",
    seed: int = 0,
) -> AblationTables:
    """Ablate every head of the full model alone, and each named set together; kept as `effects` and `additivity` tables.

    `seed` draws the rows where `max_rows` limits them, the control sets, and the bootstrap.
    """
    from hc_lens.analysis import ablate

    asked = {"sets": {name: [str(head) for head in heads] for name, heads in sets.items()}, "controls": controls}
    precision = settled(pruned.run, precision, model, batch_size)
    options = Rows(max_rows, seed, batch_size, precision).options(task) | asked

    def compute() -> dict[str, pd.DataFrame]:
        singles = singles_into(pruned, model, task, max_rows=max_rows, batch_size=batch_size, precision=precision, seed=seed)
        joint = {name: tuple(heads) for name, heads in sets.items() if len(heads) > 1}
        result = ablate(
            model,
            task,
            pruned.means,
            {**singles.groups, **joint},
            controls=controls,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            known=singles,
            seed=seed,
            precision=precision,
        )
        return {"additivity": result.super_additivity(seed=seed), "effects": result.table(seed=seed)}

    additivity, effects = remembered_tables(pruned.run, ABLATION, options, compute)
    if not pruned.run.file("singles", "safetensors").exists():  # which the report reads, too
        singles_into(pruned, model, task, max_rows=max_rows, batch_size=batch_size, precision=precision, seed=seed)
    return AblationTables(effects, additivity)
