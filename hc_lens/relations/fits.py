"""Probes that read an answer off features: logistic regression, nearest class means, a ridge map to representations of answers.

Each is a `Fit`, a function of training facts and of facts to score, for several strengths at once: the same inner
cross-validation chooses the strength of any of them.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from jaxtyping import Float, Float64, Int
from sklearn.linear_model import LogisticRegression, Ridge
from torch import Tensor
from torch.nn.functional import cosine_similarity, log_softmax

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray, Sequence[float]], Tensor]
"""A probe: from standardised features of training facts, their answers' codes (0, 1, ..., each there), features to score, and
strengths (scikit-learn's C: smaller is simpler), to scores, strength by fact by answer."""


def logistic(
    features: Float[np.ndarray, "fact feature"],
    codes: Int[np.ndarray, " fact"],
    scored: Float[np.ndarray, "held_out feature"],
    strengths: Sequence[float],
) -> Float64[Tensor, "strength held_out answer"]:
    """Log-probabilities of a multinomial logistic regression with an L2 penalty, by scikit-learn's L-BFGS."""
    # Each strength starts from the solution for the one before: the problem is convex, so that only the steps are fewer.
    model = LogisticRegression(warm_start=True, tol=1e-5, max_iter=2_000)
    decisions: list[np.ndarray] = []
    for strength in strengths:
        decisions.append(model.set_params(C=strength).fit(features, codes).decision_function(scored))
    logits = torch.as_tensor(np.stack(decisions))
    if logits.ndim == 2:  # two answers: log-odds of the second
        logits = torch.stack([torch.zeros_like(logits), logits], dim=-1)
    return log_softmax(logits, dim=-1)


def nearest_mean(
    features: Float[np.ndarray, "fact feature"],
    codes: Int[np.ndarray, " fact"],
    scored: Float[np.ndarray, "held_out feature"],
    strengths: Sequence[float],
) -> Float64[Tensor, "strength held_out answer"]:
    """Half the negative squared distance to the mean of each answer's training facts; there is no strength to choose."""
    means = np.stack([features[codes == code].mean(0) for code in range(codes.max() + 1)])
    distances = torch.cdist(torch.as_tensor(scored), torch.as_tensor(means))
    return (-distances.square() / 2).expand(len(strengths), -1, -1)


def affine_map(answers: Float[Tensor, "answer d_model"]) -> Fit:
    """A probe that maps a subject's state to a representation of its answer: a ridge map, after LRE (Hernandez et al. 2024).

    LRE takes the map from the model's Jacobian; here it is fitted on the training facts (ours), C being 1 / the ridge penalty.
    Scores are the cosine of what is predicted with each answer's representation, both about the mean of the training facts.

    Args:
        answers: a representation of each answer, such as the mean unembedding vector of its tokens.

    Raises:
        ValueError: when it is fitted on facts of more or fewer answers.
    """
    targets = answers.double().cpu()

    def fit(
        features: Float[np.ndarray, "fact feature"],
        codes: Int[np.ndarray, " fact"],
        scored: Float[np.ndarray, "held_out feature"],
        strengths: Sequence[float],
    ) -> Float64[Tensor, "strength held_out answer"]:
        if (n_answers := int(codes.max()) + 1) != len(targets):
            raise ValueError(f"the affine map has representations of {len(targets)} answers; the facts have {n_answers}")
        about = targets - targets[codes].mean(0)
        # The map is linear in what it is fitted to: fit which answer it is, then go on to the answers' representations.
        which = np.eye(n_answers)[codes]
        predicted = np.stack([Ridge(alpha=1 / strength).fit(features, which).predict(scored) for strength in strengths])
        return cosine_similarity((torch.as_tensor(predicted) @ about)[:, :, None], about, dim=-1)

    return fit
