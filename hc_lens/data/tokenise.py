"""How a tokenizer writes a sentence pair, and the on-disk cache of what it wrote."""

import hashlib
import json
import logging
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import datasets
import datasets.config
import pyarrow as pa
from transformers import BatchEncoding, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from hc_lens.data.task import Split

PAIR_SEPARATOR = "\n"
"""Put before the second sentence when the tokenizer has no separator token for pairs (GPT-2, Llama, GPT-NeoX)."""

ON_DISK_ROWS = 5_000
"""Splits below this many rows are not cached on disk: tokenising again costs no more than reading the cache file."""

_log = logging.getLogger(__name__)


class Origins(NamedTuple):
    """Where the tokens of one pair come from: one entry per token, in the order of `ids`.

    `sentences` is 0 or 1, or None for a token that belongs to neither (special tokens, the joining separator). `spans` are the
    half-open character ranges in that sentence; whether they include the space before a word is up to the tokenizer.
    """

    ids: list[int]
    sentences: list[int | None]
    spans: list[tuple[int, int]]


@dataclass(frozen=True, eq=False)
class PairTokenizer:
    """How one tokenizer writes a sentence pair in at most `max_length` tokens, cut from the longer sentence.

    It is cut at the tokenizer's own `truncation_side`: by default at the end.

    Pairs follow the tokenizer's own template where that separates the sentences (`[CLS] A [SEP] B [SEP]`,
    `<s> A </s></s> B </s>`): `frame` is then None. A tokenizer without a separator token in its pairs (GPT-2) gets the first
    sentence, `PAIR_SEPARATOR` and the second, between the special tokens that it puts before and after a single text: the two
    lists of `frame`.
    """

    tokenizer: PreTrainedTokenizerFast
    max_length: int
    frame: tuple[list[int], list[int]] | None
    pad_id: int
    fingerprint: str

    @staticmethod
    def of(tokenizer: PreTrainedTokenizerBase, max_length: int) -> "PairTokenizer":
        """Read the pair format off the tokenizer; padding is its pad token, else its end-of-text token.

        Raises:
            TypeError: for a slow tokenizer.
            ValueError: if `max_length` leaves no room for a token of each sentence, or there is neither a pad nor an end token.
        """
        name = type(tokenizer).__name__
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise TypeError(f"{name} is a slow tokenizer: load its fast version (AutoTokenizer with use_fast=True)")
        pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        if not isinstance(pad_id, int):
            raise ValueError(f"{name} has neither a pad_token nor an eos_token: set one, batches are padded with it")
        sep = tokenizer.sep_token_id
        frame = None if sep is not None and sep in tokenizer("a", "b")["input_ids"] else _frame(tokenizer)
        # A joined pair also spends a token on the separator.
        special = tokenizer.num_special_tokens_to_add(pair=True) if frame is None else len(frame[0]) + len(frame[1]) + 1
        if max_length < special + 2:
            raise ValueError(
                f"max_length must be at least {special + 2} for a pair ({name} adds {special} special tokens), got {max_length}"
            )
        has_types = "token_type_ids" in tokenizer.model_input_names
        own = _own_settings(tokenizer)
        written = [_vocabulary(tokenizer), max_length, frame, PAIR_SEPARATOR, pad_id, has_types, *([own] if own else [])]
        return PairTokenizer(tokenizer, max_length, frame, pad_id, hashlib.sha256(json.dumps(written).encode()).hexdigest())

    @property
    def separator(self) -> int | None:
        """The id of the separator token, where the tokenizer's own template separates pairs; else None."""
        return cast(int, self.tokenizer.sep_token_id) if self.frame is None else None

    def __call__(self, first: list[str], second: list[str]) -> dict[str, list[list[int]]]:
        """`input_ids`, and `token_type_ids` where the model has segments, one list per pair."""
        made = self._tokenised(first, second, offsets=False)
        if self.frame is not None:
            before, after = self.frame
            return {"input_ids": [[*before, *ids, *after] for ids in made["input_ids"]]}
        return {name: made[name] for name in ("input_ids", "token_type_ids") if name in made}

    def origins(self, first: list[str], second: list[str]) -> list[Origins]:
        """Of each pair, the ids that calling this tokenizer gives, and the sentence and characters each comes from."""
        made = self._tokenised(first, second, offsets=True)
        found: list[Origins] = []
        for row, (ids, spans) in enumerate(zip(made["input_ids"], made["offset_mapping"], strict=True)):
            origins = Origins(list(ids), list(made.sequence_ids(row)), [(start, end) for start, end in spans])
            found.append(origins if self.frame is None else _unjoined(origins, *self.frame))
        return found

    def _tokenised(self, first: list[str], second: list[str], *, offsets: bool) -> BatchEncoding:
        """The tokenizer's own output, without the frame of a joined pair."""
        framed = 0 if self.frame is None else sum(map(len, self.frame))
        return self.tokenizer(
            first,
            second if self.frame is None else [PAIR_SEPARATOR + text for text in second],
            truncation="longest_first",
            max_length=self.max_length - framed,
            add_special_tokens=self.frame is None,
            return_attention_mask=False,
            return_offsets_mapping=offsets,
        )


def _unjoined(origins: Origins, before: list[int], after: list[int]) -> Origins:
    """The origins of a joined pair in a frame: spans counted in the second sentence itself, its separator in neither."""
    sentences: list[int | None] = [None] * len(before)
    spans = [(0, 0)] * len(before)
    joint = len(PAIR_SEPARATOR)
    for sentence, (start, end) in zip(origins.sentences, origins.spans, strict=True):
        if sentence == 1:
            start, end = start - joint, end - joint
        separates = end <= 0 and sentence == 1
        sentences.append(None if separates else sentence)
        spans.append((0, 0) if separates else (max(start, 0), end))
    return Origins([*before, *origins.ids, *after], [*sentences, *[None] * len(after)], [*spans, *[(0, 0)] * len(after)])


def _frame(tokenizer: PreTrainedTokenizerFast) -> tuple[list[int], list[int]]:
    """The special tokens before and after a single text."""
    plain: list[int] = tokenizer("a", add_special_tokens=False)["input_ids"]
    framed: list[int] = tokenizer("a")["input_ids"]
    start = next(i for i in range(len(framed)) if framed[i : i + len(plain)] == plain)
    return framed[:start], framed[start + len(plain) :]


def _vocabulary(tokenizer: PreTrainedTokenizerFast) -> str:
    """SHA-256 of the tokenizer's rules and vocabulary, without the truncation and padding of its latest call.

    Those two come first in the serialised tokenizer; everything that decides the tokens follows.
    """
    rules = tokenizer.backend_tokenizer.to_str()
    return hashlib.sha256(rules[rules.index('"added_tokens"') :].encode()).hexdigest()


def _own_settings(tokenizer: PreTrainedTokenizerFast) -> dict[str, str]:
    """What decides the tokens of a call besides the serialised rules, where it is not what every tokenizer has by default.

    The side that is cut, how special tokens written in a text are read, and methods of a class that encodes in its own way.
    Paths, padding and chat templates change no token here.
    """
    cut = {"truncation_side": tokenizer.truncation_side} if tokenizer.truncation_side != "right" else {}
    special = {"split_special_tokens": "yes"} if tokenizer.split_special_tokens else {}
    encoding = {
        name: getattr(type(tokenizer), name).__qualname__
        for name in ("_encode_plus", "set_truncation_and_padding")
        if getattr(type(tokenizer), name) is not getattr(PreTrainedTokenizerFast, name)
    }
    return {**cut, **special, **encoding}


def token_columns(split: Split, pairs: PairTokenizer, fingerprint: str) -> dict[str, pa.ListArray]:
    """The split's token columns, from the cache file of `datasets` where there is one (`HF_DATASETS_CACHE`/hc_lens)."""
    if len(split) < ON_DISK_ROWS:
        made = pairs(list(split.first), list(split.second))
        return {name: pa.array(rows, pa.list_(pa.int32())) for name, rows in made.items()}
    texts = datasets.Dataset.from_dict({"first": list(split.first), "second": list(split.second)})
    file = Path(datasets.config.HF_DATASETS_CACHE) / "hc_lens" / f"{fingerprint}.arrow"
    made = _from_cache(texts, pairs, fingerprint, file) or _tokenise(texts, pairs, fingerprint, None, reuse=False)
    return {name: made[name].combine_chunks() for name in made.column_names}


def _from_cache(texts: datasets.Dataset, pairs: PairTokenizer, fingerprint: str, file: Path) -> pa.Table | None:
    """The tokens by way of the cache file: read, or made and written; None, with a warning in the log, where neither works."""
    problem: Exception | None = None
    for reuse in (True, False):  # the second time over a file that a full disk or a kill has cut short
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            made = _tokenise(texts, pairs, fingerprint, file, reuse=reuse)
            if len(made) == len(texts):  # a file cut between two record batches reads without an error
                return made
        except (OSError, pa.ArrowInvalid) as error:
            problem = error
    _log.warning("tokens are not cached: %s cannot be used (%s)", file, problem)
    return None


def _tokenise(texts: datasets.Dataset, pairs: PairTokenizer, fingerprint: str, file: Path | None, *, reuse: bool) -> pa.Table:
    names = pairs([texts[0]["first"]], [texts[0]["second"]])
    with progress_in_terminal_only():
        made = texts.map(
            pairs,
            input_columns=["first", "second"],
            batched=True,
            remove_columns=["first", "second"],
            features=datasets.Features({name: datasets.List(datasets.Value("int32")) for name in names}),
            new_fingerprint=fingerprint[:32],
            cache_file_name=None if file is None else str(file),
            load_from_cache_file=reuse,
            keep_in_memory=file is None,
            desc=f"tokenising {len(texts)} pairs",
        )
    return made.with_format("arrow")[:]


@contextmanager
def progress_in_terminal_only() -> Generator[None]:
    """Silence the progress bars of `datasets` where standard error is not a terminal; restored afterwards."""
    if sys.stderr.isatty() or datasets.are_progress_bars_disabled():
        yield
        return
    datasets.disable_progress_bars()
    try:
        yield
    finally:
        datasets.enable_progress_bars()
