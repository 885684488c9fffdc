"""How much bf16 changes the subnetworks that pruning finds, beside how much another seed changes them."""

import statistics
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path

from jaxtyping import Bool
from torch import Tensor

from experiments.bench.timing import rounded
from hc_lens.data import synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.pruning import prune
from hc_lens.sample import Sample
from hc_lens.study import DEMO, embedded_model
from hc_lens.subnetwork import Subnetwork
from hc_lens.train import finetune

SEEDS = (42, 43, 44)


def mask_change(train_steps: int, prune_steps: int) -> dict[str, object]:
    """Jaccard overlap of the kept units of subnetworks of the embedded model, fine-tuned here, pruned in fp32 and in bf16.

    `fp32_bf16` is the mean over seeds of the overlap of the two precisions, `fp32_seeds` the mean over pairs of seeds in fp32.
    """
    model, task = embedded_model(), synthetic_nli()
    config = replace(DEMO.prune[0], steps=prune_steps, ramp_steps=round(0.6 * prune_steps))
    training = replace(DEMO.train, steps=train_steps, warmup_steps=train_steps // 10, checkpoint_every=train_steps)
    with tempfile.TemporaryDirectory() as folder:
        finetune(model, task, training, Path(folder) / "finetune")
    means = ActivationMeans.collect(model, task.train, sample=Sample(DEMO.means_rows, max_length=config.max_length))
    fp32, bf16 = (
        prune(model, task.train, means, replace(config, precision=precision), SEEDS).subnetworks
        for precision in ("fp32", "bf16")
    )
    return {
        "fp32_bf16": _mean_overlap(zip(fp32, bf16, strict=True)),
        "fp32_seeds": _mean_overlap(combinations(fp32, 2)),
        "bf16_seeds": _mean_overlap(combinations(bf16, 2)),
        "sparsity": config.sparsity,
        "train_steps": train_steps,
        "prune_steps": prune_steps,
        "seeds": len(SEEDS),
    }


def overlap(one: Bool[Tensor, "layer unit"], other: Bool[Tensor, "layer unit"]) -> float:
    """|A & B| / |A | B| of the kept units, heads and MLPs; 1 for two that keep none."""
    either = int((one | other).sum())
    return int((one & other).sum()) / either if either else 1.0


def _mean_overlap(pairs: Iterable[Sequence[Subnetwork]]) -> float:
    return rounded(statistics.mean(overlap(one.mask, other.mask) for one, other in pairs))
