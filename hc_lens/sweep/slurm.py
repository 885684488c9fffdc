"""Workers of a sweep as a SLURM job array, submitted through submitit.

Each job of the array is one worker (`hc_lens.sweep.worker.work`), like the processes of the local pool. A job carries nothing
but the path of the sweep's directory, where everything that is done and to do lies: one that is preempted, or reaches its time
limit, is queued again as it is and goes on from the last checkpoint of whatever nobody else has taken up meanwhile. What
submitit keeps for itself (the pickled worker, logs) is in `slurm/` under that directory; results have no part in it.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import submitit
    from submitit.helpers import DelayedSubmission


@dataclass(frozen=True)
class SlurmOptions:
    """What to ask SLURM for; None leaves it to the cluster's default."""

    partition: str | None = None
    """Partition to submit to."""
    array: int = 1
    """How many workers: jobs of the array, which share the sweep among them."""
    time: int = 240
    """Time limit of a worker in minutes; it is told to stop about a minute and a half before, queued again and goes on."""
    requeues: int = 100
    """How often a worker may reach its time limit before it is not queued again; preemptions do not count."""
    cpus_per_task: int = 1
    """Cores of a worker, all used as threads."""
    mem_gb: float | None = None
    """Memory of a worker."""
    gpus_per_node: int | None = None
    """GPUs of a worker; it uses one."""
    account: str | None = None
    """Account to charge."""
    qos: str | None = None
    """Quality of service."""
    constraint: str | None = None
    """Features the nodes must have."""
    additional_parameters: Mapping[str, str] = field(default_factory=dict)
    """Any other options of sbatch, as names and values: `nice 100 exclude node7`; an empty value for a flag: `exclusive ''`."""

    def __post_init__(self) -> None:
        least = {"array": 1, "time": 1, "requeues": 0, "cpus_per_task": 1, "mem_gb": 0, "gpus_per_node": 0}
        for name, lowest in least.items():
            value = getattr(self, name)
            if value is not None and value < lowest:
                raise ValueError(f"slurm.{name}: must be at least {lowest}, got {value}")


@dataclass(frozen=True)
class ArrayWorker:
    """What one job of the array runs, and what it is queued again as.

    Attributes:
        directory: of the sweep; absolute, since the cluster chooses where a job starts.
        threads, every: as `work` takes them.
    """

    directory: Path
    threads: int
    every: float

    def __call__(self) -> None:
        """Work until nothing is left."""
        from hc_lens.sweep.worker import work

        work(self.directory, self.threads, every=self.every)

    def checkpoint(self) -> DelayedSubmission:
        """Called by submitit when the job is told to stop: nothing to save, the gates' checkpoints are in the sweep already."""
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


def submit(
    directory: Path, options: SlurmOptions, *, every: float = 30.0, cluster: Literal["slurm", "local"] = "slurm"
) -> list[submitit.Job[None]]:
    """Submit an array of workers for the sweep in this directory, and return its jobs without waiting for them.

    Args:
        every: seconds between two checkpoints of gates in training.
        cluster: "local" runs the same jobs as processes of this machine, with submitit's own executor.

    Raises:
        ModuleNotFoundError: without submitit, naming the extra to install.
        FileNotFoundError: if this machine has no SLURM, or there is no such directory.
        RuntimeError: if SLURM refuses the submission, with its reason.
    """
    try:
        import submitit
    except ModuleNotFoundError:
        raise ModuleNotFoundError("submitit is not installed: pip install 'hc_lens[slurm]'") from None
    if cluster == "slurm" and not (shutil.which("sbatch") and shutil.which("srun")):
        raise FileNotFoundError(
            "sbatch and srun are not on the PATH: this machine cannot submit to SLURM; `--backend local` needs none"
        )
    if not directory.is_dir():
        raise FileNotFoundError(f"{directory} is not a directory: there is no sweep to work on")
    executor = submitit.AutoExecutor(
        folder=directory.absolute() / "slurm", cluster=cluster, slurm_max_num_timeout=options.requeues
    )
    executor.update_parameters(
        name="hc-lens-sweep",
        timeout_min=options.time,
        cpus_per_task=options.cpus_per_task,
        mem_gb=options.mem_gb,
        gpus_per_node=options.gpus_per_node,
        slurm_partition=options.partition,
        slurm_account=options.account,
        slurm_qos=options.qos,
        slurm_constraint=options.constraint,
        slurm_array_parallelism=options.array,
        # Since 22.05 a step no longer takes over the cores per task of its job.
        slurm_srun_args=[f"--cpus-per-task={options.cpus_per_task}"],
        slurm_setup=["export PYTHONSAFEPATH=1"],  # nothing is imported from the directory that a job starts in
        slurm_additional_parameters={"requeue": True} | {k: v or True for k, v in options.additional_parameters.items()},
    )
    worker = ArrayWorker(directory.absolute(), options.cpus_per_task, every)
    with executor.batch():
        return [executor.submit(worker) for _ in range(options.array)]
