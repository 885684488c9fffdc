"""Memory stays flat over many calls of what is called many times."""

import gc
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import psutil
import pytest

from hc_lens import ablate, evaluate
from hc_lens.analysis import single_heads
from hc_lens.data import synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.pruning import PruneConfig, prune
from hc_lens.study import embedded_model

KINDS = ("prune", "evaluate", "ablate")


def calls() -> dict[str, Callable[[], object]]:
    model, task = embedded_model(), synthetic_nli(n_train=40, n_id=4, n_ood_per_case=1)
    means = ActivationMeans.collect(model, task.train, max_length=32)
    config = replace(PruneConfig.desk(0.5, steps=2), batch_size=4, gate_std=2.0, max_length=32)
    subnetworks = prune(model, task.train, means, config, seeds=[42]).subnetworks
    heads = single_heads(means)[:3]
    return {
        "prune": lambda: prune(model, task.train, means, config, seeds=[42]),
        "evaluate": lambda: evaluate(model, task, subnetworks, max_length=32),
        "ablate": lambda: ablate(model, task, means, heads, max_length=32),
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
@pytest.mark.parametrize("kind", KINDS)
def test_two_hundred_calls_do_not_grow(kind: str) -> None:
    assert growth(calls()[kind], warm=40, times=160) < 20_000, "3 MB over all of them"
