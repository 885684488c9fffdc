"""Weights between transformers' names and layout and TransformerLens's, in both directions and without arithmetic.

transformers keeps one matrix per projection (`Linear`: output x input; GPT-2's `Conv1D`: input x output), TransformerLens
one per head: W_Q, W_K, W_V are [head d_model d_head], W_O is [head d_head d_model], MLP matrices are [input output].
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from hc_lens.models.finite import require_values


class Entry(NamedTuple):
    """One transformers tensor and the hooked tensors that hold the same numbers."""

    theirs: str
    ours: tuple[str, ...]
    split: Callable[[Tensor], tuple[Tensor, ...]]
    join: Callable[[tuple[Tensor, ...]], Tensor]
    is_head: bool = False


def to_hooked(table: list[Entry], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hooked tensors for those of `theirs` that the table names; the others are left out."""
    ours: dict[str, Tensor] = {}
    for entry in table:
        if entry.theirs in theirs:
            ours.update(zip(entry.ours, entry.split(theirs[entry.theirs]), strict=True))
    return ours


def to_transformers(table: list[Entry], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_hooked`, as contiguous CPU tensors that share no memory.

    Raises:
        ValueError: for tensors on the meta device.
    """
    require_values(ours, "this model")
    return {
        entry.theirs: entry.join(tuple(ours[name] for name in entry.ours))
        .detach()
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        for entry in table
    }


def same(theirs: str, ours: str, *, is_head: bool = False) -> Entry:
    """Equal layouts."""
    return Entry(theirs, (ours,), lambda w: (w,), lambda parts: parts[0], is_head)


def transposed(theirs: str, ours: str, *, is_head: bool = False) -> Entry:
    """A `Linear`'s matrix, where TransformerLens has input x output."""
    return Entry(theirs, (ours,), lambda w: (w.T,), lambda parts: parts[0].T, is_head)


def linear(theirs: str, weight: str, bias: str, *, is_head: bool = False) -> list[Entry]:
    """A `Linear`'s matrix, transposed, and its bias."""
    return [transposed(f"{theirs}.weight", weight, is_head=is_head), same(f"{theirs}.bias", bias, is_head=is_head)]


def norm(theirs: str, ours: str) -> list[Entry]:
    """A LayerNorm's weight and bias."""
    return [same(f"{theirs}.weight", f"{ours}.w"), same(f"{theirs}.bias", f"{ours}.b")]


def into_heads(theirs: str, ours: str, n_heads: int) -> Entry:
    """A `Linear`'s matrix from the residual stream to all heads: Q, K or V."""
    return Entry(
        theirs,
        (ours,),
        lambda w: (rearrange(w, "(head d_head) d_model -> head d_model d_head", head=n_heads),),
        lambda parts: rearrange(parts[0], "head d_model d_head -> (head d_head) d_model"),
    )


def out_of_heads(theirs: str, ours: str, n_heads: int) -> Entry:
    """A `Linear`'s matrix from all heads to the residual stream: O."""
    return Entry(
        theirs,
        (ours,),
        lambda w: (rearrange(w, "d_model (head d_head) -> head d_head d_model", head=n_heads),),
        lambda parts: rearrange(parts[0], "head d_head d_model -> d_model (head d_head)"),
    )


def head_bias(theirs: str, ours: str, n_heads: int) -> Entry:
    """The bias of Q, K or V, head after head."""
    return Entry(theirs, (ours,), lambda b: (b.view(n_heads, -1),), lambda parts: parts[0].flatten())
