"""CPU seconds of a training step on modular addition: numbers looked up, as ours, beside the same step on one-hot vectors.

`python -m experiments.bench.modular_step [--quick]`; the last line is JSON. Both steps have the same weights, loss and
optimiser and give the same gradients (tested). `cpu_seconds_per_1000_steps` is what the protocol's 1,000 full-batch steps take.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
import tyro
from jaxtyping import Float, Int, Num
from torch import Tensor
from torch.nn import functional

from experiments.bench.timing import interleaved, medians, ratio, report, rounded
from hc_lens.modular.arithmetic import all_pairs, split_pairs
from hc_lens.modular.config import MlpConfig
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.training import denormals_flushed, loss_of, targets_of, training_step


@dataclass(frozen=True)
class Setting:
    """What is timed: the protocol's network and training set; `steps` in a round, and rounds that count."""

    p: int = 97
    n_neurons: int = 500
    alpha: float = 0.5
    steps: int = 20
    rounds: int = 7


QUICK = Setting(steps=3, rounds=2)


class Looked:
    """Our step: weights gathered by number."""

    def __init__(self, setting: Setting) -> None:
        pairs = all_pairs(setting.p)
        train = split_pairs(pairs, setting.alpha, seed=0).train
        self.numbers = pairs.numbers[train]
        self.targets = targets_of(pairs.target[train], setting.p, "mse")
        self.model = ModularMlp(MlpConfig(setting.p, setting.n_neurons))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01, betas=(0.9, 0.98), weight_decay=0.0, fused=True)
        self.examples = setting.steps

    def ready(self) -> AbstractContextManager[object]:
        """Denormal numbers taken as zero, as in training."""
        return denormals_flushed()

    def run(self) -> None:
        """One round of steps."""
        for _ in range(self.examples):
            training_step(self.model, self.optimizer, self.numbers, self.targets)


class OneHot(Looked):
    """The same step with a product of one-hot vectors, concatenated, and all tables stacked."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.inputs = one_hot(self.numbers, setting.p)

    def run(self) -> None:
        """One round of steps."""
        for _ in range(self.examples):
            loss = one_hot_loss(self.model, self.inputs, self.targets)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()


def one_hot(numbers: Int[Tensor, "batch term"], p: int) -> Float[Tensor, "batch inputs"]:
    """Rows of one-hot vectors side by side."""
    return functional.one_hot(numbers, p).float().flatten(1)


def one_hot_loss(
    model: ModularMlp, inputs: Float[Tensor, "batch inputs"], targets: Num[Tensor, "batch *output"]
) -> Float[Tensor, ""]:
    """The loss of a network of squares, by matrix products alone."""
    return loss_of((inputs @ model.U.flatten(0, 1)).square() @ model.W, targets)


def measure(setting: Setting, *, quick: bool = False) -> str:
    """Time both, and report in one line of JSON."""
    costs = interleaved({"one_hot": OneHot(setting), "ours": Looked(setting)}, setting.rounds)
    cpu, wall = medians(costs, "cpu"), medians(costs, "wall")
    return report(
        bench="modular_step",
        quick=quick,
        one_hot_over_ours=ratio(costs, "one_hot", "ours"),
        wall={"one_hot_over_ours": ratio(costs, "one_hot", "ours", "wall")},
        cpu_seconds_per_1000_steps={name: rounded(1000 * seconds) for name, seconds in cpu.items()},
        wall_seconds_per_1000_steps={name: rounded(1000 * seconds) for name, seconds in wall.items()},
        p=setting.p,
        n_neurons=setting.n_neurons,
        alpha=setting.alpha,
        rounds=setting.rounds,
        steps=setting.steps,
    )


def main(quick: bool = False) -> None:
    """Time a step of training on modular addition, and the same on one-hot vectors.

    Args:
        quick: 2 rounds of 3 steps.
    """
    print(measure(QUICK if quick else Setting(), quick=quick))


if __name__ == "__main__":
    tyro.cli(main)
