"""Whether weights are numbers: a model with NaN in it computes, and what is wrong shows far from its cause."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn


def require_values(weights: Mapping[str, Tensor], source: str) -> None:
    """Check that weights have values.

    Raises:
        ValueError: for the meta device, naming the first tensor that is there.
    """
    if meta := [name for name, tensor in weights.items() if tensor.is_meta]:
        raise ValueError(f"{source} is on the meta device, where {meta[0]} has a shape and no values: load its weights first")


def require_finite(weights: Mapping[str, Tensor], source: str) -> None:
    """Check that all weights are numbers.

    Raises:
        ValueError: naming the first tensors that hold NaN or infinity, and how many such values; and as `require_values`.
    """
    require_values(weights, source)
    floating = {name: w for name, w in weights.items() if w.is_floating_point()}
    # A sum reads each weight once; it may overflow where all are numbers, so that a second look decides.
    suspects = [name for name, w in floating.items() if not math.isfinite(float(w.sum(dtype=torch.float32)))]
    bad = {name: count for name in suspects if (count := int((~floating[name].isfinite()).sum()))}
    if bad:
        told = ", ".join(f"{name} ({count} of {weights[name].numel()})" for name, count in list(bad.items())[:3])
        raise ValueError(f"{source}: {len(bad)} tensors of the weights hold NaN or infinity: {told}")


def require_finite_model(model: nn.Module) -> None:
    """Check that all weights of a model are numbers.

    Raises:
        ValueError: as `require_finite`.
    """
    require_finite({name: parameter.detach() for name, parameter in model.named_parameters()}, type(model).__name__)
