"""How the cost of `evaluate` grows: with the examples in time and in memory, and with the subnetworks.

`python -m experiments.bench.evaluation_growth [--quick]`; the last line is JSON. Time is from text to table; that per example
at 4 n and 16 n rows, over that at n, would be 1 if it were linear. What is paid once, and the padding of few batches, weigh
less and less, so that it comes out below. `subnetworks_over_full_passes` is what K subnetworks with half of their units add
to the evaluation of the full model, over K times that evaluation. Memory is measured in a process for each size (Linux): by
how much the peak rises from n rows to 16 n, per row, and how many bytes of that the encoded row is.
"""

import json
import random
import statistics
import subprocess
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
import tyro
from transformers import BertConfig

from experiments.bench.batches import LOG_MEAN, LOG_STD, MAX_LENGTH, SHORTEST
from experiments.bench.memory import reset_peak, status_bytes
from experiments.bench.timing import Cost, interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import SEED, Workload
from hc_lens.data import Split, Task
from hc_lens.data.synthetic import LABELS, synthetic_tokenizer
from hc_lens.forward import inputs_of
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier, new_model
from hc_lens.sample import Sample
from hc_lens.subnetwork import Subnetwork

GROWTH = (1, 4, 16)


@dataclass(frozen=True)
class Setting:
    """What is measured.

    Attributes:
        layers: of a model that is BERT-base otherwise, but for its vocabulary; memory is measured with a small model.
        rows: n, of which time is measured at 1, 4 and 16 times.
        memory_rows: n, of which memory is measured at 1 and 16 times.
        subnetworks: K.
        rounds: that count, after one that does not.
        width: of the model, at 64 components per head.
    """

    layers: int = 2
    rows: int = 512
    memory_rows: int = 4_000
    subnetworks: int = 4
    rounds: int = 3
    width: int = 768


QUICK = Setting(rows=256, memory_rows=1_000, rounds=1, width=256)


class Evaluation:
    """`evaluate` of a model and its subnetworks on all rows of a task."""

    def __init__(self, model: Classifier, task: Task, subnetworks: Sequence[Subnetwork] = ()) -> None:
        self.model, self.task, self.subnetworks = model, task, subnetworks
        self.examples = len(task.train)

    def ready(self) -> AbstractContextManager[object]:
        """Nothing: what an evaluation prepares is part of its cost."""
        return nullcontext()

    def run(self) -> None:
        """The whole table."""
        evaluate(self.model, self.task, self.subnetworks, trained=False)


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time everything, run the children, and report in one line of JSON."""
    model = bert_of_words(setting.layers, setting.width)
    tasks = {times: drawn_task(times * setting.rows) for times in GROWTH}
    subs = half_of_the_units(model, tasks[1], setting.subnetworks)
    workloads: dict[str, Workload] = {f"{times}n": Evaluation(model, task) for times, task in tasks.items()}
    workloads["subnetworks"] = Evaluation(model, tasks[4], subs)
    costs = interleaved(workloads, setting.rounds)
    return report(
        bench="evaluation_growth",
        quick=quick,
        seconds_4n_over_n=ratio(costs, "4n", "1n"),
        seconds_16n_over_n=ratio(costs, "16n", "1n"),
        subnetworks_over_full_passes=added_per_pass(costs["subnetworks"], costs["4n"], len(subs)),
        memory=_growth_of_memory(setting.memory_rows) if sys.platform.startswith("linux") else None,
        cpu_seconds_per_example=medians(costs, "cpu"),
        wall_seconds_per_example=medians(costs, "wall"),
        rows={name: workload.examples for name, workload in workloads.items()},
        subnetworks=len(subs),
        layers=setting.layers,
        width=setting.width,
        rounds=setting.rounds,
        lengths=f"random words, quantiles of exp N({LOG_MEAN}, {LOG_STD}^2) in {SHORTEST}..{MAX_LENGTH}",
    )


def added_per_pass(together: Sequence[Cost], full: Sequence[Cost], n: int) -> float:
    """Median over rounds: what n subnetworks add to the full model's evaluation, over n of it."""
    return rounded(statistics.median((both.cpu - one.cpu) / (n * one.cpu) for both, one in zip(together, full, strict=True)))


def bert_of_words(layers: int, width: int) -> Classifier:
    """A BERT of random weights for the words of the embedded task."""
    tokenizer = synthetic_tokenizer()
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        num_hidden_layers=layers,
        num_attention_heads=width // 64,
        intermediate_size=4 * width,
        max_position_embeddings=MAX_LENGTH,
    )
    return new_model(config, labels=LABELS, tokenizer=tokenizer, seed=SEED)


def drawn_task(n: int) -> Task:
    """Pairs of random words whose lengths are the n quantiles of the stated distribution, so that every n has the same mix."""
    draw = random.Random(SEED)
    words = sorted(word for word in synthetic_tokenizer().get_vocab() if word.isalpha())
    normal = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n)
    lengths = (LOG_MEAN + LOG_STD * normal).exp().round().clamp(SHORTEST, MAX_LENGTH).long()[torch.randperm(n)]
    texts = [draw.choices(words, k=length - 3) for length in lengths.tolist()]  # [CLS] and twice [SEP]
    pairs = [(text[: 2 * len(text) // 3], text[2 * len(text) // 3 :]) for text in texts]
    first, second = (tuple(" ".join(pair[i]) for pair in pairs) for i in (0, 1))
    split = Split("drawn", first, second, tuple(i % len(LABELS) for i in range(n)), LABELS, tuple(range(len(LABELS))))
    return Task("drawn", LABELS, split, {"drawn": split}, {})


def half_of_the_units(model: Classifier, task: Task, n: int) -> list[Subnetwork]:
    """Random subnetworks, each with half of all heads and MLPs."""
    means = ActivationMeans.collect(model, task.train, sample=Sample(32))
    units = model.cfg.n_layers * (model.cfg.n_heads + 1)
    draw = torch.Generator().manual_seed(SEED)
    masks = [torch.randperm(units, generator=draw) < units // 2 for _ in range(n)]
    return [Subnetwork(mask.view(model.cfg.n_layers, -1), means, seed) for seed, mask in enumerate(masks)]


def _growth_of_memory(rows: int) -> dict[str, float]:
    few, many = (_in_child(times * rows) for times in (GROWTH[0], GROWTH[-1]))
    more = (GROWTH[-1] - GROWTH[0]) * rows
    return {
        "peak_ratio": rounded(many["peak"] / few["peak"]),
        "growth_bytes_per_row": rounded((many["above"] - few["above"]) / more),
        "data_bytes_per_row": rounded(many["data"] / (GROWTH[-1] * rows)),
        "rows": rows,
        "more_rows": GROWTH[-1] * rows,
    }


def _in_child(rows: int) -> dict[str, int]:
    command = [sys.executable, "-m", "experiments.bench.evaluation_growth", "--child-rows", str(rows)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def peak_over(rows: int) -> dict[str, int]:
    """Bytes: the peak while `rows` rows, encoded before, are evaluated; what that is above before; and the encoded rows."""
    model, task = bert_of_words(layers=1, width=64), drawn_task(rows)
    evaluate(model, task, sample=Sample(256), trained=False)  # what the first evaluation loads for good
    encoded = inputs_of(model, task.train, MAX_LENGTH)
    parts = (encoded.tokens, encoded.token_types, encoded.lengths, encoded.labels)
    before = reset_peak()
    evaluate(model, task, trained=False)
    peak = status_bytes("VmHWM")
    return {"peak": peak, "above": peak - before, "data": sum(part.nbytes for part in parts if part is not None)}


def main(quick: bool = False, child_rows: int | None = None) -> None:
    """Measure how evaluation grows.

    Args:
        quick: a narrow model, fewer rows and one round, in under a minute on a quiet machine with 2 cores.
        child_rows: for the bench's own use: measure memory over that many rows in this process.
    """
    if child_rows is not None:
        print(json.dumps(peak_over(child_rows)))
    else:
        print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
