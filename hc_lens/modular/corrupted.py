"""A network trained on pairs modulo a prime, some with corrupted labels: what it memorises, and what it generalizes.

The protocol is that of Doshi, Das, He and Gromov (2023), "To grok or not to grok".
"""

import operator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hc_lens.forward import mode
from hc_lens.modular.arithmetic import Pairs, PairSplit, all_pairs, corrupt, split_pairs
from hc_lens.modular.config import GENERALIZING, CorruptedConfig, Operation
from hc_lens.modular.networks import Network, answers, neuron_weights, new_network
from hc_lens.modular.spectrum import in_log_basis, ipr
from hc_lens.modular.training import fit
from hc_lens.runs import Run, digest


class Accuracies(NamedTuple):
    """Shares of right answers: NaN where there are no such pairs (no label is corrupted).

    `train`: training pairs, by the labels given. `as_labelled`: those with a corrupted label, by that label; `as_true`: by
    the true answer. `clean`: the other training pairs. `test`: pairs not trained on.
    """

    train: float
    as_labelled: float
    as_true: float
    clean: float
    test: float


@dataclass(frozen=True, eq=False)
class CorruptedPairs:
    """All pairs, which of them are trained on, and with which labels.

    `labels` and `corrupted` are those of the training pairs, in the order of `split.train`.
    """

    pairs: Pairs
    split: PairSplit
    labels: Int[Tensor, " train"] = field(repr=False)
    corrupted: Bool[Tensor, " train"] = field(repr=False)

    @property
    def train_numbers(self) -> Int[Tensor, "train 2"]:
        """The training pairs, as rows."""
        return self.pairs.numbers[self.split.train]

    @property
    def true_labels(self) -> Int[Tensor, " train"]:
        """The true answers of the training pairs."""
        return self.pairs.target[self.split.train]

    def accuracies(self, model: Network) -> Accuracies:
        """How the network, with whatever edits are in place, answers in eval mode."""
        with mode(model, training=False), torch.no_grad():
            given = answers(model, self.pairs.numbers).argmax(1).cpu()
        right, train = given == self.pairs.target, given[self.split.train]
        as_labelled = train == self.labels
        return Accuracies(
            train=_share(as_labelled),
            as_labelled=_share(as_labelled[self.corrupted]),
            as_true=_share(right[self.split.train][self.corrupted]),
            clean=_share(right[self.split.train][~self.corrupted]),
            test=_share(right[self.split.test]),
        )


def _share(right: Bool[Tensor, " pair"]) -> float:
    return float(right.double().mean())


def corrupted_pairs(config: CorruptedConfig) -> CorruptedPairs:
    """The training set of a configuration.

    Raises:
        ValueError: if alpha or xi is out of its range.
    """
    pairs = all_pairs(config.network.p, operator.add if config.operation == "add" else operator.mul)
    split = split_pairs(pairs, config.alpha, config.seed)
    labels, corrupted = corrupt(pairs.target[split.train], pairs.p, config.xi, config.seed)
    return CorruptedPairs(pairs, split, labels, corrupted)


def neuron_ipr(model: Network, operation: Operation = "add") -> Float[Tensor, " neuron"]:
    """Each neuron's IPR, the mean over its weight vectors (U, V and W), in the basis in which the operation is periodic."""
    vectors = neuron_weights(model)
    if operation == "multiply":
        vectors = [in_log_basis(vector) for vector in vectors]
    return torch.stack([ipr(vector) for vector in vectors]).mean(0)


@dataclass(frozen=True, eq=False)
class Trained:
    """A trained network, its data, its neurons' IPR, and what was measured over time.

    `history` has a row for every measured step: `step`, `loss`, the accuracies, `ipr` (mean over neurons) and `periodic` (share
    of them with an IPR of at least 0.5).
    """

    config: CorruptedConfig
    run: Run
    model: Network
    data: CorruptedPairs
    ipr: Float[Tensor, " neuron"] = field(repr=False)
    history: pd.DataFrame = field(repr=False)

    @property
    def accuracies(self) -> Accuracies:
        """How the network answers at the end."""
        last = self.history.iloc[-1]
        return Accuracies(*(float(last[name]) for name in Accuracies._fields))


def directory_of(config: CorruptedConfig, root: Path) -> Path:
    """A run directory under `root` named after the configuration."""
    return root / f"corrupted-{digest(_spec(config))[:12]}"


def _spec(config: CorruptedConfig) -> dict[str, object]:
    return {"architecture": type(config.network).__name__, **asdict(config)}


def train_corrupted(config: CorruptedConfig, directory: Path, device: torch.device | None = None) -> Trained:
    """Train one network in a run directory, or load it if it is there; a killed run goes on.

    Raises:
        TrainingError: if the loss is not finite.
        RunError: if the directory holds another run, is damaged, or is in use.
    """
    data, model = corrupted_pairs(config), new_network(config.network, config.seed)
    if device is not None:
        model.to(device)
    run = Run.at(directory, "corrupted", _spec(config))

    def measure(model: Network) -> dict[str, float | None]:
        periodicity = neuron_ipr(model, config.operation)
        found = data.accuracies(model)._asdict()
        found |= {"ipr": float(periodicity.mean()), "periodic": _share(periodicity >= GENERALIZING)}
        return {name: None if np.isnan(value) else value for name, value in found.items()}

    history = fit(model, data.train_numbers, data.labels, data.pairs.p, config.fit, run, measure)
    model.eval()
    return Trained(config, run, model, data, neuron_ipr(model, config.operation), history.astype(np.float64))


class Stages(NamedTuple):
    """The two stages of training on corrupted labels, as steps; None: not reached.

    `grokked`: the first step from which test accuracy has reached `level`. `memorised`: that with the most corrupted labels
    learned. `unlearned`: the first after it with no more than `1 - level` of them left.
    """

    grokked: int | None
    memorised: int | None
    unlearned: int | None


def two_stages(history: pd.DataFrame, level: float = 0.9) -> Stages:
    """When a network generalized, and when it let go of the corrupted labels.

    Raises:
        ValueError: if the level is not in (0.5, 1), or the history has no such columns.
    """
    if not 0.5 < level < 1:
        raise ValueError(f"level must be in (0.5, 1), got {level}")
    if missing := [name for name in ("step", "test", "as_labelled") if name not in history]:
        raise ValueError(f"a history has the columns step, test and as_labelled; {missing} missing from {list(history)}")
    grokked = history[history["test"] >= level]
    if history["as_labelled"].isna().all():
        return Stages(_first(grokked), None, None)
    peak = cast(int, history["as_labelled"].argmax())
    after = history.iloc[peak:]
    return Stages(_first(grokked), int(history["step"].iloc[peak]), _first(after[after["as_labelled"] <= 1 - level]))


def _first(rows: pd.DataFrame) -> int | None:
    return None if rows.empty else int(rows["step"].iloc[0])
