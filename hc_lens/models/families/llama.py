"""Llama and Qwen2: grouped queries, RMSNorm, rotary positions, gated MLPs; Qwen2 has biases on Q, K and V.

Every query head is a unit, with a context vector of its own at `hook_z`; the keys and values that a group of them shares are
not units.
"""

import torch
from torch import Tensor
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, DropoutRates, activation
from hc_lens.models.families.rotary import set_rotary
from hc_lens.models.weights import Entry, head_bias, into_heads, out_of_heads, same, transposed


def _hooked_config(config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    if (partial := config.rope_parameters.get("partial_rotary_factor", 1.0)) != 1.0:
        raise ValueError(
            f"{config.model_type} with rope_parameters.partial_rotary_factor={partial!r} is not supported; it must be 1.0"
        )
    d_head: int = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    cfg = HookedTransformerConfig(
        model_name=config.model_type,
        d_model=config.hidden_size,
        d_head=d_head,
        n_heads=config.num_attention_heads,
        n_key_value_heads=config.num_key_value_heads if _is_grouped(config) else None,
        n_layers=config.num_hidden_layers,
        n_ctx=config.max_position_embeddings,
        d_mlp=config.intermediate_size,
        d_vocab=config.vocab_size,
        act_fn=activation(config.hidden_act),
        eps=config.rms_norm_eps,
        normalization_type="RMS",
        final_rms=True,
        gated_mlp=True,
        attention_dir="causal",
        default_prepend_bos=False,
        init_weights=False,
        device=device,
    )
    _set_sliding_window(cfg, config)
    return set_rotary(cfg, config, d_head)


def _set_sliding_window(cfg: HookedTransformerConfig, config: PretrainedConfig) -> None:
    kinds: list[str] = getattr(config, "layer_types", None) or []
    if unknown := set(kinds) - {"full_attention", "sliding_attention"}:
        raise ValueError(
            f"{config.model_type} with layer_types={sorted(unknown)} is not supported; "
            "supported are full_attention, sliding_attention"
        )
    if "sliding_attention" in kinds:
        cfg.use_local_attn = True
        cfg.window_size = config.sliding_window
        cfg.attn_types = ["local" if kind == "sliding_attention" else "global" for kind in kinds]


def _is_grouped(config: PretrainedConfig) -> bool:
    return config.num_key_value_heads != config.num_attention_heads


def _has_biases(config: PretrainedConfig) -> tuple[bool, bool]:
    """Whether Q, K and V have biases, and whether O has one: Llama has all or none of them, Qwen2 those of Q, K and V."""
    return (True, False) if config.model_type == "qwen2" else (config.attention_bias, config.attention_bias)


def _entries(config: PretrainedConfig) -> list[Entry]:
    return [
        same("model.embed_tokens.weight", "embed.W_E"),
        *(entry for layer in range(config.num_hidden_layers) for entry in _block(layer, config)),
        same("model.norm.weight", "ln_final.w"),
        same("score.weight", "classifier.weight", is_head=True),
    ]


def _block(layer: int, config: PretrainedConfig) -> list[Entry]:
    theirs, ours = f"model.layers.{layer}", f"blocks.{layer}"
    attention = f"{theirs}.self_attn"
    n_heads: int = config.num_attention_heads
    qkv_bias, out_bias = _has_biases(config)
    found = [
        out_of_heads(f"{attention}.o_proj.weight", f"{ours}.attn.W_O", n_heads),
        same(f"{theirs}.input_layernorm.weight", f"{ours}.ln1.w"),
        same(f"{theirs}.post_attention_layernorm.weight", f"{ours}.ln2.w"),
        transposed(f"{theirs}.mlp.gate_proj.weight", f"{ours}.mlp.W_gate"),
        transposed(f"{theirs}.mlp.up_proj.weight", f"{ours}.mlp.W_in"),
        transposed(f"{theirs}.mlp.down_proj.weight", f"{ours}.mlp.W_out"),
    ]
    # TransformerLens keeps the parameters of shared keys and values under names with an underscore.
    shared = "_" if _is_grouped(config) else ""
    n_shared: int = config.num_key_value_heads
    for projection, letter, mark, n in (("q", "Q", "", n_heads), ("k", "K", shared, n_shared), ("v", "V", shared, n_shared)):
        found.append(into_heads(f"{attention}.{projection}_proj.weight", f"{ours}.attn.{mark}W_{letter}", n))
        if qkv_bias:
            found.append(head_bias(f"{attention}.{projection}_proj.bias", f"{ours}.attn.{mark}b_{letter}", n))
    if out_bias:
        found.append(same(f"{attention}.o_proj.bias", f"{ours}.attn.b_O"))
    if getattr(config, "mlp_bias", False):
        into = [_zeros(f"{theirs}.mlp.{name}.bias", config.intermediate_size) for name in ("gate_proj", "up_proj")]
        found += [*into, same(f"{theirs}.mlp.down_proj.bias", f"{ours}.mlp.b_out")]
    return found


def _zeros(theirs: str, n: int) -> Entry:
    """A bias that TransformerLens has no place for: it adds a gated MLP's behind the product of gate and input."""

    def split(bias: Tensor) -> tuple[Tensor, ...]:
        if bias.any():
            raise ValueError(f"llama with mlp_bias=True is supported only where {theirs} is zero, and it is not")
        return ()

    return Entry(theirs, (), split, lambda parts: torch.zeros(n))


def _dropout(config: PretrainedConfig) -> DropoutRates:
    return DropoutRates(0.0, config.attention_dropout, 0.0, 0.0, 0.0)


LLAMA = Architecture(
    family="llama",
    hf_class="LlamaForSequenceClassification",
    hooked_config=_hooked_config,
    entries=_entries,
    dropout=_dropout,
    bias_flags={"attn": "attention_bias", "mlp": "mlp_bias"},
)

QWEN2 = Architecture(
    family="qwen2",
    hf_class="Qwen2ForSequenceClassification",
    hooked_config=_hooked_config,
    entries=_entries,
    dropout=_dropout,
)
