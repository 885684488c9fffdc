"""Which transformers architectures are supported, and their shape in TransformerLens terms."""

from typing import Literal, NamedTuple

from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

Family = Literal["bert", "roberta", "gpt2"]
SUPPORTED: tuple[Family, ...] = ("bert", "roberta", "gpt2")

# transformers' names of activation functions -> TransformerLens's.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu_new",
    "gelu_fast": "gelu_fast",
    "gelu_pytorch_tanh": "gelu_pytorch_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}


class DropoutRates(NamedTuple):
    """Probabilities with which training drops activations, as the transformers config states them."""

    embedding: float
    attention: float
    hidden: float
    classifier: float


def family_of(model_type: str | None, source: str) -> Family:
    """The supported family that `model_type` names.

    Raises:
        ValueError: naming the type and the supported ones.
    """
    for family in SUPPORTED:
        if model_type == family:
            return family
    raise ValueError(f"{source}: model type {model_type!r} is not supported; supported are {', '.join(SUPPORTED)}")


def position_offset(family: Family, config: PretrainedConfig) -> int:
    """Rows of the position table before that of the first token (RoBERTa counts from pad_token_id + 1)."""
    return config.pad_token_id + 1 if family == "roberta" else 0


def dropout_rates(family: Family, config: PretrainedConfig) -> DropoutRates:
    """Dropout as transformers trains this config."""
    if family == "gpt2":
        return DropoutRates(config.embd_pdrop, config.attn_pdrop, config.resid_pdrop, 0.0)
    hidden: float = config.hidden_dropout_prob
    classifier: float | None = getattr(config, "classifier_dropout", None)
    return DropoutRates(hidden, config.attention_probs_dropout_prob, hidden, hidden if classifier is None else classifier)


def hooked_config(family: Family, config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    """TransformerLens's config for a transformers config; no weight processing, no initialisation.

    Raises:
        ValueError: for an option of the config that TransformerLens cannot express, naming the field and its value.
    """
    if family == "gpt2":
        return _gpt2_config(config, device)
    _require(config, "is_decoder", False)
    _require(config, "position_embedding_type", "absolute")
    d_model: int = config.hidden_size
    return HookedTransformerConfig(
        model_name=family,
        d_model=d_model,
        d_head=d_model // config.num_attention_heads,
        n_heads=config.num_attention_heads,
        n_layers=config.num_hidden_layers,
        n_ctx=config.max_position_embeddings - position_offset(family, config),
        d_mlp=config.intermediate_size,
        d_vocab=config.vocab_size,
        act_fn=_activation(config.hidden_act),
        eps=config.layer_norm_eps,
        attention_dir="bidirectional",
        init_weights=False,
        device=device,
    )


def _gpt2_config(config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    _require(config, "add_cross_attention", False)
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
        act_fn=_activation(config.activation_function),
        eps=config.layer_norm_epsilon,
        use_attn_scale=config.scale_attn_weights,
        scale_attn_by_inverse_layer_idx=config.scale_attn_by_inverse_layer_idx,
        attention_dir="causal",
        default_prepend_bos=False,
        init_weights=False,
        device=device,
    )


def _activation(name: str) -> str:
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation function {name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def _require(config: PretrainedConfig, field: str, value: bool | str) -> None:
    found = getattr(config, field, value)
    if found != value:
        raise ValueError(f"{config.model_type} with {field}={found!r} is not supported; it must be {value!r}")
