"""What a classifier reads: token ids with a right-padded mask, checked before they reach TransformerLens."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol, cast, overload, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor


@runtime_checkable
class TokenBatch(Protocol):
    """Rows of tokens, right-padded; `hc_lens.data.batches.Batch` is one."""

    @property
    def input_ids(self) -> Int[Tensor, "batch pos"]: ...
    @property
    def attention_mask(self) -> Int[Tensor, "batch pos"]: ...
    @property
    def token_type_ids(self) -> Int[Tensor, "batch pos"] | None: ...


# Axes of their own: that they are the ids' is checked with a message, not by annotations that only tests enforce.
Mask = Int[Tensor, "mask_batch mask_pos"] | Bool[Tensor, "mask_batch mask_pos"] | Float[Tensor, "mask_batch mask_pos"]
Types = Int[Tensor, "type_batch type_pos"]


class Tokens(NamedTuple):
    """Checked input. `mask` is None when every position is a real token."""

    ids: Int[Tensor, "batch pos"]
    mask: Int[Tensor, "batch pos"] | None
    types: Int[Tensor, "batch pos"] | None


class Reading(NamedTuple):
    """How a model reads rows of tokens.

    Attributes:
        max_length: the most tokens of a row.
        vocabulary: rows of the embedding.
        pad_id: the token that pads rows; None where nothing does.
        starts: tokens that begin a text.
        causal: whether a token sees those before it only, so that padding behind needs no mask.
        pad_is_assumed: whether the head was trained without a pad token in the config, so that transformers reads each row's
            last token even where that is `pad_id`.
    """

    max_length: int
    vocabulary: int
    pad_id: int | None = None
    starts: frozenset[int] = frozenset()
    causal: bool = False
    pad_is_assumed: bool = False


@overload
def tensor_of(values: Tensor | NDArray[np.generic], name: str) -> Tensor: ...
@overload
def tensor_of(values: Tensor | NDArray[np.generic] | None, name: str) -> Tensor | None: ...
def tensor_of(values: Tensor | NDArray[np.generic] | None, name: str) -> Tensor | None:
    """The values as a tensor [batch pos]; arrays of numpy are taken as they are.

    Raises:
        ValueError: for another number of axes, and for a tensor without values.
    """
    if values is None:
        return None
    tensor = torch.as_tensor(values)
    if tensor.ndim != 2:
        hint = ": give one row as [[...]]" if tensor.ndim == 1 else ""
        raise ValueError(f"{name} must have two axes, [batch pos], got shape {list(tensor.shape)}{hint}")
    if tensor.is_meta:
        raise ValueError(f"{name} is on the meta device, where tensors have shapes and no values")
    return tensor


def tensor_of_rows(rows: Sequence[object]) -> Tensor:
    """Lists of token ids as a tensor [batch pos].

    Raises:
        ValueError: for anything else, and for rows of different lengths.
    """
    try:
        return torch.tensor(rows)
    except (TypeError, ValueError) as error:
        raise ValueError(f"input must be texts, or token ids [batch pos] in rows of one length: {error}") from error


def require_length(longest: int, limit: int) -> None:
    """Check that a model reads rows of so many tokens.

    Raises:
        ValueError: naming both numbers.
    """
    if longest < 1:
        raise ValueError("rows of tokens must have at least one token, these have none")
    if longest > limit:
        raise ValueError(f"a row has {longest} tokens; this model reads at most {limit}: truncate the input")


def require_ids(ids: Tensor, vocabulary: int | None) -> None:
    """Check that rows [batch pos] can be looked up in an embedding of so many rows (None: unknown); values on the CPU only.

    Raises:
        ValueError: naming what is wrong, and the first row that has it.
    """
    if ids.is_floating_point() or ids.dtype == torch.bool:
        raise ValueError(f"token ids must be integers, got {str(ids.dtype).removeprefix('torch.')}")
    if ids.device.type == "cpu" and (outside := _outside(ids, vocabulary)).any():
        row, position = _first(outside)
        raise ValueError(
            f"row {row} has token id {int(ids[row, position])} at position {position}; "
            + ("it must not be negative" if vocabulary is None else f"this model has the tokens 0 to {vocabulary - 1}")
        )


def _outside(ids: Tensor, vocabulary: int | None) -> Tensor:
    return ids < 0 if vocabulary is None else (ids < 0) | (ids.long() >= vocabulary)


def check_tokens(ids: Tensor, mask: Mask | None, types: Types | None, reading: Reading) -> Tokens:
    """Tokens [batch pos] ready for the model; without a mask, `pad_id` at the end of a row is padding.

    Raises:
        ValueError: for ids that the model cannot look up, a mask of another shape, and (on the CPU) any padding that is not
            on the right, or may be. On CUDA the padding is checked by an asynchronous device assertion, to keep the host from
            waiting.
    """
    require_length(ids.shape[1], reading.max_length)
    require_ids(ids, reading.vocabulary)
    for name, other in (("attention_mask", mask), ("token_type_ids", types)):
        if other is not None and other.shape != ids.shape:
            raise ValueError(f"{name} has shape {tuple(other.shape)}, input_ids {tuple(ids.shape)}: they must be equal")
    if mask is None and reading.pad_id is None:
        return Tokens(ids, None, types)
    if mask is None:
        text = (ids != cast(int, reading.pad_id)).int()
        real = text.flip(1).cummax(dim=1).values.flip(1).bool()
        real[:, 0] |= _begins(ids, reading)
        unclear = _unclear_padding(ids, real, reading)
    else:
        real = mask.bool()
        unclear = ~real[:, :1] | (real & ~torch.cat([real[:, :1], real[:, :-1]], dim=1))
    if ids.device.type != "cpu":
        torch._assert_async(~unclear.any(), "rows must be right-padded")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        return Tokens(ids, real.to(ids.dtype), types)
    if unclear.any():
        raise ValueError(_about_padding(ids, unclear, mask is None, reading.pad_id))
    if mask is not None and reading.pad_is_assumed:
        _require_another_end(ids, real, reading.pad_id)
    return Tokens(ids, None if real.all() else real.to(ids.dtype), types)


def last_text_position(tokens: Tokens, pad_id: int | None) -> Int[Tensor, " batch"]:
    """Index of each row's last token that is neither padding nor a pad token in its text, as transformers' decoders have it."""
    text = torch.ones_like(tokens.ids) if tokens.mask is None else tokens.mask
    if pad_id is not None:
        text = text * (tokens.ids != pad_id)
    return (text * torch.arange(text.shape[1], device=text.device)).amax(dim=1)


def _begins(ids: Int[Tensor, "batch pos"], reading: Reading) -> Bool[Tensor, " batch"]:
    """Rows whose first token is a pad token because that is what begins a text (GPT-2's end of text), once and in every row.

    Where some rows begin with it and others do not, the former may be padded on the left.
    """
    if not reading.causal or reading.pad_id not in reading.starts:
        return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)
    second = ids[:, 1] != reading.pad_id if ids.shape[1] > 1 else torch.ones_like(ids[:, 0], dtype=torch.bool)
    begins = ids[:, 0] == reading.pad_id
    return begins & second & begins.all()


def _unclear_padding(
    ids: Int[Tensor, "batch pos"], real: Bool[Tensor, "batch pos"], reading: Reading
) -> Bool[Tensor, "batch pos"]:
    """Pad tokens before other tokens, which may be left padding; a decoder reads those inside a text like any other."""
    unclear = (ids == cast(int, reading.pad_id)) & real
    if reading.causal:
        unclear[:, 1:] = False
        unclear[:, 0] &= ~_begins(ids, reading)
    unclear[:, 0] |= ~real[:, 0]
    return unclear


def _about_padding(ids: Tensor, unclear: Tensor, without_mask: bool, pad_id: int | None) -> str:
    row, position = _first(unclear)
    if without_mask and not (ids[row] == pad_id).all():
        return (
            f"row {row} has the pad token (id {pad_id}) at position {position}, before other tokens: without attention_mask "
            "that may be left padding, which is not supported, or part of the text; pass attention_mask, padding last"
        )
    return (
        f"row {row}: left padding (or a hole in attention_mask, or nothing but padding) is not supported: a row's tokens must "
        "come first and its padding after them; set tokenizer.padding_side = 'right'"
    )


def _require_another_end(ids: Tensor, real: Tensor, pad_id: int | None) -> None:
    ends = ids.gather(1, real.sum(dim=1, keepdim=True) - 1)[:, 0] == pad_id
    if ends.any():
        raise ValueError(
            f"row {int(ends.nonzero()[0])} ends in token {pad_id}, which pads rows since the config has no pad_token_id: "
            "transformers reads that token here, and the one before it once rows are padded; set pad_token_id in config.json "
            "to a token that ends no text"
        )


def _first(found: Bool[Tensor, "batch pos"]) -> tuple[int, int]:
    row, position = cast("list[int]", found.nonzero()[0].tolist())
    return row, position
