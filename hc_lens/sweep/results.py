"""What a sweep has found, as one table."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from hc_lens.sweep.prune_job import PruneJob

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.sweep.board import Board

_log = logging.getLogger("hc_lens")


def sweep_results(board: Board) -> pd.DataFrame:
    """The evaluations of every pruning job that is done: columns as `hc_lens.evaluate`, and more.

    `target` is the sparsity asked for, which the full model has none of; `model` the name of a fine-tuning run, its path where
    two have the same name; `model_path`, `step`. The full model's rows come once for each model and step, those of a seed that
    collapsed have no accuracy. A result that is damaged is left out, and the log says which.
    """
    import pandas as pd

    tables: list[pd.DataFrame] = []
    for state in board.states():
        if state.state == "done":
            try:
                job = board.read(state.name)
                if isinstance(job, PruneJob):
                    tables.append(job.table())
            except ValueError as error:  # a run, a subnetwork or its means
                _log.error("%s is left out: %s", state.title, error)
    if not tables:
        return pd.DataFrame()
    table = pd.concat(tables, ignore_index=True)
    if table["model_path"].nunique() > table["model"].nunique():
        table["model"] = table["model_path"]
    return table.drop_duplicates(["model_path", "step", "subnetwork", "target", "case"]).reset_index(drop=True)
