"""How far a model's logits are from the full model's, and its confidence from its accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
    from torch import Tensor


def kl_to_full(full: Float[Tensor, "row label"], sub: Float[Tensor, "row label"]) -> Float[Tensor, " row"]:
    """KL(full || sub) of each row in nats, from logits: the divergence that pruning minimises."""
    from torch.nn.functional import log_softmax

    log_full = log_softmax(full.double(), dim=-1)
    log_sub = log_softmax(sub.double(), dim=-1)
    return (log_full.exp() * (log_full - log_sub)).sum(-1).float()


def agreement(full: Int[np.ndarray, " row"], sub: Int[np.ndarray, " row"]) -> float:
    """Share of rows on which two models predict the same class."""
    return float(np.mean(full == sub))


def calibration_error(confidence: Float[np.ndarray, " row"], correct: Bool[np.ndarray, " row"], n_bins: int = 15) -> float:
    """Expected calibration error: |accuracy - mean confidence| of equal-width confidence bins, weighted by their rows.

    Guo et al. 2017, equation 3. `confidence` is the probability of the predicted class; bins are (low, high].

    Raises:
        ValueError: for a confidence outside [0, 1].
    """
    if len(confidence) and not (confidence.min() >= 0 and confidence.max() <= 1 + 1e-6):
        raise ValueError(f"confidences must be in [0, 1], got {confidence.min():.3g}..{confidence.max():.3g}")
    bins = np.clip(np.ceil(confidence * n_bins).astype(np.int64) - 1, 0, n_bins - 1)
    gaps = np.bincount(bins, weights=correct.astype(np.float64) - confidence, minlength=n_bins)
    return float(np.abs(gaps).sum() / len(confidence))
