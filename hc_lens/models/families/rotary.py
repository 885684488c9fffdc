"""Rotary positions: transformers' `rope_parameters` as TransformerLens has them."""

from typing import cast

from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

_EXPRESSIBLE = ("default", "linear", "llama3")


def set_rotary(cfg: HookedTransformerConfig, config: PretrainedConfig, rotary_dim: int) -> HookedTransformerConfig:
    """Give `cfg` the rotary positions of `config` on the first `rotary_dim` components of every head.

    Raises:
        ValueError: for a kind of scaling that TransformerLens does not compute as transformers does, naming it.
    """
    rope = cast(dict[str, float | str], config.rope_parameters)
    kind = rope.get("rope_type", "default")
    if kind not in _EXPRESSIBLE:
        raise ValueError(
            f"{config.model_type} with rope_parameters.rope_type={kind!r} is not supported; "
            f"supported are {', '.join(_EXPRESSIBLE)}"
        )
    if rotary_dim % 2:
        raise ValueError(f"{config.model_type}: rotary positions on {rotary_dim} components of a head; the number must be even")
    cfg.positional_embedding_type = "rotary"
    cfg.rotary_dim = rotary_dim
    cfg.rotary_base = float(rope["rope_theta"])
    if kind == "linear":
        cfg.rotary_scaling_factor = float(rope["factor"])
    if kind == "llama3":
        cfg.use_NTK_by_parts_rope = True
        cfg.NTK_by_parts_factor = float(rope["factor"])
        cfg.NTK_by_parts_low_freq_factor = float(rope["low_freq_factor"])
        cfg.NTK_by_parts_high_freq_factor = float(rope["high_freq_factor"])
        cfg.NTK_original_ctx_len = int(rope["original_max_position_embeddings"])
    return cfg
