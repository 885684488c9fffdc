"""What a compact model saves: time, beside the whole model and beside the whole model with the same units gated; and disk.

`python -m experiments.bench.compact_model [--quick]`; the last line is JSON. All run under the same fused inference, in batches
bucketed by length and, for latency, row by row. `heads` has lost 70 % of the heads, `both` 70 % of the MLPs as well; `weights`
says which share of the blocks' weights is left to multiply with, which is what the time can at best come down to.
"""

import tempfile
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
import tyro
from jaxtyping import Bool, Int
from torch import Tensor
from transformers import BertConfig

from experiments.bench.batches import BATCH, epoch, mnli_pairs, typical, widths
from experiments.bench.timing import interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import SEED, Workload, bert
from hc_lens.data.batches import Encoded
from hc_lens.forward import inference
from hc_lens.hooks import Edit, hooked
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier, load_model
from hc_lens.precision import Precision
from hc_lens.sample import Sample
from hc_lens.subnetwork import Subnetwork

REMOVED = 0.7


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        layers: of a model that is BERT-base otherwise.
        batches: of 32 rows in a round, chosen to stand for an epoch bucketed by length.
        single_rows: in a round of passes of one row each.
        rounds: that count, after one that does not.
        hf_config: another model altogether (tests).
    """

    layers: int = 12
    batches: int = 4
    single_rows: int = 16
    rounds: int = 5
    batch: int = BATCH
    hf_config: BertConfig | None = None


QUICK = Setting(layers=4, batches=2, single_rows=8, rounds=2)


class Forward:
    """Passes over fixed batches under fused inference."""

    def __init__(
        self,
        model: Classifier,
        encoded: Encoded,
        rows: Sequence[Int[Tensor, " batch"]],
        precision: Precision = "fp32",
        edits: Sequence[Edit] = (),
    ) -> None:
        self.model, self.precision, self.edits = model, precision, edits
        self.batches = [encoded.batch(each) for each in rows]
        self.examples = sum(len(batch) for batch in self.batches)

    @contextmanager
    def ready(self) -> Generator[None]:
        """The weights packed and the edits in place."""
        with inference(self.model, self.precision, narrow=True), hooked(self.model, self.edits):
            yield

    def run(self) -> None:
        """Every batch once."""
        for batch in self.batches:
            self.model(batch)


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time everything, and report in one line of JSON."""
    hf_model = bert(setting.layers, attention="sdpa", config=setting.hf_config)
    encoded, source = mnli_pairs(hf_model.config.vocab_size)
    order = epoch(encoded.lengths, setting.batch)
    rows = typical(order, encoded.lengths, setting.batches)
    whole = load_model(hf_model=hf_model)
    subs = subnetworks(whole, ActivationMeans.collect(whole, encoded, sample=Sample(setting.batch)))
    started = time.process_time()
    compact = {name: sub.compact(whole) for name, sub in subs.items()}
    building = (time.process_time() - started) / len(subs)
    one_by_one = list(rows.flatten()[:: max(1, rows.numel() // setting.single_rows)][: setting.single_rows].split(1))
    workloads: dict[str, Workload] = {
        "whole": Forward(whole, encoded, list(rows)),
        "whole_bf16": Forward(whole, encoded, list(rows), "bf16"),
        "whole_single": Forward(whole, encoded, one_by_one),
    }
    for name, model in compact.items():
        workloads[name] = Forward(model, encoded, list(rows))
        workloads[f"{name}_gated"] = Forward(whole, encoded, list(rows), edits=subs[name].edits())
        workloads[f"{name}_bf16"] = Forward(model, encoded, list(rows), "bf16")
        workloads[f"{name}_single"] = Forward(model, encoded, one_by_one)
    costs = interleaved(workloads, setting.rounds)
    pairs = {f"{name}_over_{other}": (name, other) for name in subs for other in ("whole", f"{name}_gated")}
    pairs |= {f"{name}_over_whole_{how}": (f"{name}_{how}", f"whole_{how}") for name in subs for how in ("bf16", "single")}
    return report(
        bench="compact_model",
        quick=quick,
        **{name: ratio(costs, *pair) for name, pair in pairs.items()},
        wall={name: ratio(costs, *pair, "wall") for name, pair in pairs.items()},
        weights={name: rounded(_block_weights(model) / _block_weights(whole)) for name, model in compact.items()},
        removed={name: {"heads": _gone(sub.mask[:, :-1]), "mlps": _gone(sub.mask[:, -1:])} for name, sub in subs.items()},
        mib_on_disk=_mib_on_disk(whole, subs),
        building_cpu_seconds=rounded(building),
        cpu_seconds_per_example=medians(costs, "cpu"),
        wall_seconds_per_example=medians(costs, "wall"),
        layers=hf_model.config.num_hidden_layers,
        rounds=setting.rounds,
        lengths=source,
        tokens_per_example=rounded(float(widths(rows, encoded.lengths).double().mean())),
    )


def subnetworks(model: Classifier, means: ActivationMeans) -> dict[str, Subnetwork]:
    """`REMOVED` of the heads, drawn over all layers; and of the MLPs as well."""
    n_layers, n_heads = model.cfg.n_layers, model.cfg.n_heads
    draw = torch.Generator().manual_seed(SEED)
    heads = _kept(n_layers * n_heads, draw).view(n_layers, n_heads)
    mlps = {"heads": torch.ones(n_layers, dtype=torch.bool), "both": _kept(n_layers, draw)}
    return {name: Subnetwork(torch.cat([heads, kept[:, None]], dim=1), means) for name, kept in mlps.items()}


def _kept(n: int, draw: torch.Generator) -> Bool[Tensor, " unit"]:
    return torch.randperm(n, generator=draw) >= round(REMOVED * n)


def _gone(kept: Bool[Tensor, "layer part"]) -> float:
    return rounded(1 - float(kept.double().mean()))


def _block_weights(model: Classifier) -> int:
    return sum(parameter.numel() for name, parameter in model.named_parameters() if name.startswith("blocks."))


def _mib_on_disk(whole: Classifier, subs: dict[str, Subnetwork]) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        written = {"whole": whole.save_pretrained(Path(folder) / "whole")}
        written |= {name: sub.export(Path(folder) / name, whole) for name, sub in subs.items()}
        return {
            name: rounded(sum(file.stat().st_size for file in directory.iterdir()) / 2**20)
            for name, directory in written.items()
        }


def main(quick: bool = False) -> None:
    """Time compact models beside the whole one, and weigh them.

    Args:
        quick: 4 layers and 2 rounds, in under a minute on a quiet machine with 2 cores.
    """
    print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
