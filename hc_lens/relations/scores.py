"""What scores of answers are worth: their accuracy above the majority rate, and by how much the true answer leads."""

import torch
from jaxtyping import Float, Int
from torch import Tensor


def above_chance(accuracy: float, majority: float) -> float:
    """(accuracy - majority) / (1 - majority): 1 is perfect, 0 what the commonest answer would get, below 0 is worse than that.

    Raises:
        ValueError: if the majority rate is not in [0, 1): at 1 there is nothing to predict.
    """
    if not 0 <= majority < 1:
        raise ValueError(f"the majority rate must be in [0, 1), got {majority}; at 1 all facts have the same answer")
    return (accuracy - majority) / (1 - majority)


def majority_rate(codes: Int[Tensor, " fact"]) -> float:
    """The share of the commonest answer."""
    return float(codes.bincount().max()) / len(codes)


def margins(scores: Float[Tensor, "fact answer"], codes: Int[Tensor, " fact"]) -> Float[Tensor, " fact"]:
    """The score of the true answer minus that of the best other one."""
    true = codes[:, None]
    return (scores.gather(1, true) - scores.scatter(1, true, -torch.inf).amax(1, keepdim=True))[:, 0]
