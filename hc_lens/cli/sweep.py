"""`hc-lens sweep`: seeds x sparsities x checkpoints x tasks, here or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import tyro

from hc_lens.cli import output
from hc_lens.cli.grid import GridChoice
from hc_lens.cli.options import Common, TaskChoice, each_once, parse
from hc_lens.cli.origin import Start
from hc_lens.limits import Count, Natural
from hc_lens.pruning import collapsed_seeds
from hc_lens.pruning.advice import collapse_told
from hc_lens.runs import Run, digest
from hc_lens.sweep import (
    Board,
    JobState,
    PruneJob,
    SweepConfig,
    chosen_checkpoints,
    plan,
    require_done,
    sweep_results,
)
from hc_lens.sweep.slurm import SlurmOptions, submit

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.origin import Checkpoint, Origin


@dataclass(frozen=True)
class Arguments:
    """Prune checkpoints of fine-tuning runs with every seed at every sparsity: many jobs that survive anything.

    Results lie beside the sweep, in directories named by their contents, and are never computed twice. The same command goes
    on where an earlier one was stopped or killed; with further seeds, sparsities or steps, the sweep grows by them.
    """

    runs: Annotated[
        tuple[Path, ...],
        tyro.conf.Positional,
        tyro.conf.arg(metavar="FINETUNED [FINETUNED ...] | SWEEP", help_behavior_hint="(required)"),
    ] = ()
    """Finished fine-tuning runs, each with its own task; or the directory of a sweep, to go on with it as it was planned."""
    steps: tuple[Natural, ...] = ()
    """Which checkpoints of each run; the last by default."""
    all_checkpoints: bool = False
    """Every checkpoint of each run."""
    seeds_per_job: Count | None = None
    """How many seeds a worker takes at a time; by default as many as leaves no worker idle."""
    backend: Literal["local", "slurm"] = "local"
    """Processes of this machine, or a SLURM job array (which the command submits and does not wait for)."""
    slurm: SlurmOptions = field(default_factory=SlurmOptions)
    retry: bool = False
    """Take up failed jobs again."""
    status: bool = False
    """Only say where the jobs of a planned sweep stand."""
    grid: tyro.conf.OmitArgPrefixes[GridChoice] = field(default_factory=GridChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)


def main(words: Sequence[str]) -> None:
    """Plan what is not planned yet, run it or hand it to the cluster, and tell where it stands and what was found."""
    args = parse(Arguments, "sweep", words)
    board = _opened(args.runs)
    board = board or _planned(args)
    if args.status:
        _show(board)
        return
    pool = args.grid.pool.on(args.common.device)
    board.reopen()
    if args.retry:
        output.say(f"{board.retry()} failed jobs are taken up again")
    output.say(f"{len(board.names)} jobs in {board.run.path}")
    if args.backend == "slurm":
        jobs = submit(board.run.path, args.slurm, every=pool.every)
        output.say(f"{args.slurm.array} workers submitted: SLURM job {jobs[0].job_id.partition('_')[0]}")
        output.headline(board.run.path, f"submitted; hc-lens sweep {board.run.path} --status tells how far it is")
        return
    states = pool.run(board)
    _show(board)
    require_done(states)


def _opened(runs: Sequence[Path]) -> Board | None:
    """The sweep that a single argument names."""
    is_sweep = len(runs) == 1 and (runs[0] / "run.json").exists() and Run.open(runs[0]).kind == "sweep"
    return Board.open(runs[0]) if is_sweep else None


def _planned(args: Arguments) -> Board:
    if not args.runs:
        raise ValueError("no FINETUNED given: name fine-tuning runs, or the directory of a sweep (see hc-lens sweep --help)")
    if args.status and args.common.out is not None:
        return Board.open(args.common.out)
    each_once(args.runs)
    sparsities = args.grid.ascending()
    configs = tuple(args.grid.pruning.config(sparsity) for sparsity in sparsities)
    config = SweepConfig(
        configs[-1:] if args.grid.path else configs,
        args.grid.seeds,
        args.grid.measuring,
        tuple(sparsities) if args.grid.path else None,
        args.seeds_per_job,
    )
    store = Path("runs") if args.common.out is None else args.common.out.parent
    chosen = [_chosen(finetuned, args) for finetuned in args.runs]
    origins = [Start.find(str(finetuned), TaskChoice()).origin(store) for finetuned in args.runs]
    sources = [each.with_checkpoint(one) for each, some in zip(origins, chosen, strict=True) for one in some]
    spec = config.spec(sources, store)
    directory = args.common.out or store / f"sweep-{digest(spec)[:12]}"
    if args.status:
        return Board.open(directory)
    workers = args.slurm.array if args.backend == "slurm" else args.grid.pool.on(args.common.device).wanted
    jobs = plan(config, sources, store, workers)
    if _made_for_good(directory):
        return Board.create(directory, spec, jobs)
    board = Board.create(directory, _identity(args, config, origins, store), jobs)
    return board.grown(new) if (new := _unplanned(board, jobs)) else board


def _made_for_good(directory: Path) -> bool:
    """Whether the sweep there is of an earlier version, whose specification holds its seeds."""
    return (directory / "run.json").exists() and "seeds" in Run.open(directory).spec


def _identity(args: Arguments, config: SweepConfig, origins: Sequence[Origin], store: Path) -> dict[str, object]:
    """What a sweep cannot change: models, rows, recipe. It takes further seeds, steps and sparsities, but along a path."""
    recipe = {name: value for name, value in args.grid.pruning.config(0.5).as_dict().items() if name != "sparsity"}
    return {
        "models": [origin.as_json(store) for origin in origins],
        "recipe": recipe,
        "preset": args.grid.pruning.preset,
        "path": None if config.grid is None else list(config.grid),
        "measuring": asdict(config.measuring),
    }


def _unplanned(board: Board, jobs: Sequence[PruneJob]) -> list[PruneJob]:
    """The jobs of seeds that no job of the sweep has yet."""
    planned: dict[Path, set[int]] = {}
    for spec in (board.job(name).spec for name in board.names):
        place = (board.run.path / cast(str, spec["directory"])).resolve()
        planned.setdefault(place, set()).update(cast("list[int]", spec["seeds"]))
    left = [
        replace(job, seeds=tuple(seed for seed in job.seeds if seed not in planned.get(job.directory.resolve(), ())))
        for job in jobs
    ]
    return [job for job in left if job.seeds]


def _chosen(finetuned: Path, args: Arguments) -> list[Checkpoint]:
    """The checkpoints of one fine-tuning run."""
    chosen = chosen_checkpoints(finetuned, args.steps or None)
    return chosen if args.steps or args.all_checkpoints else chosen[-1:]


def _show(board: Board) -> None:
    """Where the jobs stand, and what those that are done have found."""
    states = board.states()
    output.table(board.table(), "jobs")
    results = sweep_results(board)
    for job in (board.read(state.name) for state in states if state.state == "done"):
        if isinstance(job, PruneJob) and (collapsed := collapsed_seeds(Run.open(job.directory), job.seeds)):
            output.say(f"{job.title}: {collapse_told(collapsed, len(job.seeds))}, which leaves a gap")
    if not results.empty:
        output.keep(results, board.run.path, "results")
        output.table(_means(results), "mean accuracy over cases and seeds")
    output.headline(board.run.path, _headline(states))


def _means(results: pd.DataFrame) -> pd.DataFrame:
    pruned = results[results["subnetwork"] != "full"]
    by = pruned.groupby(["model", "step", "target", "group"], dropna=False)["accuracy"].mean()
    full = results[results["subnetwork"] == "full"].groupby(["model", "step", "group"], dropna=False)["accuracy"].mean()
    return by.rename("subnetworks").reset_index().merge(full.rename("full").reset_index())


def _headline(states: Sequence[JobState]) -> str:
    """How many jobs are in which state, and how long the rest may take."""
    counts = {name: sum(state.state == name for state in states) for name in ("done", "running", "failed", "to do")}
    told = ", ".join(f"{n} {name}" for name, n in counts.items() if n or name == "done")
    took = [state.seconds for state in states if state.state == "done" and state.seconds is not None]
    left = counts["running"] + counts["to do"]
    if not took or not left:
        return told
    minutes = sum(took) / len(took) * left / max(1, counts["running"]) / 60
    return f"{told}; about {minutes:.0f} minutes to go with {max(1, counts['running'])} workers"
