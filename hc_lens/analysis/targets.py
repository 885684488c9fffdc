"""What a word can attend to: for each relation, the tokens that count as its targets, as weights over an attention pattern."""

from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hc_lens.data.words import PairWords

Relation = Literal["overlap", "overlap from first", "overlap from second", "previous", "next", "separator", "first", "self"]
"""| relation | targets of a word's token |
|---|---|
| `overlap` | tokens of the other sentence whose word has the same normalised form |
| `overlap from first`, `overlap from second` | the same, for words of that sentence only |
| `previous`, `next` | the token before or after it, if that is in the same sentence |
| `separator` | the separator tokens of the pair's template ([SEP], </s>) |
| `first` | the first token of the row ([CLS], <s>, or what comes first), for all later tokens |
| `self` | itself |
"""

RELATIONS: tuple[Relation, ...] = get_args(Relation)

OVERLAPS = RELATIONS[:3]
"""The relations across sentences, which have `others` to compare with."""


class Targets(NamedTuple):
    """The targets of a batch's words. A score is a sum over the pattern, weighted by `weights`, divided by `queries`.

    `weights`: at each target of a token, the token's share in its word, so that the tokens of a word that have a target count
    as one query together. `others`: for the overlap relations, the same total weight per token spread evenly over the words of
    the other sentence that are *not* targets: what the head gives to as many other words there. `queries`: words with a target.
    `uniform`: the sum for a head that attends evenly to all tokens that are visible to it.
    """

    weights: Float[Tensor, "batch relation query key"]
    others: Float[Tensor, "batch overlap query key"]
    queries: Float[Tensor, "batch relation"]
    uniform: Float[Tensor, "batch relation"]


def targets_of(rows: Sequence[PairWords], separator: int | None, *, causal: bool) -> Targets:
    """The targets of these rows, right-padded to the longest; in a `causal` model only of what comes no later.

    `separator` is the id of the separator token, None where pairs have none. Padding is neither query nor target.
    """
    width = max(map(len, rows))
    sentence, word, key, ids = (
        _padded([getattr(row, name) for row in rows], width) for name in ("sentence", "word", "key", "ids")
    )
    real = torch.arange(width) < torch.tensor([len(row) for row in rows])[:, None]
    visible = real[:, :, None] & real[:, None, :]
    if causal:
        visible &= torch.ones(width, width, dtype=torch.bool).tril()
    matches, other_words = _across(sentence, key)
    asks = (word >= 0)[:, :, None]
    relations = [matches, matches & (sentence == 0)[:, :, None], matches & (sentence == 1)[:, :, None]]
    relations += [asks & target for target in _places(sentence, ids, separator)]
    target = torch.stack(relations, dim=1) & visible[:, None]
    share = _shares(word, target.any(-1))
    weights = share[..., None] * target
    others = torch.stack([other_words & visible] * len(OVERLAPS), dim=1).float()
    total = weights[:, : len(OVERLAPS)].sum(-1, keepdim=True)
    return Targets(
        weights=weights,
        others=others / others.sum(-1, keepdim=True).clamp(min=1) * total,
        queries=share.sum(-1),
        uniform=(weights.sum(-1) / visible.sum(-1).clamp(min=1)[:, None]).sum(-1),
    )


def _across(
    sentence: Int[Tensor, "batch pos"], key: Int[Tensor, "batch pos"]
) -> tuple[Bool[Tensor, "batch query key"], Bool[Tensor, "batch query key"]]:
    """Tokens of the other sentence with the same normalised word, and with another word."""
    elsewhere = (sentence[:, :, None] != sentence[:, None, :]) & (key[:, :, None] >= 0) & (key[:, None, :] >= 0)
    same = key[:, :, None] == key[:, None, :]
    return elsewhere & same, elsewhere & ~same


def _places(
    sentence: Int[Tensor, "batch pos"], ids: Int[Tensor, "batch pos"], separator: int | None
) -> list[Bool[Tensor, "batch query key"]]:
    """Previous, next, separator, first and self, for every token."""
    n_rows, width = ids.shape
    at = torch.arange(width)
    step = at[None, :] - at[:, None]  # key minus query
    together = (sentence[:, :, None] == sentence[:, None, :]) & (sentence >= 0)[:, :, None]
    separates = (ids == separator) & (sentence < 0) if separator is not None else torch.zeros_like(ids, dtype=torch.bool)
    return [
        together & (step == -1),
        together & (step == 1),
        separates[:, None, :].expand(n_rows, width, width),
        ((at[None, :] == 0) & (at[:, None] > 0)).expand(n_rows, width, width),
        (step == 0).expand(n_rows, width, width),
    ]


def _shares(
    word: Int[Tensor, "batch pos"], asking: Bool[Tensor, "batch relation query"]
) -> Float[Tensor, "batch relation query"]:
    """One over the number of a word's tokens that have a target, at those tokens."""
    pieces = ((word[:, :, None] == word[:, None, :]) & (word >= 0)[:, :, None]).float()
    count = torch.einsum("b q p, b r p -> b r q", pieces, asking.float())
    return asking / count.clamp(min=1)


def _padded(rows: Sequence[np.ndarray], width: int) -> Int[Tensor, "batch pos"]:
    return torch.tensor(np.stack([np.pad(row, (0, width - len(row)), constant_values=-1) for row in rows]))
