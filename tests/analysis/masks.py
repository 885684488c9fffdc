"""Subnetworks written as text, small enough to count by hand."""

import torch
from torch import Tensor

from hc_lens.means import ActivationMeans
from hc_lens.subnetwork import Subnetwork


def of_mask(mask: Tensor, seed: int | None) -> Subnetwork:
    """The subnetwork of a mask, of a model whose units give zeros on average."""
    n_layers, n_units = mask.shape
    means = ActivationMeans("mean", torch.zeros(n_layers, n_units - 1, 1), torch.zeros(n_layers, 1), 1, "model", "data")
    return Subnetwork(mask, means, seed)


def sub(*layers: str, seed: int | None = None) -> Subnetwork:
    """A mask from one string a layer, such as `"110.1"`: heads 0 and 1 stay, head 2 goes, the MLP stays."""
    rows = [[int(bit) for bit in layer.replace(".", "")] for layer in layers]
    return of_mask(torch.tensor(rows, dtype=torch.bool), seed)
