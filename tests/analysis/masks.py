"""Subnetworks written as text, small enough to count by hand."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sub:
    mask: Tensor
    seed: int | None


def sub(*layers: str, seed: int | None = None) -> Sub:
    """A mask from one string a layer, such as `"110.1"`: heads 0 and 1 stay, head 2 goes, the MLP stays."""
    rows = [[int(bit) for bit in layer.replace(".", "")] for layer in layers]
    return Sub(torch.tensor(rows, dtype=torch.bool), seed)
