"""What a caller has (a split, encoded rows, token ids) as batches, and a batch through any hooked model."""

import inspect
from collections.abc import Generator
from contextlib import contextmanager
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from transformer_lens.model_bridge import TransformerBridge

from hc_lens.data.batches import Batch, Encoded, encode, encode_tokens
from hc_lens.data.task import Split
from hc_lens.hooks import HookedModel
from hc_lens.models import fused
from hc_lens.models.inputs import require_ids, require_length, tensor_of
from hc_lens.models.source import require_device
from hc_lens.precision import Kind, Precision, resolve

Inputs = Split | Encoded | Tensor | NDArray[np.generic]
"""Sentence pairs, encoded rows, or token ids [row pos] without padding (a plain language model's data)."""


def dtype_of(precision: Kind) -> torch.dtype | None:
    """What `fused` takes for this precision."""
    return torch.bfloat16 if precision == "bf16" else None


def inputs_of(model: HookedModel, data: Inputs, max_length: int | None = None) -> Encoded:
    """Encode `data` for `model`: a split with the model's own tokenizer, whatever is encoded already as it is.

    Pairs are cut at `max_length` tokens, by default and at most the model's limit.

    Raises:
        ValueError: when a split meets a model without a tokenizer, for rows that the model cannot read, for a model on the meta
            device, and for a TransformerBridge that has lost a classifier's head.
    """
    if isinstance(model, TransformerBridge):
        _require_own_head(model)
    require_device(next((parameter.device for parameter in model.parameters()), "cpu"))
    if isinstance(data, Encoded):
        _require_read(model, data.tokens[None], int(data.lengths.max()))
        return data
    if isinstance(data, Tensor | np.ndarray):
        tokens = tensor_of(data, "tokens")
        _require_read(model, tokens, tokens.shape[1])
        return encode_tokens(tokens)
    tokenizer = getattr(model, "tokenizer", None)
    if tokenizer is None:
        raise ValueError(
            f"{type(model).__name__} has no tokenizer, so the split {data.name!r} cannot be encoded: pass tokenizer=... to "
            "load_model, or pass encoded rows"
        )
    return encode(data, tokenizer, length_limit(model, max_length))


def _require_read(model: HookedModel, tokens: Tensor, longest: int) -> None:
    vocabulary = cast("int | None", getattr(model.cfg, "d_vocab", None))
    require_length(longest, length_limit(model))
    require_ids(tokens, vocabulary)


def length_limit(model: HookedModel, max_length: int | None = None) -> int:
    """The most tokens a row may have: `max_length`, by default and at most the model's limit."""
    limit = cast(int, getattr(model, "max_length", None) or shape_of(model).n_ctx)
    return min(max_length or limit, limit)


def _require_own_head(bridge: TransformerBridge) -> None:
    """A bridge reads a classifier's directory as a language model, whose head has random weights: refuse that."""
    inner = bridge.original_model
    declared: list[str] = getattr(getattr(inner, "config", None), "architectures", None) or []
    if any(name.endswith("ForSequenceClassification") for name in declared) and type(inner).__name__ not in declared:
        raise ValueError(
            f"this TransformerBridge holds a {type(inner).__name__} made from the weights of a {declared[0]}: its head was "
            "never trained; load the classifier with load_model"
        )


def run_batch(model: HookedModel, batch: Batch) -> Float[Tensor, "batch *output"]:
    """The model's output for a batch; mask and token types go in under the names that the model's `forward` has for them."""
    if hasattr(model, "label_names"):
        return cast(Tensor, model(batch))
    accepted = set(inspect.signature(model.forward).parameters)
    if isinstance(model, TransformerBridge):  # it hands what it does not name on to the transformers model
        accepted |= set(inspect.signature(model.original_model.forward).parameters)
    optional = {
        "attention_mask": batch.attention_mask,
        "one_zero_attention_mask": batch.attention_mask,
        "token_type_ids": batch.token_type_ids,
    }
    return cast(Tensor, model(batch.input_ids, **{name: value for name, value in optional.items() if name in accepted}))


@runtime_checkable
class Shape(Protocol):
    """The sizes in a hooked model's `cfg`."""

    n_layers: int
    n_heads: int
    d_model: int
    n_ctx: int


def shape_of(model: HookedModel) -> Shape:
    """The model's sizes; TransformerLens's base class does not declare `cfg`."""
    return cast(Shape, model.cfg)


def device_of(model: nn.Module) -> torch.device:
    """Where the model's weights are."""
    return next(model.parameters()).device


@contextmanager
def inference(model: HookedModel, precision: Precision = "fp32", *, narrow: bool = False) -> Generator[None]:
    """Eval mode, no gradients and fused weights; what was so before is restored, also on error.

    `precision` "auto" is what products on this machine are faster in, measured once. Weights are packed once on entry: many
    passes under one `inference` share it. With `narrow`, an encoder classifier's last block computes the first token only, as
    `fused` says: for callers that want logits.
    """
    with mode(model, training=False), torch.no_grad(), fused(model, dtype=dtype_of(resolve(precision, model)), narrow=narrow):
        yield


@contextmanager
def mode(model: nn.Module, *, training: bool) -> Generator[None]:
    """Train or eval mode; each module's own mode is restored, also on error."""
    before = [(module, module.training) for module in model.modules()]
    try:
        model.train(training)
        yield
    finally:
        for module, its in before:
            module.training = its
