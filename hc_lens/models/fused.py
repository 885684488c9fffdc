"""A faster forward pass through TransformerLens blocks, with the hook points that edits and captures use.

TransformerLens re-lays out the attention weights at every forward, computes attention and LayerNorm step by step and scrubs
NaNs. Inside `fused` a block does what transformers' sdpa models do: one packed QKV product, scaled_dot_product_attention, fused
LayerNorm. Per block and per forward pass it falls back to TransformerLens's own code while anyone listens to a hook point that
the fused code does not compute (attention scores and patterns, the insides of a LayerNorm).
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager
from typing import Generic, NamedTuple, TypeVar, cast

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry
from transformer_lens.components.attention import Attention
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.layer_norm import LayerNorm
from transformer_lens.components.layer_norm_pre import LayerNormPre
from transformer_lens.components.mlps.mlp import MLP
from transformer_lens.components.transformer_block import TransformerBlock
from transformer_lens.hook_points import HookPoint

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
    "attn.hook_z",
    "mlp.hook_pre",
    "mlp.hook_post",
}
"""Hook points of a block that the fused forward calls."""


def _tanh_gelu(x: Tensor) -> Tensor:
    return functional.gelu(x, approximate="tanh")


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": _tanh_gelu,
    "gelu_fast": _tanh_gelu,
    "gelu_pytorch_tanh": _tanh_gelu,
    "relu": functional.relu,
    "silu": functional.silu,
}


@contextmanager
def fused(model: nn.Module, dtype: torch.dtype | None = None, *, train_weights: bool = False) -> Generator[None]:
    """Run the blocks of a hooked model by the fused forward; on exit, also on error, everything is as before.

    By default the weights are constants, packed and cast once at entry: weight changes inside the context are not seen and no
    weight gets a gradient. With `train_weights` they are read at every forward and get their gradients.

    With `dtype=torch.bfloat16` matrix products and attention run in bfloat16 while the residual stream and LayerNorm stay in
    float32. Hook functions then see bfloat16 at `hook_q`, `hook_k`, `hook_v`, `hook_z`, `hook_attn_out`, `hook_mlp_out`,
    `hook_pre` and `hook_post`, and float32 at the residual points; they may return either.

    Blocks of other kinds (rotary positions, grouped queries, gated MLPs, TransformerLens's option flags) run unchanged.
    """
    rates = getattr(model, "dropout", None)
    dropout = rates if isinstance(rates, DropoutRates) else DropoutRates(0.0, 0.0, 0.0, 0.0)
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, BertBlock | TransformerBlock) and _can_fuse(module):
                if isinstance(module, BertBlock):
                    replacement = _FusedPostNorm(module, dropout, dtype, train_weights)
                else:
                    replacement = _FusedPreNorm(module, dropout, dtype, train_weights)
                stack.enter_context(_forward_replaced(module, replacement))
            elif isinstance(module, LayerNorm | LayerNormPre):
                stack.enter_context(_forward_replaced(module, _FusedNorm(module, train_weights)))
        yield


@contextmanager
def _forward_replaced(module: nn.Module, forward: Callable[..., Tensor]) -> Generator[None]:
    previous = module.__dict__.get("forward")
    module.forward = forward
    try:
        yield
    finally:
        if previous is None:
            del module.forward
        else:
            module.forward = previous


def _can_fuse(block: BertBlock | TransformerBlock) -> bool:
    cfg = block.cfg
    flags = (
        cfg.use_attn_result,
        cfg.use_split_qkv_input,
        cfg.use_attn_in,
        cfg.use_hook_mlp_in,
        cfg.attn_only,
        cfg.parallel_attn_mlp,
        cfg.use_local_attn,
        cfg.use_qk_norm,
        cfg.use_logn_attn,
        cfg.use_attention_sinks,
        cfg.use_normalization_before_and_after,
        cfg.load_in_4bit,
        cfg.clip_qkv is not None,
        cfg.attn_scores_soft_cap > 0,
        cfg.original_architecture is not None and "Olmo" in cfg.original_architecture,
    )
    return (
        not any(flags)
        and cfg.positional_embedding_type == "standard"
        and cfg.act_fn in _ACTIVATIONS
        and type(block.attn) is Attention
        and type(block.mlp) is MLP
        and all(type(norm) in (LayerNorm, LayerNormPre) for norm in (block.ln1, block.ln2))
    )


class _Weights(NamedTuple):
    """A block's matrices as `linear` takes them: output x input."""

    qkv: Float[Tensor, "three_head_d_head d_model"]
    qkv_bias: Float[Tensor, " three_head_d_head"]
    out: Float[Tensor, "d_model head_d_head"]
    out_bias: Float[Tensor, " d_model"]
    mlp_in: Float[Tensor, "d_mlp d_model"]
    mlp_in_bias: Float[Tensor, " d_mlp"]
    mlp_out: Float[Tensor, "d_model d_mlp"]
    mlp_out_bias: Float[Tensor, " d_model"]


def _pack(block: BertBlock | TransformerBlock, dtype: torch.dtype | None) -> _Weights:
    """Only QKV is copied; the other matrices are views of the parameters, unless `dtype` differs."""
    attn, mlp = block.attn, cast(MLP, block.mlp)
    packed = _Weights(
        qkv=torch.cat([w.transpose(1, 2) for w in (attn.W_Q, attn.W_K, attn.W_V)]).flatten(0, 1),
        qkv_bias=torch.cat([attn.b_Q, attn.b_K, attn.b_V]).flatten(),
        out=attn.W_O.flatten(0, 1).T,
        out_bias=attn.b_O,
        mlp_in=mlp.W_in.T,
        mlp_in_bias=mlp.b_in,
        mlp_out=mlp.W_out.T,
        mlp_out_bias=mlp.b_out,
    )
    return packed if dtype is None else _Weights(*(w.to(dtype) for w in packed))


class _FusedNorm:
    """LayerNorm in one call; without an affine for TransformerLens's folded LayerNormPre."""

    def __init__(self, norm: LayerNorm | LayerNormPre, train_weights: bool) -> None:
        self.norm = norm
        self.original = norm.forward
        self.train_weights = train_weights

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.norm
        if _listened_to(norm.hook_scale) or _listened_to(norm.hook_normalized):
            return self.original(x)
        weight, bias = (norm.w, norm.b) if isinstance(norm, LayerNorm) else (None, None)
        if not self.train_weights and weight is not None and bias is not None:
            weight, bias = weight.detach(), bias.detach()
        return functional.layer_norm(x, x.shape[-1:], weight, bias, norm.eps)


class _FusedBlock(Generic[_Block]):
    """Attention and MLP of one block; subclasses put them in order."""

    def __init__(self, block: _Block, dropout: DropoutRates, dtype: torch.dtype | None, train_weights: bool) -> None:
        self.block = block
        self.original = block.forward
        self.dropout = dropout
        self.dtype = dtype
        self.frozen = None if train_weights else _Weights(*(w.detach() for w in _pack(block, dtype)))
        self.activation = _ACTIVATIONS[block.cfg.act_fn]
        self.causal = block.cfg.attention_dir == "causal"
        self.not_computed = [
            point for name, point in block.named_modules() if isinstance(point, HookPoint) and name not in _COMPUTED
        ]

    @property
    def must_fall_back(self) -> bool:
        """Whether a hook point that is not computed here has hooks."""
        return any(_listened_to(point) for point in self.not_computed)

    def weights(self) -> _Weights:
        return self.frozen if self.frozen is not None else _pack(self.block, self.dtype)

    def attention(
        self, x: Float[Tensor, "batch pos d_model"], weights: _Weights, mask: Tensor | None
    ) -> Float[Tensor, "batch pos d_model"]:
        """What `block.attn` returns, dropout included; `mask` as scaled_dot_product_attention takes it, padding only."""
        attn, training = self.block.attn, self.block.training
        shape = (*x.shape[:2], 3, attn.cfg.n_heads, attn.cfg.d_head)
        q, k, v = functional.linear(self._cast(x), weights.qkv, weights.qkv_bias).view(shape).unbind(2)
        q, k, v = (self._cast(hook(part)) for hook, part in ((attn.hook_q, q), (attn.hook_k, k), (attn.hook_v, v)))
        z = _attend(
            q.transpose(1, 2),
            k.transpose(1, 2),
            v.transpose(1, 2),
            mask if mask is None or mask.dtype == torch.bool else mask.to(q.dtype),
            dropout=self.dropout.attention if training else 0.0,
            causal=self.causal and mask is None,
            scale=1 / attn.attn_scale,
        )
        z = self._cast(attn.hook_z(z.transpose(1, 2)))
        out = functional.linear(z.flatten(2), weights.out, weights.out_bias)
        return functional.dropout(out, self.dropout.hidden, training)

    def mlp(self, x: Float[Tensor, "batch pos d_model"], weights: _Weights) -> Float[Tensor, "batch pos d_model"]:
        """What `block.mlp` returns, dropout included."""
        mlp = cast(MLP, self.block.mlp)
        hidden = mlp.hook_pre(functional.linear(self._cast(x), weights.mlp_in, weights.mlp_in_bias))
        hidden = self._cast(mlp.hook_post(self.activation(hidden)))
        out = functional.linear(hidden, weights.mlp_out, weights.mlp_out_bias)
        return functional.dropout(out, self.dropout.hidden, self.block.training)

    def _cast(self, x: Tensor) -> Tensor:
        return x if self.dtype is None else x.to(self.dtype)


class _FusedPostNorm(_FusedBlock[BertBlock]):
    """BERT's order: each LayerNorm after its residual add."""

    def __call__(self, resid_pre: Tensor, additive_attention_mask: Tensor | None = None) -> Tensor:
        if self.must_fall_back:
            return self.original(resid_pre, additive_attention_mask)
        block, weights = self.block, self.weights()
        resid_pre = block.hook_resid_pre(resid_pre)
        attn_out = block.hook_attn_out(self.attention(resid_pre, weights, additive_attention_mask))
        normalized = block.ln1(block.hook_resid_mid(resid_pre + attn_out))
        mlp_out = block.hook_mlp_out(self.mlp(normalized, weights))
        return block.hook_normalized_resid_post(block.ln2(block.hook_resid_post(normalized + mlp_out)))


class _FusedPreNorm(_FusedBlock[TransformerBlock]):
    """GPT-2's order: each LayerNorm before its sublayer."""

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
        attn_out = block.hook_attn_out(self.attention(block.ln1(resid_pre), weights, self._mask(attention_mask)))
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
    q: Float[Tensor, "batch head pos d_head"],
    k: Float[Tensor, "batch head pos d_head"],
    v: Float[Tensor, "batch head pos d_head"],
    mask: Tensor | None,
    *,
    dropout: float,
    causal: bool,
    scale: float,
) -> Float[Tensor, "batch head pos d_head"]:
    """scaled_dot_product_attention, or the same in plain matrix products where those are faster.

    On the CPU, torch's fused attention is slow backward in bfloat16 (2.13 with AMX, 32 rows of 40 tokens, 12 heads: 62 ms, and
    15 ms in float32); plain products take 7 ms.
    """
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


def _listened_to(point: HookPoint) -> bool:
    return bool(point.fwd_hooks or point.bwd_hooks)
