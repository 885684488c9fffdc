"""Seconds that `import hc_lens` and `hc-lens --help` take, beside the start of a bare Python.

`python -m experiments.bench.import_time [--quick]`; the last line is JSON. Wall time of a fresh process, from start to end.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

import tyro

from experiments.bench.timing import report, rounded

COMMANDS = {
    "bare_python": [sys.executable, "-c", "pass"],
    "import_hc_lens": [sys.executable, "-c", "import hc_lens"],
    "hc_lens_help": [str(Path(sys.executable).with_name("hc-lens")), "--help"],
}


def measure(rounds: int, *, quick: bool = False) -> str:
    """Start each command `rounds` times, in turn, after one start that does not count; report in one line of JSON."""
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for k in range(rounds + 1):
        for name, command in COMMANDS.items():
            start = time.perf_counter()
            subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
            if k:
                seconds[name].append(time.perf_counter() - start)
    median = {name: rounded(statistics.median(each)) for name, each in seconds.items()}
    return report(bench="import_time", quick=quick, wall_seconds=median, rounds=rounds)


def main(quick: bool = False) -> None:
    """Time the imports.

    Args:
        quick: 3 rounds instead of 15.
    """
    print(measure(3 if quick else 15, quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
