"""What pruning with twelve seeds costs in one call, beside twelve calls, and that memory keeps to its budget.

`python -m experiments.bench.parallel_seeds [--quick]`; the last line is JSON. An example is one seed: its share of the
teacher's pass, the packing of weights and every step. `together_over_alone` is one call over twelve calls, in CPU seconds and
in wall time, on the embedded model (the demo's recipe) and at BERT-base size (MNLI lengths, batches of 32, a few steps);
`same_masks` says whether both gave the same subnetworks. `budgets` is, for the embedded model and some `memory_gib`, how many
seeds share a pass and the peak that pruning adds to the resident memory.
"""

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import tyro
from transformers import BertConfig

from experiments.bench.batches import mnli_pairs
from experiments.bench.memory import reset_peak, status_bytes
from experiments.bench.timing import Cost, interleaved, medians, ratio, report
from experiments.bench.workloads import bert
from hc_lens.data import Encoded, synthetic_nli
from hc_lens.forward import inputs_of
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier, load_model
from hc_lens.pruning import PruneConfig, prune
from hc_lens.pruning.training import runs_together
from hc_lens.sample import Sample
from hc_lens.study import DEMO, embedded_model
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        seeds: pruned in one call, or one by one.
        steps: of the embedded model's pruning.
        layers, base_steps: at BERT-base size.
        budgets: `memory_gib` of which the peak is measured.
        rounds: that count, after one that does not.
        hf_config: another model in BERT-base's place (tests).
    """

    seeds: int = 12
    steps: int = 200
    layers: int = 12
    base_steps: int = 2
    budgets: tuple[float, ...] = (0.05, 0.1, 0.2)
    rounds: int = 3
    hf_config: BertConfig | None = None


QUICK = Setting(steps=15, layers=2, base_steps=1, rounds=1)


class Pruning:
    """Seeds pruned in calls of so many."""

    def __init__(
        self, model: Classifier, data: Encoded, means: ActivationMeans, config: PruneConfig, calls: Sequence[Sequence[int]]
    ) -> None:
        self.model, self.data, self.means, self.config, self.calls = model, data, means, config, calls
        self.examples = sum(map(len, calls))
        self.found: list[Subnetwork] = []

    def ready(self) -> AbstractContextManager[object]:
        """Nothing: all that a call does counts."""
        return nullcontext()

    def run(self) -> None:
        """Every seed once."""
        results = [prune(self.model, self.data, self.means, self.config, seeds) for seeds in self.calls]
        self.found = [sub for result in results for sub in result.subnetworks]


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time both models, and report in one line of JSON."""
    seeds = list(range(42, 42 + setting.seeds))
    small = embedded_model()
    examples = inputs_of(small, synthetic_nli().train)
    # Gates that start undecided: a model that was never trained, or a few steps, must not end in "all open".
    recipe = replace(DEMO.prune[0], steps=setting.steps, ramp_steps=round(0.6 * setting.steps), gate_mean=0.5)
    hf_model = bert(setting.layers, attention="sdpa", config=setting.hf_config)
    pairs, source = mnli_pairs(hf_model.config.vocab_size)
    few = PruneConfig(steps=setting.base_steps, ramp_steps=setting.base_steps, gate_mean=0.5)
    found = {
        "embedded": _compared(small, examples, recipe, seeds, setting.rounds),
        "bert_base": _compared(load_model(hf_model=hf_model), pairs, few, seeds, setting.rounds),
    }
    return report(
        bench="parallel_seeds",
        quick=quick,
        **found,
        budgets=peaks(small, examples, recipe, seeds, setting.budgets) if sys.platform.startswith("linux") else None,
        seeds=len(seeds),
        layers=hf_model.config.num_hidden_layers,
        rounds=setting.rounds,
        lengths=source,
    )


def _compared(model: Classifier, data: Encoded, config: PruneConfig, seeds: Sequence[int], rounds: int) -> dict[str, object]:
    means = ActivationMeans.collect(model, data, sample=Sample(256))
    together = Pruning(model, data, means, config, [seeds])
    alone = Pruning(model, data, means, config, [[seed] for seed in seeds])
    costs: dict[str, list[Cost]] = interleaved({"together": together, "alone": alone}, rounds)
    return {
        "together_over_alone": ratio(costs, "together", "alone"),
        "wall_together_over_alone": ratio(costs, "together", "alone", "wall"),
        "cpu_seconds_per_seed": medians(costs, "cpu"),
        "wall_seconds_per_seed": medians(costs, "wall"),
        "same_masks": together.found == alone.found,
        "runs_together": runs_together(model, data, config),
        "steps": config.steps,
    }


def peaks(
    model: Classifier, data: Encoded, config: PruneConfig, seeds: Sequence[int], budgets: Sequence[float]
) -> list[dict[str, float | int]]:
    """For each budget, in rising order: seeds that share a pass, and MiB that a few steps of pruning add at most."""
    means = ActivationMeans.collect(model, data, sample=Sample(256))
    found: list[dict[str, float | int]] = []
    for budget in sorted(budgets):
        short = replace(config, steps=5, ramp_steps=5, memory_gib=budget)
        loaded = reset_peak()
        prune(model, data, means, short, seeds)
        added = round((status_bytes("VmHWM") - loaded) / 2**20)
        found.append({"memory_gib": budget, "runs_together": runs_together(model, data, short), "peak_mib_added": added})
    return found


def main(quick: bool = False) -> None:
    """Time twelve seeds in one call beside twelve calls.

    Args:
        quick: few steps, 2 layers, one round, in under a minute on a quiet machine with 2 cores.
    """
    print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
