"""What a pruning run keeps of the first-order estimate of every single ablation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hc_lens.runs import digest

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.stages.pruned import Pruned
    from hc_lens.stages.rows import Rows


@dataclass(frozen=True, eq=False)
class EstimateTables:
    """`estimates`, one row per unit and case; `agreement` with exact ablations of single heads, empty where none are kept."""

    estimates: pd.DataFrame
    agreement: pd.DataFrame


def estimate_into(pruned: Pruned, model: Classifier, task: Task, rows: Rows) -> EstimateTables:
    """Estimate what ablating every head and MLP costs, in fp32: the `estimates` table of the run.

    Where the run has single ablations of the same rows, how well the estimate ranks heads is kept as `agreement`.
    """
    import pandas as pd

    from hc_lens.analysis import first_order_effects, rank_correlation
    from hc_lens.analysis.stored import from_tensors

    run, rows = pruned.run, rows.settled(pruned.run, model)
    estimate = first_order_effects(
        model,
        task,
        pruned.means,
        max_rows=rows.max_rows,
        max_length=pruned.config.max_length,
        batch_size=rows.batch_size,
        seed=rows.seed,
    )
    with run.locked("estimates", "agreement", wait=True):
        run.write_table("estimates", estimate.table(seed=rows.seed))
        agreement = pd.DataFrame()
        kept = run.file("singles", "safetensors").exists()
        if kept and run.read_metadata("singles")["options"] == digest(rows.options(task)):
            exact = from_tensors(run.read_tensors("singles"), run.read_metadata("singles"))
            agreement = rank_correlation(estimate, exact, seed=rows.seed)
            run.write_table("agreement", agreement)
        return EstimateTables(run.read_table("estimates"), agreement)
