"""Networks trained on a polynomial modulo a prime: the evidence on which polynomials are learned from half of the pairs."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pandas as pd
import torch
from torch import Tensor

from hc_lens.modular.arithmetic import all_pairs, split_pairs
from hc_lens.modular.config import FitConfig, MlpConfig
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.networks import Network, answers
from hc_lens.modular.polynomial import Polynomial
from hc_lens.modular.training import fit
from hc_lens.runs import Run
from hc_lens.statistics import mean_over_seeds

LEARNED = 0.95
"""Accuracy on pairs not trained on from which a polynomial counts as learned."""


@dataclass(frozen=True)
class LearnConfig:
    """How a polynomial is learned: the protocol's optimiser, on a network a tenth as wide, for as long as it takes.

    Attributes:
        alpha: share of the p^2 pairs trained on.
    """

    n_neurons: int = 500
    alpha: float = 0.5
    fit: FitConfig = field(default_factory=lambda: FitConfig(steps=500, lr=0.005, weight_decay=5.0, measure_every=50))


@dataclass(frozen=True, eq=False)
class Learned:
    """A trained network and the shares of pairs it answers right.

    `train` and `test`: of the pairs trained on, and the others. `majority`: of the others, by the commonest training label.
    `history` has a row for every measured step: `step`, `loss`, `train`, `test`.
    """

    model: ModularMlp
    train: float
    test: float
    majority: float
    history: pd.DataFrame = field(repr=False)


def learn(polynomial: Polynomial, config: LearnConfig, seed: int, root: Path) -> Learned:
    """Train a network with x^2 on a random part of the pairs, in a run directory under `root`, or load it if it is there.

    `seed` is that of the weights and of the split.

    Raises:
        ValueError: if alpha is out of range.
        TrainingError: if the loss is not finite.
        RunError: if the directory is damaged or in use.
    """
    pairs = all_pairs(polynomial.p, polynomial)
    split = split_pairs(pairs, config.alpha, seed)
    labels, others = pairs.target[split.train], pairs.target[split.test]
    run = Run.create(root, "polynomial", {"polynomial": asdict(polynomial), "config": asdict(config), "seed": seed})

    def measure(model: Network) -> dict[str, float | None]:
        right = answers(model, pairs.numbers).argmax(1) == pairs.target
        return {"train": _share(right[split.train]), "test": _share(right[split.test])}

    model = ModularMlp(MlpConfig(polynomial.p, config.n_neurons), seed)
    history = fit(model, pairs.numbers[split.train], labels, polynomial.p, config.fit, run, measure)
    model.eval()
    last = history.iloc[-1]
    return Learned(model, float(last["train"]), float(last["test"]), _share(others == labels.mode().values), history)


def evidence(
    polynomials: Iterable[tuple[str, Polynomial]], config: LearnConfig, seeds: Iterable[int], root: Path
) -> pd.DataFrame:
    """How well networks learn these polynomials.

    Args:
        polynomials: each with the text to call it by.

    Returns:
        One row for each polynomial and seed: `polynomial`, `p`, `seed`, `train`, `test`, `majority` (see `Learned`).
    """
    chosen = list(seeds)
    rows: list[dict[str, object]] = []
    for text, polynomial in polynomials:
        for seed in chosen:
            found = learn(polynomial, config, seed, root)
            shares = {"train": found.train, "test": found.test, "majority": found.majority}
            rows.append({"polynomial": text, "p": polynomial.p, "seed": seed, **shares})
    return pd.DataFrame(rows)


def over_seeds(rows: pd.DataFrame) -> pd.DataFrame:
    """The evidence by polynomial and p: mean over seeds with its 95 % interval (Student's t), and what was `learned`.

    Returns:
        `polynomial`, `p`, `seeds`, `train` and `majority` (means), `test`, `low`, `high`, and `learned`: whether the mean test
        accuracy reaches `LEARNED`.
    """
    found: list[dict[str, object]] = []
    for (text, p), group in rows.groupby(["polynomial", "p"], sort=False):
        test = mean_over_seeds(group["test"].to_numpy(dtype=float), least=0.0, most=1.0)
        means = {name: float(group[name].mean()) for name in ("train", "majority")}
        shown = {"polynomial": text, "p": p, "seeds": test.n, **means, "test": test.mean, "low": test.low, "high": test.high}
        found.append({**shown, "learned": test.mean >= LEARNED})
    return pd.DataFrame(found)


def _share(right: Tensor) -> float:
    return float(right.to(torch.float64).mean())
