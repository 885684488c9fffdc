"""GPT-2 and DistilGPT-2."""

import torch
from einops import rearrange
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, DropoutRates, activation, require
from hc_lens.models.weights import Entry, norm, same


def _hooked_config(config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    require(config, "add_cross_attention", False)
    d_model: int = config.n_embd
    return HookedTransformerConfig(
        model_name="gpt2",
        d_model=d_model,
        d_head=d_model // config.n_head,
        n_heads=config.n_head,
        n_layers=config.n_layer,
        n_ctx=config.n_positions,
        d_mlp=4 * d_model if config.n_inner is None else config.n_inner,
        d_vocab=config.vocab_size,
        act_fn=activation(config.activation_function),
        eps=config.layer_norm_epsilon,
        use_attn_scale=config.scale_attn_weights,
        scale_attn_by_inverse_layer_idx=config.scale_attn_by_inverse_layer_idx,
        attention_dir="causal",
        default_prepend_bos=False,
        init_weights=False,
        device=device,
    )


def _entries(config: PretrainedConfig) -> list[Entry]:
    return [
        same("transformer.wte.weight", "embed.W_E"),
        same("transformer.wpe.weight", "pos_embed.W_pos"),
        *(entry for layer in range(config.n_layer) for entry in _block(layer, config.n_head)),
        *norm("transformer.ln_f", "ln_final"),
        same("score.weight", "classifier.weight", is_head=True),
    ]


def _block(layer: int, n_heads: int) -> list[Entry]:
    theirs, ours = f"transformer.h.{layer}", f"blocks.{layer}"
    qkv_weight = Entry(
        f"{theirs}.attn.c_attn.weight",
        (f"{ours}.attn.W_Q", f"{ours}.attn.W_K", f"{ours}.attn.W_V"),
        lambda w: tuple(rearrange(w, "d_model (qkv head d_head) -> qkv head d_model d_head", qkv=3, head=n_heads)),
        lambda parts: rearrange(list(parts), "qkv head d_model d_head -> d_model (qkv head d_head)"),
    )
    qkv_bias = Entry(
        f"{theirs}.attn.c_attn.bias",
        (f"{ours}.attn.b_Q", f"{ours}.attn.b_K", f"{ours}.attn.b_V"),
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
        same(f"{theirs}.attn.c_proj.bias", f"{ours}.attn.b_O"),
        *norm(f"{theirs}.ln_1", f"{ours}.ln1"),
        # Conv1D keeps input x output, as TransformerLens does
        same(f"{theirs}.mlp.c_fc.weight", f"{ours}.mlp.W_in"),
        same(f"{theirs}.mlp.c_fc.bias", f"{ours}.mlp.b_in"),
        same(f"{theirs}.mlp.c_proj.weight", f"{ours}.mlp.W_out"),
        same(f"{theirs}.mlp.c_proj.bias", f"{ours}.mlp.b_out"),
        *norm(f"{theirs}.ln_2", f"{ours}.ln2"),
    ]


GPT2 = Architecture(
    family="gpt2",
    hf_class="GPT2ForSequenceClassification",
    hooked_config=_hooked_config,
    entries=_entries,
    dropout=lambda config: DropoutRates(config.embd_pdrop, config.attn_pdrop, config.resid_pdrop, config.resid_pdrop, 0.0),
)
