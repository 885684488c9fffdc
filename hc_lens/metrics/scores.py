"""Rows scored: which predictions are right and by how much, per case, in the task's label order."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hc_lens.data.task import Split
from hc_lens.hooks import HookedModel
from hc_lens.statistics import Interval, wilson_interval


class LabelOrderError(ValueError):
    """The model's classes are not those of the task, or seem to be in another order."""


@dataclass(frozen=True, eq=False)
class CaseScores:
    """One model on one case, row by row.

    `correct` follows the split's rule: argmax over the task's classes, then collapsed (HANS: three logits to two labels).
    `margin` is the log-odds of the right answer: logsumexp of the logits of the classes that collapse to the right label, minus
    that of all others. With collapsed classes the two can differ in sign: two wrong classes may outweigh the right one together
    though neither does alone.
    """

    case: str
    group: str
    correct: Bool[np.ndarray, " row"]
    margin: Float[np.ndarray, " row"]

    def __len__(self) -> int:
        return len(self.correct)

    @cached_property
    def accuracy(self) -> float:
        """Share of rows that are right."""
        return float(self.correct.mean())

    def interval(self, level: float = 0.95) -> Interval:
        """Wilson interval of the accuracy."""
        return wilson_interval(int(self.correct.sum()), len(self), level)


def labels_of(model: HookedModel) -> Sequence[str]:
    """The names of the model's classes, in the order of its logits.

    Raises:
        LabelOrderError: for a model without label names, which cannot be scored on a task.
    """
    names: Sequence[str] | None = getattr(model, "label_names", None)
    if names is None:
        raise LabelOrderError(
            f"{type(model).__name__} has no label names, so its outputs cannot be scored on a task: load a classifier with "
            "load_model, or give data and a metric instead of a task"
        )
    return names


def label_order(model_labels: Sequence[str], task_labels: Sequence[str]) -> list[int]:
    """Where each of the task's classes is among the model's: `logits[:, label_order(...)]` is in the task's order.

    Names are compared without case and surrounding space (published checkpoints write ENTAILMENT, Entailment and entailment).

    Raises:
        LabelOrderError: if the two are not the same set of names, naming both.
    """
    ours = [name.strip().casefold() for name in task_labels]
    theirs = [name.strip().casefold() for name in model_labels]
    if sorted(ours) != sorted(theirs) or len(set(ours)) != len(ours):
        raise LabelOrderError(
            f"the model's labels {tuple(model_labels)} are not the task's labels {tuple(task_labels)}: load the model with "
            "its label names in the order of its logits, each of them a label of the task"
        )
    return [theirs.index(name) for name in ours]


def collapsed(split: Split) -> Int[Tensor, " label"]:
    """The split's class for each class of the task.

    Raises:
        ValueError: if some row's label cannot be predicted, or cannot be missed, whatever the model says.
    """
    reachable = set(split.collapse)
    for label in sorted(set(split.labels)):
        if label not in reachable or reachable == {label}:
            raise ValueError(
                f"split {split.name!r}: label {split.label_names[label]!r} is what {'every' if reachable == {label} else 'no'} "
                f"class of the task collapses to (collapse {split.collapse}), so its rows cannot be scored"
            )
    return torch.tensor(split.collapse)


def score(logits: Float[Tensor, "row label"], split: Split, case: str, group: str) -> CaseScores:
    """Score logits, in the task's label order, by the split's rule.

    Raises:
        ValueError: if the logits do not fit the split, or hold NaN or infinity.
    """
    if logits.shape != (len(split), len(split.collapse)):
        raise ValueError(
            f"case {case!r} has {len(split)} rows and {len(split.collapse)} classes, the logits are {tuple(logits.shape)}"
        )
    if not torch.isfinite(logits).all():
        bad = int((~torch.isfinite(logits)).any(dim=1).nonzero()[0])
        raise ValueError(f"case {case!r}, row {bad}: logits {logits[bad].tolist()} are not finite")
    right = right_classes(split)
    return CaseScores(
        case=case,
        group=group,
        correct=right.gather(1, logits.argmax(-1, keepdim=True)).squeeze(1).numpy(),
        margin=log_odds(logits, right).numpy(),
    )


def right_classes(split: Split) -> Bool[Tensor, "row label"]:
    """Which classes of the task collapse to each row's label.

    Raises:
        ValueError: as `collapsed`.
    """
    return collapsed(split)[None, :] == torch.tensor(split.labels)[:, None]


def log_odds(logits: Float[Tensor, "row label"], right: Bool[Tensor, "row label"]) -> Float[Tensor, " row"]:
    """logsumexp of the right classes' logits minus that of all others', in fp64; differentiable."""
    wide = logits.double()
    return wide.masked_fill(~right, -torch.inf).logsumexp(-1) - wide.masked_fill(right, -torch.inf).logsumexp(-1)


def confidence(logits: Float[Tensor, "row label"], split: Split) -> Float[np.ndarray, " row"]:
    """Probability of the predicted answer: of all classes that collapse to the same label as the argmax."""
    collapse = collapsed(split)
    chosen = collapse[None, :] == collapse[logits.argmax(-1)][:, None]
    return (logits.double().softmax(-1) * chosen).sum(-1).clamp(0, 1).numpy()


def require_label_order(logits: Sequence[Float[Tensor, "row label"]], splits: Sequence[Split], labels: Sequence[str]) -> None:
    """Check that in-domain predictions do not fit the data far better with the classes renamed.

    The renaming that suits all splits best is an assignment problem over (predicted class, class it would stand for). It raises
    only if the model is hardly better than always giving the commonest answer, and the renamed one is 10 points better than
    that, 20 better than the model, and four standard errors clear: far below chance, or two of three classes swapped.

    Raises:
        LabelOrderError: naming both accuracies and the order that fits.
    """
    from scipy.optimize import linear_sum_assignment

    gain = np.zeros((len(labels), len(labels)))
    commonest, n = 0, 0
    for rows, split in zip(logits, splits, strict=True):
        predicted, truth = rows.argmax(-1).numpy(), np.asarray(split.labels)
        right = np.asarray(split.collapse)[None, :] == truth[:, None]
        np.add.at(gain, predicted, right.astype(np.float64))
        commonest += int(right.sum(0).max())
        n += len(split)
    found, best = linear_sum_assignment(gain, maximize=True)
    accuracy, renamed, base = (float(value) / n for value in (np.trace(gain), gain[found, best].sum(), commonest))
    if accuracy < base + 0.05 and renamed > base + 0.1 and renamed - accuracy > max(0.2, 4 / n**0.5):
        fits = ", ".join(f"{labels[i]} is really {labels[j]}" for i, j in enumerate(best.tolist()) if i != j)
        raise LabelOrderError(
            f"in-domain accuracy is {accuracy:.3f} on {n} rows, below or near what one constant answer gets ({base:.3f}), but "
            f"it would be {renamed:.3f} if {fits}: the model's label order is probably wrong; load it with the label names in "
            "the order of its logits"
        )
