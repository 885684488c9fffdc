"""Batches with the lengths of MNLI pairs: real development pairs where the machine has them, else a stated distribution."""

from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import AutoTokenizer

from hc_lens.data import NLI_LABELS, read_pairs
from hc_lens.data.batches import Encoded, encode, shuffled_rows
from hc_lens.data.desk import data_folder
from hc_lens.models import minilm_directory

MAX_LENGTH = 128
BATCH = 32
LOG_MEAN, LOG_STD, SHORTEST = 3.57, 0.43, 6
"""Of the stated distribution: exp of a normal, rounded, between SHORTEST and MAX_LENGTH tokens.

Its mean is 38.9 and its 5, 25, 50, 75, 95 and 99 % quantiles are 17, 27, 36, 48, 72 and 96; those of the MNLI matched pairs, in
uncased WordPieces, are 39.1 and 15, 26, 36, 49, 72 and 98."""

ROWS = 9_814  # as many as MNLI matched has


class Pairs(NamedTuple):
    """Encoded pairs, and in words where they come from."""

    encoded: Encoded
    source: str


def mnli_pairs(vocab: int) -> Pairs:
    """MNLI matched under `HC_LENS_DATA` in the uncased WordPieces that come with MiniLM, else random tokens of like lengths."""
    folder = data_folder()
    if folder is None:
        return Pairs(drawn_pairs(vocab), f"random tokens, lengths exp N({LOG_MEAN}, {LOG_STD}^2) in {SHORTEST}..{MAX_LENGTH}")
    split = read_pairs(folder / "nli" / "mnli_dev_matched_gold.jsonl.gz", label_names=NLI_LABELS, name="mnli-matched")
    tokenizer = AutoTokenizer.from_pretrained(minilm_directory())
    return Pairs(encode(split, tokenizer, MAX_LENGTH), "MNLI matched development pairs, uncased WordPiece")


def drawn_pairs(vocab: int, n: int = ROWS, seed: int = 0) -> Encoded:
    """Random tokens in rows of the stated lengths."""
    generator = torch.Generator().manual_seed(seed)
    lengths = (LOG_MEAN + LOG_STD * torch.randn(n, generator=generator)).exp().round().clamp(SHORTEST, MAX_LENGTH).long()
    tokens = torch.randint(1, vocab, (int(lengths.sum()),), generator=generator, dtype=torch.int32)
    types = torch.zeros(len(tokens), dtype=torch.int8)
    return Encoded(tokens, types, lengths, torch.zeros(n, dtype=torch.int64), 0, f"drawn {n} {vocab} {seed}")


def epoch(lengths: Int[Tensor, " row"], batch: int = BATCH, seed: int = 0) -> Int[Tensor, "step batch"]:
    """The batches that pruning visits in one epoch, bucketed by length."""
    return shuffled_rows(lengths, batch, len(lengths) // batch, torch.Generator().manual_seed(seed))


def typical(order: Int[Tensor, "step batch"], lengths: Int[Tensor, " row"], n: int) -> Int[Tensor, "chosen batch"]:
    """`n` batches that stand for the epoch: of each n-th part, by width, the batch whose width is nearest the part's mean."""
    width = widths(order, lengths)
    parts = width.argsort(stable=True).tensor_split(n)
    nearest = [part[(width[part] - width[part].double().mean()).abs().argmin()] for part in parts]
    return order[torch.stack(nearest)]


def widest(order: Int[Tensor, "step batch"], lengths: Int[Tensor, " row"]) -> Int[Tensor, "chosen batch"]:
    """The widest batch of the epoch: what decides the peak of memory."""
    return order[widths(order, lengths).argmax()][None]


def widths(order: Int[Tensor, "step batch"], lengths: Int[Tensor, " row"]) -> Int[Tensor, " step"]:
    """Tokens a batch is padded to."""
    return lengths[order].amax(1)
