"""A faster forward pass through TransformerLens blocks, with the hook points that edits and captures use.

TransformerLens re-lays out the attention weights at every forward, computes attention and norms step by step and scrubs
NaNs. Inside `fused` a block does what transformers' sdpa models do: one packed QKV product, scaled_dot_product_attention, fused
norms. Per block and per forward pass it falls back to TransformerLens's own code while anyone listens to a hook point that the
fused code does not compute (attention scores and patterns, the insides of a norm).
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens.components.attention import Attention
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.grouped_query_attention import GroupedQueryAttention
from transformer_lens.components.layer_norm import LayerNorm
from transformer_lens.components.layer_norm_pre import LayerNormPre
from transformer_lens.components.mlps.gated_mlp import GatedMLP
from transformer_lens.components.mlps.mlp import MLP
from transformer_lens.components.rms_norm import RMSNorm
from transformer_lens.components.rms_norm_pre import RMSNormPre
from transformer_lens.components.transformer_block import TransformerBlock

from hc_lens.models.architecture import NO_DROPOUT, DropoutRates
from hc_lens.models.classifier import EncoderClassifier
from hc_lens.models.fused_blocks import ACTIVATIONS, FusedPostNorm, FusedPreNorm, listened_to


@contextmanager
def fused(
    model: nn.Module, dtype: torch.dtype | None = None, *, train_weights: bool = False, narrow: bool = False
) -> Generator[None]:
    """Run the blocks of a hooked model by the fused forward; on exit, also on error, everything is as before.

    By default the weights are constants, packed and cast once at entry: weight changes inside the context are not seen and no
    weight gets a gradient. With `train_weights` they are read at every forward and get their gradients.

    With `dtype=torch.bfloat16` matrix products and attention run in bfloat16 while the residual stream and norms stay in
    float32. Hook functions then see bfloat16 at `hook_q`, `hook_k`, `hook_v`, `hook_z`, `hook_attn_out`, `hook_mlp_out`,
    `hook_pre` and `hook_post`, and float32 at the residual points; they may return either.

    With `narrow`, the last block of an `EncoderClassifier` computes only what its logits are read from, the state of the first
    token: keys and values of every position, the rest of one. It does so in eval mode and while its points behind the values
    have no hooks but those declared `positionwise`, to which it shows that one position; the logits are the same. What the
    model's `encoder_output` returns is then one position wide.

    Blocks of other kinds (sliding windows, TransformerLens's option flags) and of a TransformerBridge run unchanged.
    """
    rates = getattr(model, "dropout", None)
    dropout = rates if isinstance(rates, DropoutRates) else NO_DROPOUT
    last = model.blocks[-1] if narrow and isinstance(model, EncoderClassifier) else None
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, BertBlock | TransformerBlock) and _can_fuse(module):
                if isinstance(module, BertBlock):
                    replacement = FusedPostNorm(module, dropout, dtype, train_weights, first_only=module is last)
                else:
                    replacement = FusedPreNorm(module, dropout, dtype, train_weights)
                stack.enter_context(_forward_replaced(module, replacement))
            elif isinstance(module, LayerNorm | LayerNormPre):
                stack.enter_context(_forward_replaced(module, _FusedLayerNorm(module, train_weights)))
            elif isinstance(module, RMSNorm) and module.cfg.dtype in (torch.float32, torch.float64):
                stack.enter_context(_forward_replaced(module, _FusedRMSNorm(module, train_weights)))
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
        cfg.use_local_attn,
        cfg.use_qk_norm,
        cfg.use_logn_attn,
        cfg.use_attention_sinks,
        cfg.use_normalization_before_and_after,
        cfg.ungroup_grouped_query_attention,
        cfg.load_in_4bit,
        cfg.clip_qkv is not None,
        cfg.attn_scores_soft_cap > 0,
        cfg.original_architecture is not None and "Olmo" in cfg.original_architecture,
    )
    return (
        not any(flags)
        and cfg.positional_embedding_type in ("standard", "rotary")
        and cfg.act_fn in ACTIVATIONS
        and type(block.attn) in (Attention, GroupedQueryAttention)
        and type(block.mlp) in (MLP, GatedMLP)
        and all(type(norm) in (LayerNorm, LayerNormPre, RMSNorm, RMSNormPre) for norm in (block.ln1, block.ln2))
    )


class _FusedLayerNorm:
    """LayerNorm in one call; without an affine for TransformerLens's folded LayerNormPre."""

    def __init__(self, norm: LayerNorm | LayerNormPre, train_weights: bool) -> None:
        self.norm = norm
        self.original = norm.forward
        self.train_weights = train_weights

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.norm
        if listened_to(norm.hook_scale) or listened_to(norm.hook_normalized):
            return self.original(x)
        weight, bias = (norm.w, norm.b) if isinstance(norm, LayerNorm) else (None, None)
        if not self.train_weights and weight is not None and bias is not None:
            weight, bias = weight.detach(), bias.detach()
        return functional.layer_norm(x, x.shape[-1:], weight, bias, norm.eps)


class _FusedRMSNorm:
    """RMSNorm in one call."""

    def __init__(self, norm: RMSNorm, train_weights: bool) -> None:
        self.norm = norm
        self.original = norm.forward
        self.train_weights = train_weights

    def __call__(self, x: Tensor) -> Tensor:
        norm = self.norm
        if listened_to(norm.hook_scale) or listened_to(norm.hook_normalized):
            return self.original(x)
        return functional.rms_norm(x, x.shape[-1:], norm.w if self.train_weights else norm.w.detach(), norm.eps)
