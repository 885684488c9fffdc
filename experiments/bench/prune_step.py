"""CPU seconds per example of our pruning step, of the recipe as published, and of the floor under both.

`python -m experiments.bench.prune_step [--quick]`; the last line is JSON. `published_over_ours` is the published recipe in fp32
over our step in fp32, `published_over_ours_bf16` over our step in bf16 (its gates, KL and Lagrangian are fp32 all the same).
`share_of_gemm_peak` is the rate of our step, in counted floating-point operations, over that of one large matrix product in the
same rounds; `profile` is where a step's own CPU time goes; `masks` is what bf16 changes in the outcome.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import tyro
from transformers import BertConfig

from experiments.bench.arithmetic import Gemm, total_flops
from experiments.bench.batches import BATCH, epoch, mnli_pairs, typical, widths
from experiments.bench.masks import mask_change
from experiments.bench.timing import interleaved, medians, ratio, report, rounded
from experiments.bench.workloads import Floor, OurStep, Published, Workload, bert
from hc_lens.means import ActivationMeans
from hc_lens.models import load_model
from hc_lens.sample import Sample


@dataclass(frozen=True)
class Setting:
    """What is timed.

    Attributes:
        layers: of a model that is BERT-base otherwise.
        batches: of 32 rows in a round of ours and of the floor, chosen to stand for an epoch bucketed by length.
        published_batches: in a round of the published recipe, whose cost does not depend on lengths: all are padded to 128.
        rounds: that count, after one that does not.
        hf_config: another model altogether (tests).
        mask_steps: of fine-tuning and of pruning the embedded model, to compare masks; None to leave that out.
    """

    layers: int = 12
    batches: int = 8
    published_batches: int = 1
    rounds: int = 5
    batch: int = BATCH
    hf_config: BertConfig | None = None
    mask_steps: tuple[int, int] | None = (600, 200)


QUICK = Setting(layers=4, batches=3, rounds=2, mask_steps=None)
TOP = 10  # operations of a profile that are reported


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time everything, and report in one line of JSON."""
    hf_model = bert(setting.layers, attention="sdpa", config=setting.hf_config)
    encoded, source = mnli_pairs(hf_model.config.vocab_size)
    order = epoch(encoded.lengths, setting.batch)
    rows = typical(order, encoded.lengths, setting.batches)
    model = load_model(hf_model=hf_model)
    means = ActivationMeans.collect(model, encoded, sample=Sample(setting.batch))
    kinds: tuple[Literal["fp32", "bf16"], ...] = ("fp32", "bf16")
    ours = {kind: OurStep(model, encoded, rows, kind, setting.rounds + 2, means) for kind in kinds}
    eager = bert(setting.layers, attention="eager", config=setting.hf_config)
    low = bert(setting.layers, attention="sdpa", config=setting.hf_config).to(torch.bfloat16)
    config = hf_model.config
    workloads: dict[str, Workload] = {
        "published": Published(eager, encoded, rows[-setting.published_batches :], means),
        "ours": ours["fp32"],
        "floor": Floor(hf_model, encoded, rows),
        "ours_bf16": ours["bf16"],
        "floor_bf16": Floor(low, encoded, rows),
        "gemm": Gemm(config, torch.float32),
        "gemm_bf16": Gemm(config, torch.bfloat16),
    }
    costs = interleaved(workloads, setting.rounds)
    per_example = total_flops(config, widths(rows, encoded.lengths), setting.batch) / rows.numel()
    return report(
        bench="prune_step",
        quick=quick,
        published_over_ours=ratio(costs, "published", "ours"),
        published_over_ours_bf16=ratio(costs, "published", "ours_bf16"),
        ours_over_floor=ratio(costs, "ours", "floor"),
        ours_over_floor_bf16=ratio(costs, "ours_bf16", "floor_bf16"),
        wall={
            "published_over_ours": ratio(costs, "published", "ours", "wall"),
            "published_over_ours_bf16": ratio(costs, "published", "ours_bf16", "wall"),
            "ours_over_floor": ratio(costs, "ours", "floor", "wall"),
            "ours_over_floor_bf16": ratio(costs, "ours_bf16", "floor_bf16", "wall"),
        },
        share_of_gemm_peak={
            clock: {
                "fp32": rounded(per_example * ratio(costs, "gemm", "ours", clock)),
                "bf16": rounded(per_example * ratio(costs, "gemm_bf16", "ours_bf16", clock)),
            }
            for clock in ("cpu", "wall")
        },
        gemm_gflops={name: rounded(1e-9 / median) for name, median in medians(costs, "wall").items() if "gemm" in name},
        gflop_per_example=rounded(1e-9 * per_example),
        profile={kind: own_time(step) for kind, step in ours.items()},
        masks=None if setting.mask_steps is None else mask_change(*setting.mask_steps),
        cpu_seconds_per_example=medians(costs, "cpu"),
        wall_seconds_per_example=medians(costs, "wall"),
        teacher_cpu_seconds_per_row={kind: rounded(step.teacher_seconds) for kind, step in ours.items()},
        examples={name: workload.examples * setting.rounds for name, workload in workloads.items()},
        layers=config.num_hidden_layers,
        rounds=setting.rounds,
        lengths=source,
        tokens_per_example=rounded(float(widths(rows, encoded.lengths).double().mean())),
        tokens_per_example_over_the_epoch=rounded(float(widths(order, encoded.lengths).double().mean())),
    )


def own_time(step: OurStep) -> dict[str, float]:
    """Shares of a round's CPU time that are spent in the operations that take most of it, their callees left out."""
    with step.ready(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step.run()
    spent = {event.key: event.self_cpu_time_total for event in profile.key_averages()}
    most = sorted(spent.items(), key=lambda item: -item[1])[:TOP]
    return {name: round(time / sum(spent.values()), 3) for name, time in most}


def main(quick: bool = False) -> None:
    """Time the pruning step beside the published recipe and the floor.

    Args:
        quick: 4 layers and 2 rounds, in under a minute on a quiet machine with 2 cores.
    """
    print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
