"""TransformerLens blocks in packed products: the forward functions that `hc_lens.models.fused` puts in their place."""

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.grouped_query_attention import GroupedQueryAttention
from transformer_lens.components.mlps.gated_mlp import GatedMLP
from transformer_lens.components.mlps.mlp import MLP
from transformer_lens.components.transformer_block import TransformerBlock
from transformer_lens.hook_points import HookPoint

from hc_lens.hooks import only_positionwise
from hc_lens.models.architecture import DropoutRates

_Block = TypeVar("_Block", BertBlock, TransformerBlock)

_COMPUTED = {
    "hook_resid_pre",
    "hook_resid_mid",
    "hook_resid_post",
    "hook_normalized_resid_post",
    "hook_attn_out",
    "hook_mlp_out",
    "attn.hook_q",
    "attn.hook_k",
    "attn.hook_v",
    "attn.hook_rot_q",
    "attn.hook_rot_k",
    "attn.hook_z",
    "mlp.hook_pre",
    "mlp.hook_pre_linear",
    "mlp.hook_post",
}
"""Hook points of a block that the fused forward calls."""

_EVERY_POSITION = {"hook_resid_pre", "attn.hook_k", "attn.hook_v"}
"""Those that see every position also where only the first token's state is computed."""

ContextFrom = Callable[[int, Callable[[], Tensor]], Tensor]
"""Where a block's context vectors come from: given how many positions are wanted, and what computes them."""


def compute(width: int, attend: Callable[[], Tensor]) -> Tensor:
    """They are computed."""
    return attend()


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


class _Weights(NamedTuple):
    """A block's matrices as `linear` takes them: output x input. `mlp_gate` is None where the MLP has no gate."""

    qkv: Float[Tensor, "qkv_head_d_head d_model"]
    qkv_bias: Float[Tensor, " qkv_head_d_head"]
    out: Float[Tensor, "d_model head_d_head"]
    out_bias: Float[Tensor, " d_model"]
    mlp_in: Float[Tensor, "d_mlp d_model"]
    mlp_in_bias: Float[Tensor, " d_mlp"]
    mlp_out: Float[Tensor, "d_model d_mlp"]
    mlp_out_bias: Float[Tensor, " d_model"]
    mlp_gate: Float[Tensor, "d_mlp d_model"] | None

    def map(self, function: Callable[[Tensor], Tensor]) -> "_Weights":
        return _Weights(*(None if w is None else function(w) for w in self))  # pyright: ignore[reportArgumentType]


def _pack(block: BertBlock | TransformerBlock, dtype: torch.dtype | None) -> _Weights:
    """Only QKV is copied; the other matrices are views of the parameters, unless `dtype` differs.

    Copies are contiguous: products of a transposed bfloat16 matrix are up to ten times slower.
    """
    attn, mlp = block.attn, cast(MLP | GatedMLP, block.mlp)
    if attn.cfg.n_key_value_heads is None:
        k, v, b_k, b_v = attn.W_K, attn.W_V, attn.b_K, attn.b_V
    else:  # once for each group of heads that shares them
        k, v, b_k, b_v = (getattr(attn, name) for name in ("_W_K", "_W_V", "_b_K", "_b_V"))
    packed = _Weights(
        qkv=torch.cat([w.transpose(1, 2) for w in (attn.W_Q, k, v)]).flatten(0, 1),
        qkv_bias=torch.cat([attn.b_Q, b_k, b_v]).flatten(),
        out=attn.W_O.flatten(0, 1).T,
        out_bias=attn.b_O,
        mlp_in=mlp.W_in.T,
        mlp_in_bias=mlp.b_in,
        mlp_out=mlp.W_out.T,
        mlp_out_bias=mlp.b_out,
        mlp_gate=mlp.W_gate.T if isinstance(mlp, GatedMLP) else None,
    )
    return packed if dtype is None else packed.map(lambda w: w.to(dtype).contiguous())


class FusedBlock(Generic[_Block]):
    """Attention and MLP of one block; subclasses put them in order.

    `context_from` may be set, for a while, to something that keeps the context vectors or knows them already.
    """

    def __init__(self, block: _Block, dropout: DropoutRates, dtype: torch.dtype | None, train_weights: bool) -> None:
        self.block = block
        self.original = block.forward
        self.dropout = dropout
        self.dtype = dtype
        self.frozen = None if train_weights else _pack(block, dtype).map(lambda w: w.detach())
        self.activation = ACTIVATIONS[block.cfg.act_fn]
        self.causal = block.cfg.attention_dir == "causal"
        self.context_from: ContextFrom = compute
        self.points = {name: point for name, point in block.named_modules() if isinstance(point, HookPoint)}

    @property
    def must_fall_back(self) -> bool:
        """Whether a hook point that is not computed here has hooks."""
        return any(listened_to(point) for name, point in self.points.items() if name not in _COMPUTED)

    def weights(self) -> _Weights:
        return self.frozen if self.frozen is not None else _pack(self.block, self.dtype)

    def attention(
        self,
        x: Float[Tensor, "batch pos d_model"],
        queries: Float[Tensor, "batch query d_model"],
        weights: _Weights,
        mask: Tensor | None,
        padding: Int[Tensor, "batch pos"] | None = None,
    ) -> Float[Tensor, "batch query d_model"]:
        """What `block.attn` returns, dropout included; `mask` as scaled_dot_product_attention takes it.

        `queries` attend to `x`: all of its positions, or the first. `padding` is what TransformerLens counts rotary positions
        by, where it is given.
        """
        z = self.context_from(queries.shape[1], lambda: self._context(x, queries, weights, mask, padding))
        z = self._cast(self.block.attn.hook_z(z))
        out = functional.linear(z.flatten(2), weights.out, weights.out_bias)
        return functional.dropout(out, self.dropout.attention_out, self.block.training)

    def _context(
        self,
        x: Float[Tensor, "batch pos d_model"],
        queries: Float[Tensor, "batch query d_model"],
        weights: _Weights,
        mask: Tensor | None,
        padding: Int[Tensor, "batch pos"] | None,
    ) -> Float[Tensor, "batch query head d_head"]:
        attn = self.block.attn
        q, k, v = self._qkv(x, queries, weights)
        q, k, v = (self._cast(hook(part)) for hook, part in ((attn.hook_q, q), (attn.hook_k, k), (attn.hook_v, v)))
        if attn.cfg.positional_embedding_type == "rotary":
            q = self._cast(attn.hook_rot_q(attn.apply_rotary(q, 0, padding)))
            k = self._cast(attn.hook_rot_k(attn.apply_rotary(k, 0, padding)))
        if k.shape[2] != q.shape[2]:
            repeats = cast(GroupedQueryAttention, attn).repeat_kv_heads
            k, v = (part.repeat_interleave(repeats, dim=2) for part in (k, v))
        z = _attend(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype),
            dropout=self.dropout.attention if self.block.training else 0.0,
            causal=self.causal and mask is None,
            scale=1 / attn.attn_scale,
        )
        return z.transpose(1, 2)

    def _qkv(
        self, x: Float[Tensor, "batch pos d_model"], queries: Float[Tensor, "batch query d_model"], weights: _Weights
    ) -> list[Float[Tensor, "batch _ _ d_head"]]:
        cfg = self.block.attn.cfg  # a compact model says here how many heads are left
        shared = cfg.n_key_value_heads or cfg.n_heads
        if queries is x:
            packed = functional.linear(self._cast(x), weights.qkv, weights.qkv_bias).unflatten(-1, (-1, cfg.d_head))
            return list(packed.split((cfg.n_heads, shared, shared), dim=2))
        sizes = (cfg.n_heads * cfg.d_head, 2 * shared * cfg.d_head)
        parts = zip((queries, x), weights.qkv.split(sizes), weights.qkv_bias.split(sizes), strict=True)
        q, kv = (functional.linear(self._cast(rows), w, b).unflatten(-1, (-1, cfg.d_head)) for rows, w, b in parts)
        return [q, *kv.split((shared, shared), dim=2)]

    def mlp(self, x: Float[Tensor, "batch pos d_model"], weights: _Weights) -> Float[Tensor, "batch pos d_model"]:
        """What `block.mlp` returns, dropout included."""
        mlp, x = cast(MLP | GatedMLP, self.block.mlp), self._cast(x)
        if weights.mlp_gate is None:
            hidden = self.activation(mlp.hook_pre(functional.linear(x, weights.mlp_in, weights.mlp_in_bias)))
        else:
            gate = self.activation(mlp.hook_pre(functional.linear(x, weights.mlp_gate)))
            gated = cast(GatedMLP, mlp).hook_pre_linear(functional.linear(x, weights.mlp_in))
            hidden = gate * gated + weights.mlp_in_bias  # TransformerLens adds this bias behind the product
        hidden = self._cast(mlp.hook_post(hidden))
        out = functional.linear(hidden, weights.mlp_out, weights.mlp_out_bias)
        return functional.dropout(out, self.dropout.mlp_out, self.block.training)

    def _cast(self, x: Tensor) -> Tensor:
        return x if self.dtype is None else x.to(self.dtype)


class FusedPostNorm(FusedBlock[BertBlock]):
    """BERT's order: each LayerNorm after its residual add; with `first_only`, of the first position where that will do."""

    def __init__(
        self,
        block: BertBlock,
        dropout: DropoutRates,
        dtype: torch.dtype | None,
        train_weights: bool,
        first_only: bool = False,
    ) -> None:
        super().__init__(block, dropout, dtype, train_weights)
        self.first_only = first_only

    def __call__(self, resid_pre: Tensor, additive_attention_mask: Tensor | None = None) -> Tensor:
        if self.must_fall_back:
            return self.original(resid_pre, additive_attention_mask)
        block, weights = self.block, self.weights()
        resid = block.hook_resid_pre(resid_pre)
        read = resid[:, :1] if self._narrow else resid
        attn_out = block.hook_attn_out(self.attention(resid, read, weights, additive_attention_mask))
        normalized = block.ln1(block.hook_resid_mid(read + attn_out))
        mlp_out = block.hook_mlp_out(self.mlp(normalized, weights))
        return block.hook_normalized_resid_post(block.ln2(block.hook_resid_post(normalized + mlp_out)))

    @property
    def _narrow(self) -> bool:
        """Whether to compute the first position only; in train mode dropout would draw otherwise."""
        return (
            self.first_only
            and not self.block.training
            and all(only_positionwise(point) for name, point in self.points.items() if name not in _EVERY_POSITION)
        )


class FusedPreNorm(FusedBlock[TransformerBlock]):
    """GPT-2's order: each norm before its sublayer; GPT-NeoX's attention and MLP read the same residual stream."""

    def __call__(
        self,
        resid_pre: Tensor,
        shortformer_pos_embed: Tensor | None = None,
        past_kv_cache_entry: TransformerLensKeyValueCacheEntry | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        if self.must_fall_back or shortformer_pos_embed is not None or past_kv_cache_entry is not None:
            return self.original(resid_pre, shortformer_pos_embed, past_kv_cache_entry, attention_mask)
        block, weights = self.block, self.weights()
        resid_pre = block.hook_resid_pre(resid_pre)
        normalized = block.ln1(resid_pre)
        mask = self._mask(attention_mask)
        attn_out = block.hook_attn_out(self.attention(normalized, normalized, weights, mask, attention_mask))
        if block.cfg.parallel_attn_mlp:
            mlp_out = block.hook_mlp_out(self.mlp(block.ln2(resid_pre), weights))
            return block.hook_resid_post(resid_pre + attn_out + mlp_out)
        resid_mid = block.hook_resid_mid(resid_pre + attn_out)
        mlp_out = block.hook_mlp_out(self.mlp(block.ln2(resid_mid), weights))
        return block.hook_resid_post(resid_mid + mlp_out)

    def _mask(self, attention_mask: Tensor | None) -> Tensor | None:
        if attention_mask is None:
            return None
        padding = attention_mask.bool()[:, None, None, :]
        if not self.causal:
            return padding
        n = attention_mask.shape[1]
        return padding & torch.ones(n, n, dtype=torch.bool, device=padding.device).tril()


def _attend(
    q: Float[Tensor, "batch head query d_head"],
    k: Float[Tensor, "batch head pos d_head"],
    v: Float[Tensor, "batch head pos d_head"],
    mask: Tensor | None,
    *,
    dropout: float,
    causal: bool,
    scale: float,
) -> Float[Tensor, "batch head query d_head"]:
    """scaled_dot_product_attention, or the same in plain matrix products where those are faster.

    On the CPU, torch's fused attention is slow backward in bfloat16 (2.13 with AMX, 32 rows of 40 tokens, 12 heads: 62 ms, and
    15 ms in float32; plain products take 7 ms). Which way is taken depends on types alone, not on a timing: a run that goes on
    must have the bits of one that was never stopped.
    """
    if q.shape[1] == 0:  # CUDA has no kernel for no heads
        return q
    if not (q.requires_grad and q.dtype == torch.bfloat16 and q.device.type == "cpu"):
        return functional.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, dropout_p=dropout, is_causal=causal, scale=scale
        )
    scores = (q * scale) @ k.transpose(-1, -2)
    if causal:
        mask = torch.ones(scores.shape[-2:], dtype=torch.bool).tril()
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf) if mask.dtype == torch.bool else scores + mask
    return functional.dropout(scores.softmax(-1), dropout, dropout > 0) @ v


def listened_to(point: HookPoint) -> bool:
    return bool(point.fwd_hooks or point.bwd_hooks)
