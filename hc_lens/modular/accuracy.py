"""What a network over numbers modulo p answers, and how often it is right, in bounded memory."""

import torch
from jaxtyping import Int
from torch import Tensor
from transformer_lens import HookedRootModule

_VALUES = 2**22  # activations held at once: 16 MB in fp32


@torch.no_grad()
def predictions(network: HookedRootModule, numbers: Int[Tensor, "row term"]) -> Int[Tensor, " row"]:
    """The most likely answer to each row of numbers, computed in chunks that fit the network's width."""
    width = max(parameter.shape[-1] for parameter in network.parameters())
    return torch.cat([network(chunk).argmax(-1) for chunk in numbers.split(max(1, _VALUES // width))])


def accuracy(network: HookedRootModule, numbers: Int[Tensor, "row term"], target: Int[Tensor, " row"]) -> float:
    """The share of rows that are answered right."""
    return (predictions(network, numbers) == target).double().mean().item()
