"""The evaluation table that a pruning run keeps, of one sparsity or along a rising target."""

from collections.abc import Sequence

import pandas as pd

from hc_lens.data.task import Task
from hc_lens.forward import Precision
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier
from hc_lens.runs import RunError
from hc_lens.stages.kept import remembered
from hc_lens.stages.path import PrunedPath
from hc_lens.stages.pruned import Pruned
from hc_lens.stages.rows import Rows


def evaluate_into(
    pruned: Pruned | PrunedPath,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
    seed: int = 0,
    trained: bool = True,
) -> pd.DataFrame:
    """The evaluation table of a pruning run, with the `target` sparsity; kept as `evaluation.parquet`.

    `seed` draws the rows where `max_rows` limits them. What the task is and how many rows it has are kept as `task.json`.
    An untrained model has no label order to check: `trained=False`.
    """

    def compute() -> pd.DataFrame:
        table = evaluate(
            model,
            task,
            pruned.subnetworks,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            seed=seed,
            trained=trained,
            precision=precision,
        )
        return pruned.with_targets(table)

    pruned.run.write_json("task", _task_facts(task))
    options = Rows(max_rows, seed, batch_size, precision).options(task)
    return remembered(pruned.run, "evaluation", options, compute)


def _task_facts(task: Task) -> dict[str, object]:
    return {
        "name": task.name,
        "labels": list(task.labels),
        "training rows": len(task.train),
        "in-domain rows": {name: len(split) for name, split in task.in_domain.items()},
        "out-of-domain rows": {name: len(split) for name, split in task.ood.items()},
    }


def pruned_evaluation(pruned: Sequence[Pruned]) -> pd.DataFrame:
    """The evaluation tables of several runs of one model as one, the full model once.

    Raises:
        RunError: if a run was not evaluated.
    """
    for p in pruned:
        if not p.run.file("evaluation", "parquet").exists():
            raise RunError(f"{p.run.path} has no evaluation.parquet yet: evaluate the run first (hc-lens evaluate)")
    first, *later = [p.run.read_table("evaluation") for p in pruned]
    return pd.concat([first, *(table[table["subnetwork"] != "full"] for table in later)], ignore_index=True)
