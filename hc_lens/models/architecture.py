"""The description that makes a transformers architecture a hooked classifier: one `Architecture` per family, in `families/`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from torch import nn
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.weights import Entry

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
    attention_out: float
    mlp_out: float
    classifier: float


NO_DROPOUT = DropoutRates(0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True)
class FirstToken:
    """An encoder's head: a square layer (HookedEncoder's `pooler`) on the first token's state, then the output layer.

    Attributes:
        activation: makes the module after the square layer.
        drops_input: whether dropout acts in front of the square layer too, and not only behind it.
    """

    activation: Callable[[], nn.Module]
    drops_input: bool


@dataclass(frozen=True)
class Architecture:
    """One family of transformers models, as far as a hooked classifier differs from those of the others.

    Attributes:
        family: transformers' `model_type`.
        hf_class: the class that transformers reads a saved classifier with.
        hooked_config: TransformerLens's config for a transformers config and a device, without weight processing or
            initialisation; raises ValueError for an option that TransformerLens cannot express, naming field and value.
        entries: which hooked tensors hold which transformers tensors; hooked parameters that no entry names do not exist in
            transformers and stay zero.
        dropout: the rates that transformers trains this config with.
        first_token: the head of an encoder; None for a decoder, which has a layer without bias on the last real token.
        token_types: rows of the token type table; a family without one ignores token types, as transformers does.
        position_offset: rows of the position table before that of the first token.
        embedding_size: width of the embeddings where it is not that of the residual stream, which a projection then fills.
        bias_flags: the config's fields that give the output projections of attention (`attn`) and of the MLP (`mlp`) a bias,
            where that is a choice.
    """

    family: str
    hf_class: str
    hooked_config: Callable[[PretrainedConfig, str], HookedTransformerConfig]
    entries: Callable[[PretrainedConfig], list[Entry]]
    dropout: Callable[[PretrainedConfig], DropoutRates]
    first_token: FirstToken | None = None
    token_types: Callable[[PretrainedConfig], int] | None = None
    position_offset: Callable[[PretrainedConfig], int] = lambda config: 0
    embedding_size: Callable[[PretrainedConfig], int | None] = lambda config: None
    bias_flags: Mapping[str, str] = field(default_factory=dict[str, str])


def activation(name: str) -> str:
    """TransformerLens's name of an activation function.

    Raises:
        ValueError: naming the supported ones.
    """
    if name not in _ACTIVATIONS:
        raise ValueError(f"activation function {name!r} is not supported; supported are {', '.join(_ACTIVATIONS)}")
    return _ACTIVATIONS[name]


def require(config: PretrainedConfig, field: str, value: bool | float | str) -> None:
    """Check that an option of the config has the only value that can be expressed; an absent field has it.

    Raises:
        ValueError: naming the field, its value and the one it must have.
    """
    found = getattr(config, field, value)
    if found != value:
        raise ValueError(f"{config.model_type} with {field}={found!r} is not supported; it must be {value!r}")
