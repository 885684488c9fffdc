"""Everything that only a GPU can show, in under ten minutes: the CUDA tests, then the time of a BERT-base pruning step.

`python -m experiments.bench.cuda_check`; the last line is JSON. Without a GPU it says so and exits with code 0.
"""

import statistics
import subprocess
import sys
from pathlib import Path

import torch

from experiments.bench.batches import epoch, mnli_pairs, typical, widths
from experiments.bench.timing import interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import Floor, OurStep, Published, Workload, bert
from hc_lens.means import ActivationMeans
from hc_lens.models import load_model
from hc_lens.sample import Sample

TESTS = Path(__file__).parents[2] / "tests" / "test_cuda.py"
BATCHES, ROUNDS, LAYERS = 8, 10, 12


def run_tests() -> bool:
    """Whether tests/test_cuda.py passes, its output shown."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", str(TESTS)]
    return subprocess.run(command, cwd=TESTS.parents[1]).returncode == 0


def time_steps(layers: int, batches: int, rounds: int, device: str = "cuda") -> dict[str, object]:
    """Seconds per example on the device: ours in fp32 and bf16, the published recipe in fp32, the floor in both."""
    models = {kind: bert(layers, attention=kind).to(device) for kind in ("sdpa", "eager")}
    encoded, source = mnli_pairs(models["sdpa"].config.vocab_size)
    order = epoch(encoded.lengths)
    rows = typical(order, encoded.lengths, batches)
    model = load_model(hf_model=models["sdpa"], device=device)
    means = ActivationMeans.collect(model, encoded, sample=Sample(256))
    workloads: dict[str, Workload] = {
        "published": Published(models["eager"], encoded, rows, means),
        "ours": OurStep(model, encoded, rows, "fp32", rounds + 1, means),
        "floor": Floor(models["sdpa"], encoded, rows),
        "ours_bf16": OurStep(model, encoded, rows, "bf16", rounds + 1, means),
        "floor_bf16": Floor(bert(layers, attention="sdpa").to(device, torch.bfloat16), encoded, rows),
    }
    costs = interleaved(workloads, rounds, torch.cuda.synchronize if device == "cuda" else lambda: None)
    steps = {name: statistics.median(cost.wall for cost in costs[name]) * rows.shape[1] for name in ("ours", "ours_bf16")}
    return {
        "wall_seconds_per_example": medians(costs, "wall"),
        "milliseconds_per_step": {name: rounded(1000 * seconds) for name, seconds in steps.items()},
        "published_over_ours": ratio(costs, "published", "ours", "wall"),
        "published_over_ours_bf16": ratio(costs, "published", "ours_bf16", "wall"),
        "ours_over_floor": ratio(costs, "ours", "floor", "wall"),
        "ours_over_floor_bf16": ratio(costs, "ours_bf16", "floor_bf16", "wall"),
        "tokens_per_example": rounded(float(widths(rows, encoded.lengths).double().mean())),
        "lengths": source,
        "layers": layers,
        "rounds": rounds,
    }


def main() -> None:
    """Check and time."""
    if not torch.cuda.is_available():
        print("no CUDA device: nothing was checked")
        return
    passed = run_tests()
    torch.cuda.reset_peak_memory_stats()
    times = time_steps(LAYERS, BATCHES, ROUNDS)
    print(report(bench="cuda_check", tests_passed=passed, peak_mib=torch.cuda.max_memory_allocated() >> 20, **times))
    if not passed:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
