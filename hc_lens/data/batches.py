"""Sentence pairs as token batches: tokenised once, stored ragged, padded to the longest row of a batch only.

`encode` turns a split into an `Encoded`; `Encoded.batch` gathers any rows into a right-padded `Batch`; `shuffled_rows` gives
the order in which training visits the rows, with batches of similar length so that little is spent on padding.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import overload

import pyarrow as pa
import torch
from jaxtyping import Int
from torch import Tensor
from transformers import PreTrainedTokenizerBase
from typing_extensions import override

from hc_lens.data.task import Split
from hc_lens.data.tokenise import PairTokenizer, token_columns
from hc_lens.limits import require_at_least_one

CHUNK_BATCHES = 50
"""`shuffled_rows` sorts by length within random chunks of this many batches: long enough to save padding, short enough that
which rows share a batch stays random."""

_KEPT = 128  # encoded splits kept in this process: a task with 30 OOD cases, for a few tokenizers


@dataclass(frozen=True, eq=False)
class Batch:
    """Right-padded token rows; `attention_mask` is 1 on real tokens and 0 on padding.

    `rows` are the places of the rows in the data that a function was given (a split, encoded rows, token ids), counted from 0,
    whichever of them were drawn and in whatever order they are run: a metric or loss looks up by them what belongs to a row.

    `token_type_ids` is None for models without segments, `labels` is None for unlabelled tokens; `labels` are classes of the
    split the rows come from. `pad_id` is what stands in the padding.
    """

    input_ids: Int[Tensor, "batch pos"]
    attention_mask: Int[Tensor, "batch pos"]
    token_type_ids: Int[Tensor, "batch pos"] | None
    labels: Int[Tensor, " batch"] | None
    rows: Int[Tensor, " batch"]
    pad_id: int = 0

    def __len__(self) -> int:
        return self.input_ids.shape[0]

    def to(self, device: torch.device | str) -> "Batch":
        """The same batch on another device; the host does not wait for a copy to a GPU."""
        return Batch(
            input_ids=move(self.input_ids, device),
            attention_mask=move(self.attention_mask, device),
            token_type_ids=None if self.token_type_ids is None else move(self.token_type_ids, device),
            labels=None if self.labels is None else move(self.labels, device),
            rows=move(self.rows, device),
            pad_id=self.pad_id,
        )

    @staticmethod
    def stack(batches: "Sequence[Batch]") -> "Batch":
        """All rows of the batches, in order, padded on the right to the longest.

        Raises:
            ValueError: without batches, or if only some have labels or token types, or if their padding differs.
        """
        if not batches:
            raise ValueError("cannot stack zero batches: give at least one")
        pad_id, *others = sorted({b.pad_id for b in batches})
        if others:
            raise ValueError(f"cannot stack batches padded with different tokens: pad ids {[pad_id, *others]}")
        width = max(b.input_ids.shape[1] for b in batches)
        return Batch(
            input_ids=torch.cat([_widen(b.input_ids, width, pad_id) for b in batches]),
            attention_mask=torch.cat([_widen(b.attention_mask, width, 0) for b in batches]),
            token_type_ids=_cat_all("token types", [_widen_or_none(b.token_type_ids, width) for b in batches]),
            labels=_cat_all("labels", [b.labels for b in batches]),
            rows=torch.cat([b.rows for b in batches]),
            pad_id=pad_id,
        )


def move(values: Tensor, device: torch.device | str) -> Tensor:
    """The values on another device; from the CPU to a GPU through pinned memory, so that the host does not wait for it."""
    if values.device.type == "cpu" and torch.device(device).type == "cuda":
        return values.pin_memory().to(device, non_blocking=True)
    return values.to(device)


def _widen(values: Int[Tensor, "batch pos"], width: int, fill: int) -> Int[Tensor, "batch wider"]:
    return torch.nn.functional.pad(values, (0, width - values.shape[1]), value=fill)


def _widen_or_none(values: Int[Tensor, "batch pos"] | None, width: int) -> Int[Tensor, "batch wider"] | None:
    return None if values is None else _widen(values, width, 0)


def _cat_all(what: str, parts: Sequence[Tensor | None]) -> Tensor | None:
    present = [p for p in parts if p is not None]
    if len(present) not in (0, len(parts)):
        raise ValueError(f"cannot stack batches: {len(present)} of {len(parts)} have {what}; all or none must")
    return torch.cat(present) if present else None


@dataclass(frozen=True, eq=False)
class Encoded:
    """Token rows of different lengths, end to end in one flat tensor (int32: a few MB for 80,000 pairs).

    `lengths[i]` tokens of row `i` follow those of row `i - 1` in `tokens`, and in `token_types` where the model has segments.
    `labels` are classes of the split (None for plain text). `fingerprint` is a SHA-256 of texts, labels, tokenizer and cut.
    """

    tokens: Int[Tensor, " token"]
    token_types: Int[Tensor, " token"] | None
    lengths: Int[Tensor, " row"]
    labels: Int[Tensor, " row"] | None
    pad_id: int
    fingerprint: str

    def __len__(self) -> int:
        return self.lengths.shape[0]

    @cached_property
    def _starts(self) -> Int[Tensor, " row"]:
        return self.lengths.cumsum(0) - self.lengths

    def batch(self, rows: Sequence[int] | Int[Tensor, " batch"]) -> Batch:
        """These rows, in this order, padded on the right to the longest of them.

        Raises:
            IndexError: if a row is outside `0..len - 1`.
            ValueError: without rows.
        """
        index = torch.as_tensor(rows, dtype=torch.int64)
        if not len(index):
            raise ValueError("a batch needs at least one row, got none")
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= len(self):
            raise IndexError(f"row {low if low < 0 else high} is outside 0..{len(self) - 1}")
        lengths = self.lengths[index]
        at = torch.arange(int(lengths.max()))
        mask = at < lengths[:, None]
        where = self._starts[index][:, None] + at.minimum(lengths[:, None] - 1)
        types = self.token_types
        return Batch(
            input_ids=self.tokens[where].long().masked_fill_(~mask, self.pad_id),
            attention_mask=mask.long(),
            token_type_ids=None if types is None else types[where].long().masked_fill_(~mask, 0),
            labels=None if self.labels is None else self.labels[index],
            rows=index,
            pad_id=self.pad_id,
        )

    def batches(self, batch_size: int, rows: Sequence[int] | None = None) -> "Batches":
        """Every row, or these, once, in batches of similar length for evaluation; `Batch.rows` says where each row belongs.

        Longest first: a batch that does not fit in memory fails at once, not at the end.

        Raises:
            ValueError: if `batch_size` is below 1.
        """
        require_at_least_one("batch_size", batch_size)
        chosen = torch.arange(len(self)) if rows is None else torch.as_tensor(rows, dtype=torch.int64)
        order = chosen[self.lengths[chosen].argsort(descending=True, stable=True)]
        return Batches(self, order.split(batch_size))


class Batches(Sequence[Batch]):
    """Batches of these rows, each padded when it is asked for: many passes over much data hold one batch at a time."""

    def __init__(self, data: Encoded, rows: Sequence[Tensor]) -> None:  # each Int[Tensor, " batch"], of its own size
        self._data, self._rows = data, rows

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Batch: ...

    @overload
    def __getitem__(self, index: slice) -> "Batches": ...

    @override
    def __getitem__(self, index: int | slice) -> "Batch | Batches":
        if isinstance(index, slice):
            return Batches(self._data, self._rows[index])
        return self._data.batch(self._rows[index])


def encode(split: Split, tokenizer: PreTrainedTokenizerBase, max_length: int) -> Encoded:
    """Tokenise a split's pairs, each cut to `max_length` tokens, at the tokenizer's `truncation_side` of its longer sentence.

    Written as `PairTokenizer` says: the tokenizer's own pair template, or `PAIR_SEPARATOR` where it has none.

    Done once per split, tokenizer and length: kept in the process, and for large splits in the cache folder of `datasets`
    (`HF_DATASETS_CACHE`); a folder that cannot be written is reported in the log and costs only time.

    Raises:
        TypeError: for a slow tokenizer.
        ValueError: if `max_length` leaves no room for a token of each sentence, or the tokenizer has nothing to pad with.
    """
    pairs = PairTokenizer.of(tokenizer, max_length)
    fingerprint = hashlib.sha256(f"{split.fingerprint} {pairs.fingerprint}".encode()).hexdigest()
    if (known := _cache.pop(fingerprint, None)) is None:
        known = _from_columns(token_columns(split, pairs, fingerprint), split, pairs.pad_id, fingerprint)
    _cache[fingerprint] = known
    if len(_cache) > _KEPT:
        _cache.popitem(last=False)
    return known


_cache: OrderedDict[str, Encoded] = OrderedDict()  # least recently used first


def encode_tokens(tokens: Int[Tensor, "row pos"]) -> Encoded:
    """Rows of tokens for a plain language model: all of one length, without labels or padding."""
    rows, width = tokens.shape
    require_at_least_one("the number of rows", rows)
    require_at_least_one("the number of tokens in a row", width)
    flat = tokens.detach().cpu().to(torch.int32).flatten()
    return Encoded(
        tokens=flat,
        token_types=None,
        lengths=torch.full((rows,), width),
        labels=None,
        pad_id=0,
        fingerprint=hashlib.sha256(f"{rows} {width} ".encode() + flat.numpy().tobytes()).hexdigest(),
    )


def shuffled_rows(
    lengths: Int[Tensor, " row"],
    batch_size: int,
    n_batches: int,
    generator: torch.Generator,
    bucket: bool = True,
    positions: torch.Generator | None = None,
) -> Int[Tensor, "step batch"]:
    """The rows of each training batch: whole epochs of random order, one after another, until `n_batches`.

    Within an epoch no row comes twice, and a random remainder smaller than a batch is left out; with fewer rows than a batch,
    the rows repeat. With `bucket`, batches hold rows of similar length: shuffle, cut into chunks of `CHUNK_BATCHES` batches,
    sort each chunk by length, cut it into batches, shuffle the batches. The order depends only on the lengths and the CPU
    `generator`. Orders with equal `positions`, which then shuffles the batches, have batches of nearly equal length at each
    step: runs that share a forward pass are hardly padded to one another.

    Raises:
        ValueError: without rows, or if `batch_size` or `n_batches` is below 1.
    """
    n = lengths.shape[0]
    for what, value in (("the number of rows", n), ("batch_size", batch_size), ("n_batches", n_batches)):
        require_at_least_one(what, value)
    if n < batch_size:
        epochs = -(-n_batches * batch_size // n)
        stream = torch.cat([torch.randperm(n, generator=generator) for _ in range(epochs)])
        return stream[: n_batches * batch_size].view(n_batches, batch_size)
    per_epoch = n // batch_size
    epochs = -(-n_batches // per_epoch)
    order = torch.cat([_epoch(lengths, batch_size, generator, bucket, positions or generator) for _ in range(epochs)])
    return order[:n_batches]


def _epoch(
    lengths: Int[Tensor, " row"], batch_size: int, generator: torch.Generator, bucket: bool, positions: torch.Generator
) -> Int[Tensor, "step batch"]:
    steps = lengths.shape[0] // batch_size
    rows = torch.randperm(lengths.shape[0], generator=generator)[: steps * batch_size]
    if not bucket:
        return rows.view(steps, batch_size)
    chunk = torch.arange(len(rows)) // (CHUNK_BATCHES * batch_size)
    sorted_in_chunks = (chunk * (lengths.max() + 1) + lengths[rows]).argsort(stable=True)
    return rows[sorted_in_chunks].view(steps, batch_size)[torch.randperm(steps, generator=positions)]


def _from_columns(columns: dict[str, pa.ListArray], split: Split, pad_id: int, fingerprint: str) -> Encoded:
    ids = columns["input_ids"]
    types = columns.get("token_type_ids")
    return Encoded(
        tokens=torch.tensor(ids.flatten().to_numpy()),
        token_types=None if types is None else torch.tensor(types.flatten().to_numpy(), dtype=torch.int8),
        lengths=torch.tensor(ids.value_lengths().to_numpy(), dtype=torch.int64),
        labels=torch.tensor(split.labels),
        pad_id=pad_id,
        fingerprint=fingerprint,
    )
