"""What removing neurons does to memorised and to generalized answers: those of low IPR, of high IPR, and as many at random."""

from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hc_lens.hooks import hooked
from hc_lens.modular.config import GENERALIZING
from hc_lens.modular.corrupted import Accuracies, Trained
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.neurons import Neurons

LOW, HIGH, RANDOM = "low IPR first", "high IPR first", "random"
"""In which order neurons are removed."""


def accuracies_of(trained: Trained, neurons: Neurons) -> Accuracies:
    """How a subnetwork of the trained network answers."""
    with hooked(trained.model, neurons.edits()):
        return trained.data.accuracies(trained.model)


def periodic_neurons(trained: Trained, threshold: float = GENERALIZING) -> Neurons:
    """The subnetwork of the neurons with an IPR of at least the threshold."""
    return Neurons.of(trained.model, trained.ipr >= threshold)


def random_neurons(trained: Trained, n_removed: int, seed: int) -> Neurons:
    """A subnetwork without so many neurons, drawn at random.

    Raises:
        ValueError: if there are not so many.
    """
    return _removed(trained, _random_order(len(trained.ipr), seed), n_removed, seed)


def pruning_curves(trained: Trained, shares: Sequence[float], draws: int = 3, seed: int = 0) -> pd.DataFrame:
    """Accuracies as more and more neurons are removed: by IPR from either end, and in `draws` random orders.

    Returns:
        One row for each order and share: `order` (`LOW`, `HIGH`, `RANDOM`), `draw`, `share` of neurons removed, `neurons`, how
        many those are, and the accuracies.

    Raises:
        ValueError: if a share is not in [0, 1].
    """
    n = len(trained.ipr)
    ascending = trained.ipr.argsort(stable=True)
    orders = [(LOW, 0, ascending), (HIGH, 0, ascending.flip(0))]
    orders += [(RANDOM, draw, _random_order(n, seed + draw)) for draw in range(draws)]
    rows = [
        {"order": name, "draw": draw, "share": share, "neurons": round(share * n)}
        | accuracies_of(trained, _removed(trained, order, round(share * n)))._asdict()
        for name, draw, order in orders
        for share in shares
    ]
    return pd.DataFrame(rows)


def threshold_table(trained: Trained, threshold: float = GENERALIZING, draws: int = 3, seed: int = 0) -> pd.DataFrame:
    """The whole network, the network without its neurons of low IPR, and without as many at random.

    Returns:
        One row each: `neurons` ("all", "IPR >= 0.5", "random"), `draw`, `removed`, how many are gone, and the accuracies.
    """
    periodic = periodic_neurons(trained, threshold)
    n = len(periodic.closed)
    subnetworks = [("all", 0, Neurons.all_of(trained.model)), (f"IPR >= {threshold:g}", 0, periodic)]
    subnetworks += [("random", draw, random_neurons(trained, n, seed + draw)) for draw in range(draws)]
    return pd.DataFrame(
        {"neurons": name, "draw": draw, "removed": len(each.closed)} | accuracies_of(trained, each)._asdict()
        for name, draw, each in subnetworks
    )


def norm_weights(trained: Trained) -> pd.DataFrame:
    """BatchNorm's scale of every neuron, beside its IPR: `neuron`, `ipr`, `weight` (absolute).

    Raises:
        ValueError: if the network has no BatchNorm.
    """
    model = trained.model
    if not isinstance(model, ModularMlp) or not isinstance(model.norm, torch.nn.BatchNorm1d):
        raise ValueError(f"only an MLP with batch_norm=True has BatchNorm weights; this network is {trained.config.network}")
    return pd.DataFrame(
        {
            "neuron": range(len(trained.ipr)),
            "ipr": trained.ipr.tolist(),
            "weight": model.norm.weight.detach().abs().tolist(),
        }
    )


def _removed(trained: Trained, order: Int[Tensor, " neuron"], n: int, seed: int | None = None) -> Neurons:
    """The subnetwork without the first `n` neurons of an order."""
    if not 0 <= n <= len(order):
        raise ValueError(f"{n} of {len(order)} neurons cannot be removed")
    mask: Bool[Tensor, " neuron"] = torch.ones(len(order), dtype=torch.bool)
    mask[order[:n]] = False
    return Neurons.of(trained.model, mask, seed=seed)


def _random_order(n: int, seed: int) -> Int[Tensor, " neuron"]:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))
