"""Interleaved timing: every round runs every workload, so that a change of the machine's mood falls on all alike."""

import json
import os
import statistics
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from experiments.bench.workloads import Workload
from hc_lens.provenance import provenance


class Cost(NamedTuple):
    """Seconds per example: of CPU, over all threads, and of wall time."""

    cpu: float
    wall: float


def interleaved(
    workloads: Mapping[str, Workload], rounds: int, synchronize: Callable[[], object] = lambda: None
) -> dict[str, list[Cost]]:
    """Seconds per example of each workload in each round, after one that does not count; every second round goes backwards."""
    costs: dict[str, list[Cost]] = {name: [] for name in workloads}
    for k in range(rounds + 1):
        for name in list(workloads) if k % 2 else reversed(list(workloads)):
            with workloads[name].ready():
                synchronize()
                cpu, wall = time.process_time(), time.perf_counter()
                workloads[name].run()
                synchronize()
                cost = Cost(time.process_time() - cpu, time.perf_counter() - wall)
            if k:
                costs[name].append(Cost(*(seconds / workloads[name].examples for seconds in cost)))
    return costs


def medians(costs: Mapping[str, list[Cost]], clock: str) -> dict[str, float]:
    """Median over rounds, to four significant digits, `clock` being "cpu" or "wall"."""
    return {name: rounded(statistics.median(getattr(cost, clock) for cost in each)) for name, each in costs.items()}


def ratio(costs: Mapping[str, list[Cost]], over: str, under: str, clock: str = "cpu") -> float:
    """Median over rounds of one workload's cost over another's in the same round."""
    pairs = zip(costs[over], costs[under], strict=True)
    return rounded(statistics.median(getattr(a, clock) / getattr(b, clock) for a, b in pairs))


def rounded(value: float) -> float:
    """To four significant digits."""
    return float(f"{value:.4g}")


def report(**values: object) -> str:
    """One line of JSON: the values, then threads, machine, versions, date, and the load average of the last minute."""
    where = {name: value for name, value in provenance().items() if name not in ("datasets", "pandas")}
    return json.dumps({**values, **where, "load": rounded(os.getloadavg()[0])})
