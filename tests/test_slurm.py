"""A sweep's workers as a job array: what SLURM is asked for, what is refused, and that a preempted worker goes on and ends."""

import os
import signal
import sys
from collections.abc import Generator, Sequence
from pathlib import Path

import psutil
import pytest
import submitit

from hc_lens.data import synthetic_nli
from hc_lens.data.stored import save_task
from hc_lens.data.synthetic import synthetic_config, synthetic_tokenizer
from hc_lens.models import new_model
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig
from hc_lens.sample import Measuring
from hc_lens.sweep.board import Board, worker_of
from hc_lens.sweep.prune_job import PruneJob
from hc_lens.sweep.slurm import SlurmOptions, submit
from hc_lens.sweep.worker import work
from tests.slurm_node import holds_within, one_node


@pytest.mark.parametrize("option", ["array", "time", "cpus_per_task"])
def test_an_option_below_its_least_value_is_refused_by_name(option):
    with pytest.raises(ValueError, match=f"^slurm.{option}: must be at least 1, got 0"):
        SlurmOptions(**{option: 0})


def test_without_submitit_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'hc_lens\[slurm\]'"):
        submit(tmp_path, SlurmOptions(), cluster="local")


def test_without_slurm_the_local_backend_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=r"sbatch and srun are not on the PATH.*--backend local"):
        submit(tmp_path, SlurmOptions())
    assert list(tmp_path.iterdir()) == []


def test_without_a_sweep_nothing_is_submitted(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a directory"):
        submit(tmp_path / "nowhere", SlurmOptions(), cluster="local")


@pytest.fixture
def sbatch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An sbatch that takes every submission as job 7 and copies its script to the returned path."""
    programs, taken = tmp_path / "bin", tmp_path / "taken.sh"
    programs.mkdir()
    for name, text in {"sbatch": f'cp "$1" "{taken}"; echo Submitted batch job 7', "srun": "exit 1"}.items():
        (programs / name).write_text(f"#!/bin/sh\n{text}\n")
        (programs / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return taken


def test_slurm_is_asked_for_what_the_options_say(tmp_path, sbatch):
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    options = SlurmOptions(
        partition="long",
        array=300,
        time=90,
        cpus_per_task=4,
        mem_gb=7.5,
        gpus_per_node=1,
        account="lab",
        qos="low",
        constraint="a100",
        additional_parameters={"nice": "100", "exclusive": ""},
    )
    jobs = submit(sweep, options)
    assert [job.job_id for job in jobs] == [f"7_{i}" for i in range(300)]
    script = sbatch.read_text()
    asked = {line.removeprefix("#SBATCH --") for line in script.splitlines() if line.startswith("#SBATCH")}
    assert asked >= {
        "partition=long",
        "array=0-299%300",  # all at once: submitit's own limit is 256
        "time=90",
        "cpus-per-task=4",
        "mem=7680MB",
        "gpus-per-node=1",
        "account=lab",
        "qos=low",
        "constraint=a100",
        "nice=100",
        "exclusive",
        "requeue",
    }
    assert "srun" in script
    assert "--cpus-per-task=4" in script.partition("srun")[2]


def test_what_is_not_said_is_left_to_the_cluster(tmp_path, sbatch):
    submit(tmp_path, SlurmOptions())
    asked = sbatch.read_text()
    assert not [name for name in ("partition", "mem", "gpus", "account", "qos", "constraint") if f"--{name}" in asked]


_CONFIG = PruneConfig(steps=256, ramp_steps=128, batch_size=2, gate_std=2.0, max_length=16)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Origin:
    """A BERT of two layers and ten rows of each case, as files."""
    config = synthetic_config()
    config.update({"num_hidden_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64})
    directory = tmp_path_factory.mktemp("source")
    task = save_task(synthetic_nli(n_train=40, n_id=10, n_ood_per_case=10), directory / "task")
    return Origin.at(new_model(config, tokenizer=synthetic_tokenizer()).save_pretrained(directory / "model"), task)


def two_jobs(source: Origin, directory: Path) -> Board:
    jobs = [
        PruneJob(source, directory / "pruned", directory / "means", _CONFIG, (seed,), Measuring(means_rows=20))
        for seed in (42, 43)
    ]
    return Board.create(directory, {"seeds": [42, 43]}, jobs)


def results(board: Board) -> list[object]:
    return [board.read(name).result().subnetworks for name in board.names]


@pytest.fixture(scope="module")
def undisturbed(source: Origin, tmp_path_factory: pytest.TempPathFactory) -> list[object]:
    """What the jobs come to in one process that nobody stops."""
    board = two_jobs(source, tmp_path_factory.mktemp("undisturbed"))
    work(board.run.path, 1)
    return results(board)


@pytest.fixture(params=["local", pytest.param("slurm", marks=pytest.mark.slurm)])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Generator[str]:
    """submitit's local executor, and a real SLURM where one can be started."""
    if request.param == "local":
        yield request.param
    else:
        (tmp_path / "node").mkdir()
        with one_node(tmp_path / "node"):
            yield request.param


def preempt_first_at_work(jobs: Sequence[submitit.Job[None]], board: Board) -> submitit.Job[None]:
    """Once a worker has kept gates in training, tell it to stop as the cluster would; returns its job."""
    training = board.run.path / "pruned" / "training"
    assert holds_within(400, lambda: any(training.glob("seed-*"))), jobs[0].stderr()
    pid = next(pid for name in board.names if (pid := worker_of(board.job(name))))
    env = psutil.Process(pid).environ()
    own = env.get("SUBMITIT_LOCAL_JOB_ID") or f"{env['SLURM_ARRAY_JOB_ID']}_{env['SLURM_ARRAY_TASK_ID']}"
    job = next(job for job in jobs if job.job_id == own)
    if isinstance(job, submitit.SlurmJob):
        job._interrupt()
    else:
        os.kill(pid, signal.SIGUSR2)
    return job


@pytest.mark.slow
def test_a_preempted_worker_is_queued_again_and_the_sweep_ends_with_the_same_bits(source, undisturbed, cluster, tmp_path):
    board = two_jobs(source, tmp_path / "sweep")
    jobs = submit(board.run.path, SlurmOptions(array=2, time=30), every=0.0, cluster=cluster)
    preempted = preempt_first_at_work(jobs, board)
    assert holds_within(400, lambda: all(job.paths.result_pickle.exists() for job in jobs)), preempted.stderr()
    assert preempted.result() is None
    assert f"Requeued job {preempted.job_id}" in preempted.stdout()
    assert {state.state for state in board.states()} == {"done"}
    assert results(board) == undisturbed
