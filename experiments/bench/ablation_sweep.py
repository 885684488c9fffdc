"""What all single-head ablations cost, beside the naive loop over heads and beside their first-order estimate.

`python -m experiments.bench.ablation_sweep [--quick]`; the last line is JSON. An example is one row under one ablation. `ours`
is `hc_lens.ablate` of every head, exact, its pass over the full model included. `naive` is what a user of TransformerLens would
write, `run_with_hooks` for each head and batch without gradients; `naive_fused` is that loop under our fused inference. Every
head costs a loop the same, so that at BERT-base size one head per layer stands for all. `estimate` is `first_order_effects`.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import tyro
from torch import Tensor
from transformers import BertConfig

from experiments.bench.batches import epoch, mnli_pairs, typical, widths
from experiments.bench.timing import Cost, interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import Workload, bert
from hc_lens.analysis import ablate, first_order_effects, single_heads
from hc_lens.data import Encoded, synthetic_nli
from hc_lens.data.batches import Batch
from hc_lens.forward import inference, inputs_of
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier, load_model
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.units import Head


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        layers: of a model that is BERT-base otherwise.
        rows, batch: at BERT-base size; few, and of MNLI's lengths.
        embedded_rows, embedded_batch: of the embedded task.
        rounds: that count, after one that does not.
        hf_config: another model in BERT-base's place (tests).
    """

    layers: int = 12
    rows: int = 16
    batch: int = 16
    embedded_rows: int = 128
    embedded_batch: int = 64
    rounds: int = 3
    hf_config: BertConfig | None = None


QUICK = Setting(layers=3, rows=8, batch=8, embedded_rows=64, rounds=1)


class NaiveLoop:
    """Each head alone, one pass of the whole model per head and batch; with `fused`, by our fused blocks."""

    def __init__(
        self, model: Classifier, data: Encoded, batch: int, means: ActivationMeans, heads: Sequence[Head], *, fused: bool
    ) -> None:
        self.model, self.fused = model.eval(), fused
        self.examples = len(data) * len(heads)
        self._batches: list[Batch] = list(data.batches(batch))
        self._hooks = [[(edit.point, edit.apply) for edit in means.edits([head])] for head in heads]
        self.logits = torch.empty(len(heads), len(data), len(model.label_names))

    def ready(self) -> AbstractContextManager[object]:
        """Nothing, or the model fused."""
        return inference(self.model) if self.fused else nullcontext()

    def run(self) -> None:
        """Every head once."""
        with torch.no_grad():
            for place, hooks in enumerate(self._hooks):
                for batch in self._batches:
                    self.logits[place, batch.rows] = self.model.run_with_hooks(batch, fwd_hooks=hooks)


class Together:
    """Every head of the model alone: exactly by `ablate`, or estimated by `first_order_effects`."""

    def __init__(self, model: Classifier, data: Encoded, batch: int, means: ActivationMeans, *, estimate: bool) -> None:
        self.model, self.data, self.batch, self.means, self.estimate = model, data, batch, means, estimate
        self.examples = len(data) * means.n_layers * means.n_heads

    def ready(self) -> AbstractContextManager[object]:
        """Nothing: packing the weights counts."""
        return nullcontext()

    def run(self) -> None:
        """Every head once."""
        if self.estimate:
            first_order_effects(self.model, self.data, self.means, metric=first_logit, sample=Sample(batch_size=self.batch))
        else:
            groups = single_heads(self.means)
            self.found = ablate(
                self.model, self.data, self.means, groups, metric=first_logit, sample=Sample(batch_size=self.batch)
            )


def first_logit(logits: Tensor, batch: Batch) -> Tensor:
    """The measured value: any function of the logits costs the same."""
    return logits[:, 0]


def workloads(model: Classifier, data: Encoded, batch: int, *, one_per_layer: bool) -> dict[str, Workload]:
    """The four ways, on the same rows in the same batches."""
    means = ActivationMeans.collect(model, data)
    heads = [head for (head,) in single_heads(means) if not one_per_layer or head.index == 0]
    return {
        "naive": NaiveLoop(model, data, batch, means, heads, fused=False),
        "naive_fused": NaiveLoop(model, data, batch, means, heads, fused=True),
        "ours": Together(model, data, batch, means, estimate=False),
        "estimate": Together(model, data, batch, means, estimate=True),
    }


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time both models, and report in one line of JSON."""
    hf_model = bert(setting.layers, attention="sdpa", config=setting.hf_config)
    pairs, source = mnli_pairs(hf_model.config.vocab_size)
    order = epoch(pairs.lengths, setting.batch)
    rows = typical(order, pairs.lengths, setting.rows // setting.batch)
    small = embedded_model()
    examples = inputs_of(small, synthetic_nli().train)
    few = torch.arange(setting.embedded_rows)
    sized = {
        "bert_base": workloads(load_model(hf_model=hf_model), taken(pairs, rows.flatten()), setting.batch, one_per_layer=True),
        "embedded": workloads(small, taken(examples, few), setting.embedded_batch, one_per_layer=False),
    }
    found = {name: interleaved(ways, setting.rounds) for name, ways in sized.items()}
    return report(
        bench="ablation_sweep",
        quick=quick,
        **{name: _ratios(costs) for name, costs in found.items()},
        examples={name: {way: w.examples for way, w in ways.items()} for name, ways in sized.items()},
        layers=hf_model.config.num_hidden_layers,
        rounds=setting.rounds,
        lengths=source,
        tokens_per_example=rounded(float(widths(rows, pairs.lengths).double().mean())),
    )


def taken(data: Encoded, rows: Tensor) -> Encoded:
    """These rows alone."""
    batch = data.batch(rows)
    real = batch.attention_mask.bool()
    types = None if batch.token_type_ids is None else batch.token_type_ids[real].to(torch.int8)
    tokens = batch.input_ids[real].to(torch.int32)
    return Encoded(tokens, types, data.lengths[rows], None, data.pad_id, f"{data.fingerprint} {len(rows)}")


def _ratios(costs: dict[str, list[Cost]]) -> dict[str, object]:
    return {
        "ours_over_naive": ratio(costs, "ours", "naive"),
        "ours_over_naive_fused": ratio(costs, "ours", "naive_fused"),
        "estimate_over_ours": ratio(costs, "estimate", "ours"),
        "wall": {
            "ours_over_naive": ratio(costs, "ours", "naive", "wall"),
            "ours_over_naive_fused": ratio(costs, "ours", "naive_fused", "wall"),
            "estimate_over_ours": ratio(costs, "estimate", "ours", "wall"),
        },
        "cpu_seconds_per_example": medians(costs, "cpu"),
        "wall_seconds_per_example": medians(costs, "wall"),
    }


def main(quick: bool = False) -> None:
    """Time all single-head ablations beside the naive loop.

    Args:
        quick: 3 layers, fewer rows and one round, in under a minute on a quiet machine with 2 cores.
    """
    print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
