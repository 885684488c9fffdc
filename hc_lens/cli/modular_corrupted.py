"""`hc-lens modular corrupted`: what a network memorises and what it generalizes when some of its training labels are wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, device_of_name, parse
from hc_lens.limits import Count, Natural
from hc_lens.modular.config import GENERALIZING, Activation, CorruptedConfig, FitConfig, LossName, MlpConfig, Operation


@dataclass(frozen=True)
class Arguments:
    """Train a network on pairs modulo a prime with corrupted labels, tell the phase it ends in, and remove what memorises."""

    p: Count = 97
    """The modulus, a prime."""
    xi: float = 0.35
    """Share of the training labels that is drawn anew, in [0, 1]."""
    alpha: float = 0.5
    """Share of the p^2 pairs that is trained on, in (0, 1)."""
    weight_decay: float = 0.0
    """Of AdamW, decoupled: 5 to 15 makes the network let go of corrupted labels."""
    dropout: float = 0.0
    """Rate at which pre-activations are dropped."""
    batch_norm: bool = False
    """A BatchNorm after the activation; the protocol has --batch-size 64 --lr 0.005 --steps 2000 with it."""
    neurons: Count = 500
    """Width of the hidden layer."""
    activation: Activation = "power"
    """power is the square."""
    operation: Operation = "add"
    """What is learned."""
    loss: LossName = "mse"
    """Mean squared error to one-hot answers, or cross-entropy."""
    lr: float = 0.01
    """Learning rate."""
    steps: Count = 1_000
    """Updates."""
    batch_size: Count | None = None
    """Pairs in a step; all of them by default."""
    seed: Natural = 0
    """Of weights, split and corruption."""
    threshold: float = GENERALIZING
    """Neurons of a lower IPR are removed."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)

    def config(self) -> CorruptedConfig:
        """What is trained."""
        return CorruptedConfig(
            MlpConfig(self.p, self.neurons, activation=self.activation, dropout=self.dropout, batch_norm=self.batch_norm),
            self.operation,
            self.alpha,
            self.xi,
            FitConfig(self.steps, self.lr, self.weight_decay, loss=self.loss, batch_size=self.batch_size, seed=self.seed),
            self.seed,
        )


def main(words: Sequence[str]) -> None:
    """Train or read the run, prune by IPR, and leave tables and figures in its directory."""
    args = parse(Arguments, "modular corrupted", words)
    if not 0 <= args.threshold <= 1:
        raise ValueError(f"--threshold: an IPR is in [0, 1], got {args.threshold}")
    config = args.config()

    import pandas as pd

    from hc_lens.modular.corrupted import directory_of, train_corrupted, two_stages
    from hc_lens.modular.corrupted_figures import accuracies_over_time, ipr_histogram, pruning_curves_figure
    from hc_lens.modular.curves import pruning_curves, threshold_table
    from hc_lens.modular.phases import phase_of_run

    place = args.common.out or directory_of(config, Path("runs"))
    trained = train_corrupted(config, place, device_of_name(args.common.device))
    curves = pruning_curves(trained, [step / 20 for step in range(20)])
    table = threshold_table(trained, args.threshold)
    output.keep(trained.history, place, "accuracies")
    output.keep(curves, place, "pruning_curves")
    output.keep(table, place, "threshold")
    stages = two_stages(trained.history)
    output.keep_figure(accuracies_over_time(trained.history, stages), place, "accuracies")
    output.keep_figure(ipr_histogram(pd.DataFrame({"ipr": trained.ipr.tolist()}), args.threshold), place, "ipr")
    output.keep_figure(pruning_curves_figure(curves), place, "pruning_curves")
    means = table.drop(columns="draw").groupby("neurons", sort=False).mean().reset_index()
    output.table(means, f"accuracies before and after neurons of IPR < {args.threshold:g}, or as many at random, are removed")
    output.headline(
        place,
        f"phase: {phase_of_run(trained)} (train {trained.accuracies.train:.3f}, test {trained.accuracies.test:.3f}); "
        f"generalizes {_when(stages.grokked)}, has unlearned the corrupted labels {_when(stages.unlearned)}",
    )


def _when(step: int | None) -> str:
    return "never" if step is None else f"from step {step}"
