"""What a classifier reads: token ids with a right-padded mask, checked before they reach TransformerLens."""

from typing import NamedTuple, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
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


def check_tokens(
    ids: Int[Tensor, "batch pos"],
    mask: Mask | None,
    types: Types | None,
    *,
    pad_id: int | None,
    max_length: int,
) -> Tokens:
    """Tokens ready for the model; without a mask, the positions that hold `pad_id` are padding.

    Raises:
        ValueError: for rows longer than the model reads, a mask of another shape, and (on the CPU) any padding that is not
            on the right. On CUDA the padding is checked by an asynchronous device assertion, to keep the host from waiting.
    """
    if ids.shape[1] > max_length:
        raise ValueError(f"a row has {ids.shape[1]} tokens; this model reads at most {max_length}: truncate the input")
    if mask is None:
        if pad_id is None:
            return Tokens(ids, None, types)
        mask = ids != pad_id
    if mask.shape != ids.shape:
        raise ValueError(f"attention_mask has shape {tuple(mask.shape)}, input_ids {tuple(ids.shape)}: they must be equal")
    if types is not None and types.shape != ids.shape:
        raise ValueError(f"token_type_ids has shape {tuple(types.shape)}, input_ids {tuple(ids.shape)}: they must be equal")
    real = mask.bool()
    right_padded = real[:, 0].all() & (real[:, 1:] <= real[:, :-1]).all()
    if real.device.type == "cpu":
        if not right_padded:
            raise ValueError(
                "left padding (or a hole in attention_mask) is not supported: a row's tokens must come first and its padding "
                "after them; set tokenizer.padding_side = 'right'"
            )
        if real.all():
            return Tokens(ids, None, types)
    else:
        torch._assert_async(right_padded, "attention_mask must be right-padded")  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return Tokens(ids, real.to(ids.dtype), types)


def last_real_position(tokens: Tokens) -> Int[Tensor, " batch"]:
    """Index of each row's last token that is not padding."""
    n_rows, n_positions = tokens.ids.shape
    if tokens.mask is None:
        return torch.full((n_rows,), n_positions - 1, device=tokens.ids.device)
    return tokens.mask.sum(dim=1) - 1
