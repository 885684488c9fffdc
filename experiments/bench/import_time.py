"""How long commands take that compute nothing, and others until they compute, beside `import torch` and TransformerLens.

`python -m experiments.bench.import_time [--quick]`; the last line is JSON. CPU seconds of fresh processes, start to end. Ratios
are medians over rounds, each of two processes of the same round.
"""

import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import tyro

from experiments.bench.timing import report, rounded
from hc_lens.cli import COMMANDS

_MAIN = "import sys\nfrom hc_lens.cli import main\nmain(sys.argv[1:])"

_UNTIL_COMPUTING = """
import sys
import torch

def stop(*args, **kwargs):
    print("computing")
    raise SystemExit

torch.nn.Module.__call__ = stop
from hc_lens.cli import main
main(sys.argv[1:])
"""
"""The command up to the first forward pass of anything."""

TINY = {
    "finetune": ["--limit", "100", "--steps", "8", "--batch-size", "8", "--checkpoint-every", "4", "--eval-rows", "4"],
    "prune": ["--steps", "20", "--gate-std", "2", "--batch-size", "8", "--means-rows", "20", "--max-length", "32"],
    "sweep": [
        *("--seeds", "1..2", "--sparsities", "0.5", "--workers", "1", "--prune-steps", "20", "--prune-gate-std", "2"),
        *("--prune-batch-size", "8", "--means-rows", "20", "--max-rows", "4"),
    ],
}
"""A fine-tuned model, what is pruned of it and a sweep, each in a moment."""

GOALS = {"help": 0.4, "refusal": 1.0, "show": 1.0, "status": 1.0, "measured": 2.0, "computing": 1.1}
"""At most so much of `import torch`; `computing` of `import transformer_lens`."""


def measure(rounds: int, *, quick: bool = False) -> str:
    """Start each command `rounds` times, in turn, after one start that does not count; report in one line of JSON."""
    with tempfile.TemporaryDirectory() as directory:
        commands = _commands(_runs(Path(directory)), COMMANDS if not quick else ("prune", "core"))
        seconds: dict[str, list[float]] = {name: [] for name in commands}
        for k in range(rounds + 1):
            for name in list(commands) if k % 2 else reversed(list(commands)):
                spent = _cpu_seconds(commands[name], directory)
                if k:
                    seconds[name].append(spent)
    ratios = {name: _ratio(seconds, name) for name in commands if ":" in name}
    kinds = {kind: max(value for name, value in ratios.items() if name.startswith(f"{kind}:")) for kind in GOALS}
    median = {name: rounded(statistics.median(each)) for name, each in seconds.items()}
    return report(bench="import_time", quick=quick, worst=kinds, goals=GOALS, ratios=ratios, cpu_seconds=median, rounds=rounds)


def _ratio(seconds: Mapping[str, Sequence[float]], name: str) -> float:
    under = "import transformer_lens" if name.startswith("computing:") else "import torch"
    return rounded(statistics.median(a / b for a, b in zip(seconds[name], seconds[under], strict=True)))


def _runs(root: Path) -> dict[str, str]:
    """A fine-tuned model, two pruning runs of it that have been measured, and a sweep."""
    places = {name: str(root / name) for name in ("ft", "pruned", "second", "sweep")}
    made = [
        ["finetune", *TINY["finetune"], "--out", places["ft"]],
        ["prune", places["ft"], *TINY["prune"], "--seeds", "1..3", "--out", places["pruned"]],
        ["prune", places["ft"], *TINY["prune"], "--seeds", "4..6", "--out", places["second"]],
        *(["evaluate", places[run], "--max-rows", "4"] for run in ("pruned", "second")),
        ["core", places["pruned"]],
        ["ablate", places["pruned"], "--max-rows", "4", "--controls", "2"],
        ["sweep", places["ft"], *TINY["sweep"], "--out", places["sweep"]],
    ]
    for words in made:
        subprocess.run([sys.executable, "-c", _MAIN, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
    return places


def _commands(runs: Mapping[str, str], helped: Sequence[str]) -> dict[str, list[str]]:
    """What is started, by its name: the kind before the colon."""
    ft, pruned, new = runs["ft"], runs["pruned"], str(Path(runs["ft"]).with_name("new"))
    asked = {
        **{f"help: {name}": [name, "--help"] for name in helped},
        "refusal: no run": ["core", "nowhere"],
        "refusal: number": ["ablate", pruned, "--max-rows", "0"],
        "refusal: option": ["finetune", "--no-such-option"],
        "refusal: prime": ["modular", "corrupted", "--p", "4"],
        "show: fine-tuning": ["show", ft],
        "show: pruning": ["show", pruned],
        "status: sweep": ["sweep", runs["sweep"], "--status"],
        "measured: core": ["core", pruned],
        "measured: compare": ["compare", pruned, runs["second"]],
        "measured: report": ["report", pruned],
    }
    computing = {
        "computing: evaluate": ["evaluate", pruned, "--max-rows", "5"],
        "computing: ablate": ["ablate", pruned, "--max-rows", "5"],
        "computing: attention": ["attention", pruned, "--max-rows", "5"],
        "computing: prune": ["prune", ft, *TINY["prune"], "--means-rows", "10", "--seeds", "7", "--out", new],
        "computing: finetune": ["finetune", *TINY["finetune"], "--seed", "7", "--out", new],
    }
    python = [sys.executable, "-c"]
    return {
        "import torch": [*python, "import torch"],
        "import transformer_lens": [*python, "import transformer_lens"],
        **{name: [*python, _MAIN, *words] for name, words in asked.items()},
        **{name: [*python, _UNTIL_COMPUTING, *words] for name, words in computing.items()},
    }


def _cpu_seconds(command: Sequence[str], directory: str) -> float:
    """Of one process and those it starts."""
    before = os.times()
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False, cwd=directory)
    after = os.times()
    return after.children_user - before.children_user + after.children_system - before.children_system


def main(quick: bool = False) -> None:
    """Time the imports.

    Args:
        quick: 1 round instead of 5, and the help of two commands.
    """
    print(measure(1 if quick else 5, quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
