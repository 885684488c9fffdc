"""What is killed at a random moment ends, when it is started again, with the bits of what was left alone.

`python -c "from tests.kill_points import main; main()" --points 20` kills each line at so many moments, by SIGKILL or SIGTERM.
Processes are forked from a server that has imported everything, so that a point costs little more than what it kills.
"""

import argparse
import ctypes
import multiprocessing
import os
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import torch

from hc_lens.data import Task, synthetic_nli
from hc_lens.pruning import PruneConfig, means_into, open_pruned, prune_into
from hc_lens.questions import Ablation, Accuracy, Attention, Greedy, HeuristicCore, Pairs
from hc_lens.relations.job import ModelSource, RelationJob, measure_relations
from hc_lens.relations.world import planted_world
from hc_lens.sample import Sample
from hc_lens.study import embedded_model, finetune_study
from hc_lens.sweep import Board, Pool, require_done
from hc_lens.train import TrainConfig
from hc_lens.units import Head
from tests.asking import opened
from tests.contents import content_of
from tests.relations.test_study import CONFIG
from tests.relations.test_world import SMALL
from tests.sweeping import LONG, finetuned_source, planned

_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tests.kill_points"])
_NEW_PIDS = 0x20000000  # CLONE_NEWPID
_HEADS = (Head(0, 1), Head(1, 2), Head(2, 0))


@dataclass(frozen=True)
class Line:
    """Something to be killed: what it needs, made once in a directory, and what `processes` at once do there."""

    prepare: Callable[[Path], None]
    act: Callable[[Path], None]
    processes: int = 1
    own_pids: bool = False


def small() -> Task:
    return synthetic_nli(n_train=100, n_id=20, n_ood_per_case=6)


def nothing(root: Path) -> None:
    """Needs nothing."""


def save(root: Path) -> None:
    """A few steps of fine-tuning, then its model saved again and again: most moments lie in a save."""
    task, model = small(), embedded_model()
    train = TrainConfig(steps=2, batch_size=8, warmup_steps=1, max_length=32, checkpoint_every=2, precision="fp32")
    finetune_study(model, task, train, root, rows=2, precision="fp32")
    for _ in range(30):
        model.save_pretrained(root / "finetune" / "model")


def pruned(root: Path) -> None:
    task, model = small(), embedded_model()
    means = means_into(root / "means", model, task.train, rows=20, max_length=32)
    config = replace(PruneConfig.desk(0.5, steps=4), batch_size=4, gate_std=2.0, max_length=32, precision="fp32")
    prune_into(root / "pruned", model, task.train, means, config, [42, 43, 44])


def evaluated(root: Path) -> None:
    run = opened(open_pruned(root / "pruned"), embedded_model(), small())
    run.ask(Accuracy())
    run.ask(Attention(_HEADS), Sample(batch_size=32))


def ablated(root: Path) -> None:
    run = opened(open_pruned(root / "pruned"), embedded_model(), small())
    for question in (HeuristicCore(1, 100), Ablation(_HEADS, 2), Pairs(_HEADS, 2), Greedy(2, heads=_HEADS, controls=2)):
        run.ask(question, Sample(4))


def sweep_planned(root: Path) -> None:
    planned(finetuned_source(root), root, LONG)


def swept(root: Path) -> None:
    require_done(Pool(device="cpu", every=0.0).run(Board.open(root / "sweep")))


def world_planted(root: Path) -> None:
    planted_world(SMALL, root / "world")


def studied(root: Path) -> None:
    world = planted_world(SMALL, root / "world")
    source = ModelSource.of(world.directory)
    source = replace(source, source=os.path.relpath(source.source))
    measure_relations(root, [RelationJob(root / "relations", source, each, CONFIG) for each in world.relations[:2]])


LINES = {
    "save": Line(nothing, save),
    "evaluate": Line(pruned, evaluated),
    "ablate": Line(pruned, ablated),
    "sweep": Line(sweep_planned, swept, processes=2),
    "relations": Line(world_planted, studied),
    "namespaces": Line(sweep_planned, swept, processes=2, own_pids=True),
}


def bits(root: Path) -> dict[str, object]:
    """All that was computed, byte by byte: tensors, tables, and the JSON that holds no times."""
    timed = ("run.json", "finished.json", "seconds.json", "running.json", "failed.json", "finetune/*-seed-*.json")
    files = [file for kind in ("safetensors", "parquet", "json") for file in root.rglob(f"*.{kind}")]
    return {str(file.relative_to(root)): content_of(file) for file in files if not any(file.match(each) for each in timed)}


def _child(act: Callable[[Path], None], root: Path, own_pids: bool, log: Path) -> None:
    """Act, as the first process of a container if asked to: its number is then 1, and so is that of every other."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    torch.set_num_threads(1)
    os.chdir(root)
    if own_pids:
        if ctypes.CDLL(None, use_errno=True).unshare(_NEW_PIDS):
            raise OSError(ctypes.get_errno(), "unshare")
        if inner := os.fork():
            signal.signal(signal.SIGTERM, lambda number, frame: os.kill(inner, number))
            os._exit(os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]) & 255)
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: die with the process outside
    act(Path())


def _start(line: Line, root: Path, log: Path) -> list[BaseProcess]:
    started = [_FORKS.Process(target=_child, args=(line.act, root, line.own_pids, log)) for _ in range(line.processes)]
    for process in started:
        process.start()
    return started


def _end(line: Line, root: Path, log: Path) -> list[int | None]:
    """Run it to its end; the exit codes."""
    started = _start(line, root, log)
    for process in started:
        process.join()
    return [process.exitcode for process in started]


@dataclass(frozen=True)
class Found:
    """What came of the points of a line: how many processes were killed, and what was wrong."""

    points: int
    kills: int
    seconds: float
    wrong: list[str]


def kill_points(name: str, points: int, root: Path, seed: int = 0) -> Found:
    """Kill a line at random moments, once each, let it end, and compare with a line that was left alone."""
    line, dice, log = LINES[name], random.Random(f"{name} {seed}"), root / "log"
    start = time.monotonic()
    prepared, whole = root / "prepared", root / "whole"
    prepared.mkdir()
    preparing = _FORKS.Process(target=_child, args=(line.prepare, prepared, False, log))
    preparing.start()
    preparing.join()
    shutil.copytree(prepared, whole, symlinks=True)
    begun = time.monotonic()
    codes = _end(line, whole, log)
    took = time.monotonic() - begun
    if preparing.exitcode or any(codes):
        return Found(0, 0, time.monotonic() - start, [f"does not end undisturbed: {codes}; {log.read_text()[-2000:]}"])
    expected, kills, wrong = bits(whole), 0, list[str]()
    for point in range(points):
        copy = root / f"point-{point}"
        shutil.copytree(prepared, copy, symlinks=True)
        moment, number = dice.uniform(0, took), dice.choice((signal.SIGKILL, signal.SIGTERM))
        started = _start(line, copy, log)
        time.sleep(moment)
        for process in started:
            if process.is_alive():
                os.kill(process.pid or 0, number)
                kills += 1
        for process in started:
            process.join(60)
        if alive := [process for process in started if process.is_alive()]:
            wrong.append(f"point {point}: {number.name} does not end it")
            for process in alive:
                process.kill()
        codes = _end(line, copy, log)
        found = bits(copy)
        if any(codes):
            wrong.append(f"point {point}, {number.name} after {moment:.2f} s: ends with {codes}; {log.read_text()[-1000:]}")
        elif different := [file for file in expected.keys() | found.keys() if expected.get(file) != found.get(file)]:
            wrong.append(f"point {point}, {number.name} after {moment:.2f} s: {sorted(different)[:5]} differ")
        elif left := list(copy.rglob(".*.tmp")):
            wrong.append(f"point {point}, {number.name} after {moment:.2f} s: leaves {left[:3]}")
        else:
            shutil.rmtree(copy)
    return Found(points, kills, time.monotonic() - start, wrong)


def main() -> None:
    """Kill what was asked for, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--lines", nargs="+", choices=list(LINES), default=list(LINES))
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    wrong = 0
    for name in args.lines:
        with tempfile.TemporaryDirectory(prefix=f"kill-points-{name}-") as root:
            found = kill_points(name, args.points, Path(root), args.seed)
        print(f"{name}: {found.points} points, {found.kills} processes killed, {found.seconds:.0f} s, {len(found.wrong)} wrong")
        for text in found.wrong:
            print(f"  {text}", flush=True)
        wrong += len(found.wrong)
    raise SystemExit(1 if wrong else 0)


if __name__ == "__main__":
    main()
