"""Peak memory of pruning beside that of the floor, and bytes on disk per subnetwork.

`python -m experiments.bench.memory [--quick]`; the last line is JSON. Ours and the floor run in a process each: a model is
loaded, what loading left behind is given back, the peak is reset (Linux), and some batches are run, among them the widest of an
epoch. Ours includes what a pruning run does before its first step: collecting means, the teacher's pass, packing the weights.
"""

import ctypes
import gc
import json
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
import tyro
from transformers import BertConfig

from experiments.bench.batches import drawn_pairs, epoch, mnli_pairs, typical, widest, widths
from experiments.bench.timing import report, rounded
from experiments.bench.workloads import Floor, OurStep, Workload, bert
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier, load_model
from hc_lens.pruning import PruneConfig, prune
from hc_lens.sample import Sample

What = Literal["ours", "floor"]
TYPICAL = 2  # batches besides the widest
SUBNETWORKS = 24


@dataclass(frozen=True)
class Peak:
    """Resident bytes: with the model loaded, and at most while it ran."""

    loaded: int
    peak: int

    @property
    def above(self) -> int:
        """What running took on top of the loaded model."""
        return self.peak - self.loaded


def measure(layers: int, *, quick: bool = False) -> str:
    """Run both children, write the subnetworks, and report in one line of JSON."""
    peaks = {what: _in_child(what, layers) for what in ("ours", "floor")}
    per_mask, of_means = mask_bytes()
    return report(
        bench="memory",
        quick=quick,
        peak_ratio=rounded(peaks["ours"].peak / peaks["floor"].peak),
        peak_above_model_ratio=rounded(peaks["ours"].above / peaks["floor"].above),
        peak_mib={what: round(p.peak / 2**20) for what, p in peaks.items()},
        loaded_mib={what: round(p.loaded / 2**20) for what, p in peaks.items()},
        mask_bytes_per_subnetwork=per_mask,
        means_bytes=of_means,
        subnetworks=SUBNETWORKS,
        layers=layers,
    )


def peak_of(what: What, layers: int) -> Peak:
    """Load a model, forget the peak of loading, run, and read the peak; meant for a process of its own."""
    hf_model = bert(layers, attention="sdpa")
    encoded, _ = mnli_pairs(hf_model.config.vocab_size)
    order = epoch(encoded.lengths)
    rows = torch.cat([typical(order, encoded.lengths, TYPICAL), widest(order, encoded.lengths)])
    print(f"{what}: batches of {rows.shape[1]} rows, {widths(rows, encoded.lengths).tolist()} tokens wide", file=sys.stderr)
    model = load_model(hf_model=hf_model) if what == "ours" else hf_model
    del hf_model
    loaded = reset_peak()
    workload: Workload
    if isinstance(model, Classifier):
        workload = OurStep(model, encoded, rows, "fp32", 1, ActivationMeans.collect(model, encoded, sample=Sample(64)))
    else:
        workload = Floor(model, encoded, rows)
    with workload.ready():
        workload.run()
    return Peak(loaded, status_bytes("VmHWM"))


def mask_bytes() -> tuple[int, int]:
    """Bytes of the largest of `SUBNETWORKS` subnetwork files at BERT-base size, and of the float32 means that all share.

    The subnetworks come from two steps of pruning a model with BERT-base's units, whose heads have one dimension to save time;
    the bytes of the means are reckoned from BERT-base's own dimensions.
    """
    config = BertConfig(
        vocab_size=50,
        hidden_size=12,
        num_hidden_layers=12,
        num_attention_heads=12,
        intermediate_size=12,
        max_position_embeddings=128,
    )
    model, encoded = load_model(hf_model=bert(attention="sdpa", config=config)), drawn_pairs(50, n=64)
    recipe = PruneConfig(steps=2, ramp_steps=1, batch_size=2, gate_mean=0.0, max_length=128)
    means = ActivationMeans.collect(model, encoded)
    result = prune(model, encoded, means, recipe, seeds=range(42, 42 + SUBNETWORKS))
    with tempfile.TemporaryDirectory() as folder:
        sizes = [sub.save(Path(folder) / f"{sub.seed}.safetensors").stat().st_size for sub in result.subnetworks]
    return max(sizes), 12 * (768 + 768) * 4


def _in_child(what: str, layers: int) -> Peak:
    command = [sys.executable, "-m", "experiments.bench.memory", "--child", what, "--layers", str(layers)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return Peak(**json.loads(done.stdout.splitlines()[-1]))


def reset_peak() -> int:
    """Give freed memory back to the system, start the peak anew, and return what is resident now."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def status_bytes(field: str) -> int:
    """A field of /proc/self/status: `VmRSS`, what is resident now, or `VmHWM`, its peak."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(f"{field}:"))
    return int(line.split()[1]) * 1024


def main(quick: bool = False, child: What | None = None, layers: int | None = None) -> None:
    """Measure peak memory and the size of masks.

    Args:
        quick: 2 layers.
        child: for the bench's own use: measure one of the two in this process.
        layers: of a model that is BERT-base otherwise; 12 without `quick`.
    """
    if not sys.platform.startswith("linux"):
        raise SystemExit(f"this bench reads /proc, which {sys.platform} does not have")
    layers = layers or (2 if quick else 12)
    if child is not None:
        peak = peak_of(child, layers)
        print(json.dumps({"loaded": peak.loaded, "peak": peak.peak}))
    else:
        print(measure(layers, quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
