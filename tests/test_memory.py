"""Memory stays flat over many calls of what is called many times."""

import gc
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest

from hc_lens import ablate, evaluate
from hc_lens.analysis import single_heads
from hc_lens.data import synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.pruning import PruneConfig, prune
from hc_lens.sample import Sample
from hc_lens.study import embedded_model


def calls() -> dict[str, Callable[[], object]]:
    model, task = embedded_model(), synthetic_nli(n_train=40, n_id=4, n_ood_per_case=1)
    means = ActivationMeans.collect(model, task.train, sample=Sample(max_length=32))
    config = replace(PruneConfig.desk(0.5, steps=2), batch_size=4, gate_std=2.0, max_length=32)
    subnetworks = prune(model, task.train, means, config, seeds=[42]).subnetworks
    heads = single_heads(means)[:3]
    return {
        "prune": lambda: prune(model, task.train, means, config, seeds=[42]),
        "evaluate": lambda: evaluate(model, task, subnetworks, sample=Sample(max_length=32)),
        "ablate": lambda: ablate(model, task, means, heads, sample=Sample(max_length=32)),
    }


def growth(call: Callable[[], object], warm: int, times: int) -> float:
    """Bytes by which the process grows with each call, by a line through its size after each."""
    process, sizes = psutil.Process(), list[int]()
    for i in range(warm + times):
        call()
        gc.collect()
        if i >= warm:
            sizes.append(process.memory_info().rss)
    return float(np.polyfit(np.arange(times), sizes, 1)[0])


@pytest.mark.slow
def test_two_hundred_calls_do_not_grow() -> None:
    """In a process of its own, for checked annotations have memory of theirs."""
    code = "from tests.test_memory import calls, growth; import json; "
    code += "print(json.dumps({kind: growth(call, 40, 160) for kind, call in calls().items()}))"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[1]
    )
    grown = json.loads(done.stdout.splitlines()[-1])
    assert set(grown) == {"prune", "evaluate", "ablate"}
    assert max(grown.values()) < 60_000, f"10 MB over all of them: {grown}"
