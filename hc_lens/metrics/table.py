"""The evaluation table: every subnetwork on every case, beside the full model."""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from hc_lens.data.batches import Batch
from hc_lens.data.task import Task
from hc_lens.forward import inference
from hc_lens.hooks import Edit, HookedModel
from hc_lens.metrics.cases import EncodedCases, encode_cases
from hc_lens.metrics.divergence import agreement, calibration_error, kl_to_full
from hc_lens.metrics.forward_rows import read_rows
from hc_lens.metrics.scores import confidence, label_order, labels_of
from hc_lens.models import Classifier
from hc_lens.models.finite import require_finite_model
from hc_lens.progress import progress
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.units import subnetwork_name


@runtime_checkable
class Evaluated(Protocol):
    """What the table needs of a subnetwork."""

    @property
    def seed(self) -> int | None: ...

    @property
    def sparsity(self) -> float: ...

    def edits(self) -> list[Edit]: ...

    def require_model(self, model: HookedModel) -> None: ...


@runtime_checkable
class Compactable(Evaluated, Protocol):
    """A subnetwork that can be run as a smaller model."""

    def compact_for(self, model: HookedModel, tokens: int) -> Classifier | None:
        """The smaller model, with the logits of `model` under `edits()`; None where the tokens are too few for it to pay."""
        ...


def evaluate(
    model: HookedModel,
    task: Task,
    subnetworks: Sequence[Evaluated] = (),
    sample: Sample = ALL_ROWS,
    *,
    trained: bool = True,
) -> pd.DataFrame:
    """Evaluate the full model and its subnetworks on every case: one row per (model, case), the full model first.

    | column       | meaning                                                                       |
    |--------------|-------------------------------------------------------------------------------|
    | `subnetwork` | `"full"`, `"seed 42"`, or `"subnetwork 3"` for the fourth when it has no seed   |
    | `seed`       | of the pruning run; missing for the full model (Int64)                        |
    | `sparsity`   | realised share of units removed; 0 for the full model                         |
    | `case`, `group` | the case, and `"ID"` or `"OOD"`                                            |
    | `n`          | rows                                                                          |
    | `accuracy`, `low`, `high` | share right, with its 95 % Wilson interval                       |
    | `margin`     | mean log-odds of the right answer                                             |
    | `ece`        | expected calibration error                                                    |
    | `agreement`  | share of rows where it predicts the class that the full model predicts        |
    | `kl`         | mean KL(full || subnetwork), nats                                             |

    A subnetwork that is `Compactable` runs as its smaller model where the rows are many enough for that to pay: the same
    numbers, but for rounding.

    The classes are the task's, whatever their order in the model. An untrained model has no label order to check:
    `trained=False` leaves the check out.

    Raises:
        LabelOrderError: if the model's labels are not the task's, or in-domain predictions fit far better under other names.
        MeansError: for a subnetwork of another model.
        ValueError: for no cases, weights or logits that are NaN or infinite, or a case whose rows cannot be scored.
    """
    require_finite_model(model)
    for sub in subnetworks:
        sub.require_model(model)
    order = label_order(labels_of(model), task.labels)
    data = encode_cases(model, task, sample)
    batches = data.data.batches(sample.batch_size)

    def read(logits: Tensor, batch: Batch) -> Tensor:
        return logits[:, order]

    with inference(model, sample.precision, narrow=True), progress("evaluating", len(subnetworks) + 1) as advance:
        full = read_rows(model, batches, read)
        if trained:
            data.require_label_order(full, task.labels)
        rows = _rows("full", None, 0.0, data, full, full)
        advance()
        for index, sub in enumerate(subnetworks):
            smaller = sub.compact_for(model, int(data.data.lengths.sum())) if isinstance(sub, Compactable) else None
            if smaller is None:
                logits = read_rows(model, batches, read, sub.edits())
            else:
                with inference(smaller, sample.precision, narrow=True):
                    logits = read_rows(smaller, batches, read)
            rows += _rows(subnetwork_name(sub.seed, index), sub.seed, sub.sparsity, data, logits, full)
            advance()
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def _rows(
    name: str,
    seed: int | None,
    sparsity: float,
    data: EncodedCases,
    logits: Float[Tensor, "row label"],
    full: Float[Tensor, "row label"],
) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for scores, split, ours, whole in zip(data.score(logits), data.splits, data.parts(logits), data.parts(full), strict=True):
        low, high = scores.interval()
        rows.append(
            {
                "subnetwork": name,
                "seed": seed,
                "sparsity": float(sparsity),
                "case": scores.case,
                "group": scores.group,
                "n": len(scores),
                "accuracy": scores.accuracy,
                "low": low,
                "high": high,
                "margin": float(scores.margin.mean()),
                "ece": calibration_error(confidence(ours, split), scores.correct),
                "agreement": agreement(whole.argmax(-1).numpy(), ours.argmax(-1).numpy()),
                "kl": float(torch.mean(kl_to_full(whole, ours))),
            }
        )
    return rows
