"""What the sweep engine costs on top of the work: jobs beside the same calls without it, and its own chores by themselves.

`python -m experiments.bench.sweep_overhead [--quick]`; the last line is JSON. A job is one seed of the embedded model, pruned
and evaluated. `engine_over_bare` is the time of a sweep's jobs, done by a worker in this process, over that of `prune` and
`evaluate` called for the same seeds: files, locks and reading back. A real job takes minutes, these take a second.
"""

import itertools
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import torch
import tyro

from experiments.bench.timing import interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import Workload
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier
from hc_lens.origin import Origin
from hc_lens.pruning import prune
from hc_lens.sample import Measuring, Sample
from hc_lens.study import DEMO, embedded_model, finetune_study
from hc_lens.sweep import Board, Pool, SweepConfig, chosen_checkpoints, plan, require_done
from hc_lens.sweep.worker import work
from hc_lens.train import TrainConfig

PLANNED = 420  # jobs of the paper's grid over checkpoints


def config(steps: int, seeds: int) -> SweepConfig:
    """One job a seed at the demo's recipe; gates start apart, so that few steps give subnetworks."""
    recipe = replace(DEMO.prune[0], steps=steps, ramp_steps=steps, gate_std=2.0)
    return SweepConfig((recipe,), tuple(range(seeds)), Measuring(500, 20), seeds_per_job=1)


class Engine:
    """The jobs of a new sweep, done by one worker in this process."""

    def __init__(self, source: Origin, root: Path, sweep: SweepConfig) -> None:
        self.examples, self.source, self.root, self.sweep = len(sweep.seeds), source, root, sweep
        self.stores = itertools.count()

    def ready(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def run(self) -> None:
        """Plan, work, and check that all is done."""
        board = self.planned(self.root / f"store-{next(self.stores)}")
        work(board.run.path, device=torch.device("cpu"))
        require_done(board.states())

    def planned(self, store: Path) -> Board:
        """The sweep in a store of its own."""
        return Board.create(store / "sweep", self.sweep.spec([self.source], store), plan(self.sweep, [self.source], store, 1))


class Bare:
    """The same seeds without files."""

    def __init__(self, model: Classifier, task: Task, sweep: SweepConfig) -> None:
        self.examples, self.model, self.task, self.sweep = len(sweep.seeds), model, task, sweep

    def ready(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def run(self) -> None:
        """Means once, then every seed pruned and evaluated."""
        (recipe,), how = self.sweep.configs, self.sweep.measuring
        rows = torch.randperm(len(self.task.train))[: how.means_rows].tolist()
        means = ActivationMeans.collect(self.model, self.task.train.take(rows), sample=Sample(max_length=recipe.max_length))
        for seed in self.sweep.seeds:
            found = prune(self.model, self.task.train, means, recipe, [seed])
            evaluate(self.model, self.task, found.subnetworks, sample=Sample(how.max_rows, max_length=recipe.max_length))


def measure(steps: int, seeds: int, rounds: int, planned: int, *, quick: bool = False) -> str:
    """Time both, and what the engine does besides: planning, status, a sweep that is done already."""
    task = synthetic_nli(n_train=2_000, n_id=200, n_ood_per_case=20)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        train = TrainConfig(steps=10, batch_size=16, warmup_steps=1, max_length=32, checkpoint_every=10)
        finetuned = finetune_study(embedded_model(), task, train, root, rows=4, precision="fp32")
        source = Origin.at(finetuned / "model", finetuned / "task", chosen_checkpoints(finetuned)[-1])
        sweep = config(steps, seeds)
        engine, bare = Engine(source, root, sweep), Bare(source.load(torch.device("cpu"))[0], task, sweep)
        workloads: dict[str, Workload] = {"engine": engine, "bare": bare}
        costs = interleaved(workloads, rounds)
        again = _median(lambda: require_done(Pool().run(engine.planned(root / "store-0"))), rounds)
        many = Engine(source, root, replace(sweep, seeds=tuple(range(planned))))
        start = time.perf_counter()
        board = many.planned(root / "many")
        planning = time.perf_counter() - start
        status = _median(board.states, rounds)
    return report(
        bench="sweep_overhead",
        quick=quick,
        engine_over_bare=ratio(costs, "engine", "bare", "wall"),
        wall_seconds_per_job=medians(costs, "wall"),
        seconds_on_top_of_a_job=rounded(
            statistics.median(a.wall - b.wall for a, b in zip(costs["engine"], costs["bare"], strict=True))
        ),
        seconds_of_a_sweep_that_is_done=rounded(again),
        planned_jobs=planned,
        seconds_to_plan=rounded(planning),
        seconds_of_a_status=rounded(status),
        jobs=seeds,
        steps=steps,
        rounds=rounds,
    )


def _median(call: Callable[[], object], rounds: int) -> float:
    """Median seconds of a call."""
    seconds: list[float] = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        seconds.append(time.perf_counter() - start)
    return statistics.median(seconds)


def main(quick: bool = False) -> None:
    """Measure the engine.

    Args:
        quick: fewer, shorter jobs.
    """
    print(measure(20, 3, 2, 100, quick=True) if quick else measure(100, 6, 5, PLANNED))


if __name__ == "__main__":
    tyro.cli(main)
