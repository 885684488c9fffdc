"""What `auto` precision costs beside fp32: fine-tuning steps, and the demo as a whole.

`python -m experiments.bench.precision [--quick] [--demo PAIRS]`; the last line is JSON. `ONEDNN_MAX_CPU_ISA=AVX2` in the
environment imitates a CPU without fast bfloat16. `products` is how many times faster products in bf16 are than in fp32, as
`auto` measures it; `step_auto_over_fp32` is of wall time, with what a run of so many steps costs besides.
"""

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from dataclasses import dataclass, replace
from pathlib import Path

import tyro

from experiments.bench.timing import interleaved, ratio, report, rounded
from experiments.bench.workloads import Workload
from hc_lens.data import Task, synthetic_nli
from hc_lens.data.synthetic import LABELS, synthetic_config, synthetic_tokenizer
from hc_lens.machine import bf16_speedup
from hc_lens.models import Classifier, new_model
from hc_lens.precision import Precision, products_of, resolve
from hc_lens.study import DEMO
from hc_lens.train import finetune

WIDTHS = {"embedded": {}, "width_384": {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536}}
"""The demo's model, and one as wide as MiniLM."""


@dataclass
class Steps:
    """Fine-tuning steps of the demo's recipe; a round is a run of its own."""

    model: Classifier
    task: Task
    steps: int
    precision: Precision

    @property
    def examples(self) -> int:
        return self.steps * DEMO.train.batch_size

    @contextlib.contextmanager
    def ready(self) -> Generator[None]:
        yield

    def run(self) -> None:
        """One round."""
        train = replace(
            DEMO.train, steps=self.steps, warmup_steps=0, checkpoint_every=self.steps, precision=self.precision, seed=1
        )
        with tempfile.TemporaryDirectory() as directory:
            finetune(self.model, self.task, train, Path(directory) / "run")


def measure(steps: int, rounds: int, pairs: int, demo: tuple[str, ...] = (), *, quick: bool = False) -> str:
    """Fine-tune in `auto` and fp32 in turn, then run the demo in both in turn; report in one line of JSON."""
    task = synthetic_nli(minority=0.06, n_train=steps * DEMO.train.batch_size, n_id=10, n_ood_per_case=2)
    found: dict[str, dict[str, float | str]] = {}
    for name, shape in WIDTHS.items():
        config = synthetic_config(LABELS)
        config.update(shape)
        model = new_model(config, tokenizer=synthetic_tokenizer())
        ways: dict[str, Workload] = {way: Steps(model, task, steps, way) for way in ("auto", "fp32")}
        costs = interleaved(ways, rounds)
        found[name] = {
            "products": rounded(bf16_speedup(products_of(model, DEMO.train.batch_size, 15))),
            "auto": resolve("auto", model, DEMO.train.batch_size, 15),
            "step_auto_over_fp32": ratio(costs, "auto", "fp32", "wall"),
        }
    demos = [tuple(_demo(way, demo) for way in ("auto", "fp32")[:: 1 if k % 2 else -1]) for k in range(pairs)]
    ordered = [seconds if k % 2 else seconds[::-1] for k, seconds in enumerate(demos)]
    return report(
        bench="precision",
        quick=quick,
        isa=os.environ.get("ONEDNN_MAX_CPU_ISA", "all"),
        models=found,
        demo_seconds=[[rounded(a), rounded(b)] for a, b in ordered],
        demo_auto_over_fp32=rounded(statistics.median(a / b for a, b in ordered)) if ordered else None,
        steps=steps,
        rounds=rounds,
    )


def _demo(way: str, options: tuple[str, ...]) -> float:
    """Seconds of `hc-lens demo` in a fresh process and an empty directory."""
    with tempfile.TemporaryDirectory() as directory:
        command = [sys.executable, "-m", "hc_lens.cli", "demo", "--precision", way, *options, "--out", f"{directory}/demo"]
        start = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return time.perf_counter() - start


def main(quick: bool = False, demo: int = 0) -> None:
    """Time `auto` beside fp32.

    Args:
        quick: fewer steps and rounds, and a demo of few steps.
        demo: so many pairs of demos, of about six minutes.
    """
    small = ("--train-steps", "20", "--prune-steps", "20", "--seeds", "42..43")
    print(measure(10, 1, demo, small, quick=True) if quick else measure(60, 5, demo))


if __name__ == "__main__":
    tyro.cli(main)
