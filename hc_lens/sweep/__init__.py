"""Many pruning runs, or other jobs: workers claim them, here or on a cluster, are killed at any time, and do each once."""

from hc_lens.sweep.board import Board, JobState
from hc_lens.sweep.checkpoints import (
    AtCheckpoint,
    PathAtCheckpoint,
    chosen_checkpoints,
    collapses,
    over_checkpoints,
    path_checkpoints_into,
    prune_checkpoints_into,
    subnetworks_by_step,
)
from hc_lens.sweep.job import Job, register
from hc_lens.sweep.plan import SweepConfig, plan
from hc_lens.sweep.pool import Pool
from hc_lens.sweep.prune_job import PruneJob, split
from hc_lens.sweep.results import sweep_results
from hc_lens.sweep.run import SweepError, require_done, run_jobs

__all__ = [
    "AtCheckpoint",
    "Board",
    "Job",
    "JobState",
    "PathAtCheckpoint",
    "Pool",
    "PruneJob",
    "SweepConfig",
    "SweepError",
    "chosen_checkpoints",
    "collapses",
    "over_checkpoints",
    "path_checkpoints_into",
    "plan",
    "prune_checkpoints_into",
    "register",
    "require_done",
    "run_jobs",
    "split",
    "subnetworks_by_step",
    "sweep_results",
]
