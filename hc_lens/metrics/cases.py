"""The rows of many cases encoded end to end, so that one pass over them evaluates every case."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hc_lens.data.batches import Encoded
from hc_lens.data.sampling import some_rows
from hc_lens.data.task import Split, Task
from hc_lens.forward import inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.metrics.scores import CaseScores, require_label_order, score
from hc_lens.sample import ALL_ROWS, Sample


@dataclass(frozen=True, eq=False)
class EncodedCases:
    """All rows of several cases end to end, so that one pass over length-sorted batches evaluates every case.

    `bounds[i]` is the half-open range of rows of case `names[i]`; `splits[i]` holds exactly those rows, and `rows[i]` are their
    places in the whole case.
    """

    names: tuple[str, ...]
    groups: tuple[str, ...]
    splits: tuple[Split, ...]
    bounds: tuple[tuple[int, int], ...]
    rows: tuple[tuple[int, ...], ...]
    data: Encoded

    def score(self, logits: Float[Tensor, "row label"]) -> list[CaseScores]:
        """Each case's scores, from logits in the task's label order."""
        return [
            score(logits[start:stop], split, case, group)
            for case, group, split, (start, stop) in zip(self.names, self.groups, self.splits, self.bounds, strict=True)
        ]

    def parts(self, values: Tensor) -> list[Tensor]:
        """Each case's rows of per-row values."""
        return [values[start:stop] for start, stop in self.bounds]

    def require_label_order(self, logits: Float[Tensor, "row label"], labels: Sequence[str]) -> None:
        """`require_label_order` over the in-domain cases."""
        chosen = [
            (part, split) for part, split, g in zip(self.parts(logits), self.splits, self.groups, strict=True) if g == "ID"
        ]
        if chosen:
            require_label_order([part for part, _ in chosen], [split for _, split in chosen], labels)


def encode_cases(
    model: HookedModel,
    task: Task,
    sample: Sample = ALL_ROWS,
) -> EncodedCases:
    """Encode the cases of a task, each cut to the sample's random rows.

    The same seed and case always give the same rows, whichever other cases are asked for.

    Raises:
        KeyError: for a case the task does not have.
        ValueError: for no cases.
    """
    names = tuple(task.cases) if sample.cases is None else tuple(sample.cases)
    if not names:
        raise ValueError(f"no cases to evaluate: task {task.name!r} has {list(task.cases)}")
    groups = tuple(task.group(name) for name in names)
    rows = [some_rows(len(task.cases[name]), sample.max_rows, sample.seed) for name in names]
    encoded = [inputs_of(model, task.cases[name], sample.max_length) for name in names]
    stops = np.cumsum([len(chosen) for chosen in rows]).tolist()
    return EncodedCases(
        names=names,
        groups=groups,
        splits=tuple(
            task.cases[name] if len(chosen) == len(task.cases[name]) else task.cases[name].take(chosen)
            for name, chosen in zip(names, rows, strict=True)
        ),
        bounds=tuple(zip([0, *stops[:-1]], stops, strict=True)),
        rows=tuple(map(tuple, rows)),
        data=_end_to_end(encoded, rows),
    )


def _end_to_end(parts: Sequence[Encoded], rows: Sequence[Sequence[int]]) -> Encoded:
    """The chosen rows (ascending) of each part, one part after another; labels are left out, their meaning differs by case."""

    kept = [_tokens_of(data, chosen) for data, chosen in zip(parts, rows, strict=True)]
    types = [data.token_types[keep] for data, keep in zip(parts, kept, strict=True) if data.token_types is not None]
    return Encoded(
        tokens=torch.cat([data.tokens[keep] for data, keep in zip(parts, kept, strict=True)]),
        token_types=torch.cat(types) if len(types) == len(parts) else None,
        lengths=torch.cat([data.lengths[list(chosen)] for data, chosen in zip(parts, rows, strict=True)]),
        labels=None,
        pad_id=parts[0].pad_id,
        fingerprint=hashlib.sha256(
            str([(data.fingerprint, list(r)) for data, r in zip(parts, rows, strict=True)]).encode()
        ).hexdigest(),
    )


def _tokens_of(data: Encoded, rows: Sequence[int]) -> Bool[Tensor, " token"]:
    keep = torch.zeros(len(data), dtype=torch.bool)
    keep[list(rows)] = True
    return keep.repeat_interleave(data.lengths)
