"""Weights between transformers' names and layout and TransformerLens's, in both directions and without arithmetic.

transformers keeps one matrix per projection (`Linear`: output x input; GPT-2's `Conv1D`: input x output), TransformerLens
one per head: W_Q, W_K, W_V are [head d_model d_head], W_O is [head d_head d_model], MLP matrices are [input output].
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from einops import rearrange
from torch import Tensor

from hc_lens.models.architecture import Family

_ATTENTION = {"W_Q": "query", "W_K": "key", "W_V": "value"}


class Entry(NamedTuple):
    """One transformers tensor and the hooked tensors that hold the same numbers."""

    theirs: str
    ours: tuple[str, ...]
    split: Callable[[Tensor], tuple[Tensor, ...]]
    join: Callable[[tuple[Tensor, ...]], Tensor]
    is_head: bool = False


def entries(family: Family, n_layers: int, n_heads: int, position_offset: int) -> list[Entry]:
    """The full correspondence for one architecture; each hooked parameter occurs once."""
    if family == "gpt2":
        return [*_gpt2_outer(), *(entry for layer in range(n_layers) for entry in _gpt2_block(layer, n_heads))]
    blocks = (entry for layer in range(n_layers) for entry in _bert_block(family, layer, n_heads))
    return [*_bert_outer(family, position_offset), *blocks]


def to_hooked(table: list[Entry], theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Hooked tensors for those of `theirs` that the table names; the others are left out."""
    ours: dict[str, Tensor] = {}
    for entry in table:
        if entry.theirs in theirs:
            ours.update(zip(entry.ours, entry.split(theirs[entry.theirs]), strict=True))
    return ours


def to_transformers(table: list[Entry], ours: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inverse of `to_hooked`, as contiguous CPU tensors that share no memory."""
    return {
        entry.theirs: entry.join(tuple(ours[name] for name in entry.ours))
        .detach()
        .cpu()
        .clone(memory_format=torch.contiguous_format)
        for entry in table
    }


def _same(theirs: str, ours: str, is_head: bool = False) -> Entry:
    return Entry(theirs, (ours,), lambda w: (w,), lambda parts: parts[0], is_head)


def _transposed(theirs: str, ours: str, is_head: bool = False) -> Entry:
    return Entry(theirs, (ours,), lambda w: (w.T,), lambda parts: parts[0].T, is_head)


def _bert_outer(family: Family, position_offset: int) -> list[Entry]:
    embeddings = f"{family}.embeddings"
    positions = f"{embeddings}.position_embeddings.weight"
    if position_offset:
        position = Entry(
            positions,
            ("position_prefix", "embed.pos_embed.W_pos"),
            lambda w: (w[:position_offset], w[position_offset:]),
            lambda parts: torch.cat(parts),
        )
    else:
        position = _same(positions, "embed.pos_embed.W_pos")
    # RoBERTa's classification head is a tanh layer on the first token before the output layer: BERT's pooler by another name.
    pooler, output = ("bert.pooler.dense", "classifier") if family == "bert" else ("classifier.dense", "classifier.out_proj")
    return [
        _same(f"{embeddings}.word_embeddings.weight", "embed.embed.W_E"),
        position,
        _same(f"{embeddings}.token_type_embeddings.weight", "embed.token_type_embed.W_token_type"),
        _same(f"{embeddings}.LayerNorm.weight", "embed.ln.w"),
        _same(f"{embeddings}.LayerNorm.bias", "embed.ln.b"),
        _transposed(f"{pooler}.weight", "pooler.W", is_head=True),
        _same(f"{pooler}.bias", "pooler.b", is_head=True),
        _same(f"{output}.weight", "classifier.weight", is_head=True),
        _same(f"{output}.bias", "classifier.bias", is_head=True),
    ]


def _bert_block(family: Family, layer: int, n_heads: int) -> list[Entry]:
    theirs, ours = f"{family}.encoder.layer.{layer}", f"blocks.{layer}"
    found: list[Entry] = []
    for name, projection in _ATTENTION.items():
        found.append(
            Entry(
                f"{theirs}.attention.self.{projection}.weight",
                (f"{ours}.attn.{name}",),
                lambda w: (rearrange(w, "(head d_head) d_model -> head d_model d_head", head=n_heads),),
                lambda parts: rearrange(parts[0], "head d_model d_head -> (head d_head) d_model"),
            )
        )
        found.append(_per_head_bias(f"{theirs}.attention.self.{projection}.bias", f"{ours}.attn.b_{name[-1]}", n_heads))
    found.append(
        Entry(
            f"{theirs}.attention.output.dense.weight",
            (f"{ours}.attn.W_O",),
            lambda w: (rearrange(w, "d_model (head d_head) -> head d_head d_model", head=n_heads),),
            lambda parts: rearrange(parts[0], "head d_head d_model -> d_model (head d_head)"),
        )
    )
    return [
        *found,
        _same(f"{theirs}.attention.output.dense.bias", f"{ours}.attn.b_O"),
        _same(f"{theirs}.attention.output.LayerNorm.weight", f"{ours}.ln1.w"),
        _same(f"{theirs}.attention.output.LayerNorm.bias", f"{ours}.ln1.b"),
        _transposed(f"{theirs}.intermediate.dense.weight", f"{ours}.mlp.W_in"),
        _same(f"{theirs}.intermediate.dense.bias", f"{ours}.mlp.b_in"),
        _transposed(f"{theirs}.output.dense.weight", f"{ours}.mlp.W_out"),
        _same(f"{theirs}.output.dense.bias", f"{ours}.mlp.b_out"),
        _same(f"{theirs}.output.LayerNorm.weight", f"{ours}.ln2.w"),
        _same(f"{theirs}.output.LayerNorm.bias", f"{ours}.ln2.b"),
    ]


def _per_head_bias(theirs: str, ours: str, n_heads: int) -> Entry:
    return Entry(theirs, (ours,), lambda b: (b.view(n_heads, -1),), lambda parts: parts[0].flatten())


def _gpt2_outer() -> list[Entry]:
    return [
        _same("transformer.wte.weight", "embed.W_E"),
        _same("transformer.wpe.weight", "pos_embed.W_pos"),
        _same("transformer.ln_f.weight", "ln_final.w"),
        _same("transformer.ln_f.bias", "ln_final.b"),
        _same("score.weight", "classifier.weight", is_head=True),
    ]


def _gpt2_block(layer: int, n_heads: int) -> list[Entry]:
    theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
    qkv_weight = Entry(
        f"{theirs}.attn.c_attn.weight",
        tuple(f"{ours}.attn.{name}" for name in _ATTENTION),
        lambda w: tuple(rearrange(w, "d_model (qkv head d_head) -> qkv head d_model d_head", qkv=3, head=n_heads)),
        lambda parts: rearrange(list(parts), "qkv head d_model d_head -> d_model (qkv head d_head)"),
    )
    qkv_bias = Entry(
        f"{theirs}.attn.c_attn.bias",
        tuple(f"{ours}.attn.b_{name[-1]}" for name in _ATTENTION),
        lambda b: tuple(b.view(3, n_heads, -1)),
        lambda parts: torch.stack(parts).flatten(),
    )
    output = Entry(
        f"{theirs}.attn.c_proj.weight",
        (f"{ours}.attn.W_O",),
        lambda w: (w.view(n_heads, -1, w.shape[-1]),),
        lambda parts: parts[0].flatten(0, 1),
    )
    return [
        qkv_weight,
        qkv_bias,
        output,
        _same(f"{theirs}.attn.c_proj.bias", f"{ours}.attn.b_O"),
        _same(f"{theirs}.ln_1.weight", f"{ours}.ln1.w"),
        _same(f"{theirs}.ln_1.bias", f"{ours}.ln1.b"),
        _same(f"{theirs}.mlp.c_fc.weight", f"{ours}.mlp.W_in"),
        _same(f"{theirs}.mlp.c_fc.bias", f"{ours}.mlp.b_in"),
        _same(f"{theirs}.mlp.c_proj.weight", f"{ours}.mlp.W_out"),
        _same(f"{theirs}.mlp.c_proj.bias", f"{ours}.mlp.b_out"),
        _same(f"{theirs}.ln_2.weight", f"{ours}.ln2.w"),
        _same(f"{theirs}.ln_2.bias", f"{ours}.ln2.b"),
    ]
