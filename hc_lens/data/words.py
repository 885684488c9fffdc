"""Which word of which sentence each token of a pair belongs to, by the character offsets of the fast tokenizer.

A word is a run of characters without white space, less the punctuation around it. Its normalised form (Unicode NFKC, casefold)
is compared between the sentences, so that matching does not depend on how a tokenizer cuts or cases words. Text without spaces
between words (Chinese, say) is one word: match its tokens instead.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple, cast

import numpy as np

if TYPE_CHECKING:
    from jaxtyping import Int

    from hc_lens.data.tokenise import Origins, PairTokenizer

Matching = Literal["word", "token"]
"""What is compared between the sentences: whole words, their pieces pooled, or the text of each token."""

Extra = Literal["punctuation", "special"]
"""What is left out unless asked for: tokens without a letter or digit, and tokens that belong to no sentence."""

_RUN = re.compile(r"\S+")


class Word(NamedTuple):
    """A word, or a run of punctuation, at characters `start` to `end` (excluded); `text` is its normalised form."""

    start: int
    end: int
    text: str
    punctuation: bool


@dataclass(frozen=True, eq=False)
class PairWords:
    """The words of a pair's tokens, one entry per token; -1 where there is none.

    `sentence` is 0 (first) or 1 (second). `word` numbers the words of the row from 0, through both sentences. `key` is equal
    for tokens whose words have the same normalised form. `labels` are the tokens as a reader sees them in the text: a later
    piece of a word starts with `##`, special tokens have their own names.
    """

    ids: Int[np.ndarray, " pos"]
    sentence: Int[np.ndarray, " pos"]
    word: Int[np.ndarray, " pos"]
    key: Int[np.ndarray, " pos"]
    labels: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.ids)


def align_words(
    pairs: PairTokenizer,
    first: Sequence[str],
    second: Sequence[str],
    *,
    matching: Matching = "word",
    include: Collection[Extra] = (),
) -> list[PairWords]:
    """The words of each pair, as this tokenizer writes it; a word that the cut goes through is what is left of it.

    With `include`, runs of punctuation are words of their own, and special tokens have a `word`, but never a `key`: there is
    nothing that they match.

    Raises:
        ValueError: for unequally many first and second sentences.
    """
    if len(first) != len(second):
        raise ValueError(f"{len(first)} first sentences and {len(second)} second sentences: the two must be equally many")
    if not first:
        return []
    found: list[PairWords] = []
    for one, other, origins in zip(first, second, pairs.origins(list(first), list(second)), strict=True):
        found.append(_align(pairs, (one, other), origins, matching, frozenset(include)))
    return found


def words_of(text: str) -> list[Word]:
    """The words of a sentence in order, the runs of punctuation around them included."""
    found: list[Word] = []
    for run in _RUN.finditer(text):
        inside = [at for at in range(*run.span()) if _in_word(text[at])]
        start, end = (inside[0], inside[-1] + 1) if inside else (run.end(), run.end())
        for begin, stop in ((run.start(), start), (start, end), (end, run.end())):
            if begin < stop:
                found.append(Word(begin, stop, normalise(text[begin:stop]), punctuation=begin != start))
    return found


def normalise(word: str) -> str:
    """The form in which words are compared: NFKC, casefold, and NFKC again (casefold can undo it)."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", word).casefold())


def _in_word(character: str) -> bool:
    """Letters, digits and the marks on them; neither punctuation nor symbols."""
    return unicodedata.category(character)[0] in "LMN"


def _align(
    pairs: PairTokenizer, texts: tuple[str, str], origins: Origins, matching: Matching, include: frozenset[Extra]
) -> PairWords:
    words = _words_of_tokens(texts, origins) if matching == "word" else _tokens_as_words(texts, origins)
    numbers: dict[tuple[int | None, int, int], int] = {}
    keys: dict[str, int] = {}
    word, key = np.full((2, len(origins.ids)), -1)
    labels: list[str] = []
    previous: tuple[int | None, Word] | None = None
    for at, (token, sentence, (start, end), of) in enumerate(zip(*origins, words, strict=True)):
        if of is not None and ("punctuation" in include or not of.punctuation):
            word[at] = numbers.setdefault((sentence, of.start, of.end), len(numbers))
            key[at] = keys.setdefault(of.text, len(keys))
        elif sentence is None and "special" in include:
            word[at] = numbers.setdefault((None, at, at), len(numbers))
        continues = of is not None and (sentence, of) == previous
        previous = None if of is None else (sentence, of)
        labels.append(_label(pairs, token, None if sentence is None else texts[sentence][start:end], continues))
    sentences = np.array([-1 if sentence is None else sentence for sentence in origins.sentences])
    return PairWords(np.array(origins.ids), sentences, word, key, tuple(labels))


def _words_of_tokens(texts: tuple[str, str], origins: Origins) -> list[Word | None]:
    """The word that each token is a piece of; a token over several is a piece of the first that is not punctuation."""
    ends = list(zip(origins.sentences, (end for _, end in origins.spans), strict=True))
    seen = [max((end for sentence, end in ends if sentence == i), default=0) for i in (0, 1)]
    words = [words_of(text[:stop]) for text, stop in zip(texts, seen, strict=True)]
    found: list[Word | None] = []
    for sentence, (start, end) in zip(origins.sentences, origins.spans, strict=True):
        touched = [] if sentence is None else [word for word in words[sentence] if start < word.end and word.start < end]
        found.append(min(touched, key=lambda word: (word.punctuation, word.start), default=None))
    return found


def _tokens_as_words(texts: tuple[str, str], origins: Origins) -> list[Word | None]:
    found: list[Word | None] = []
    for at, (sentence, (start, end)) in enumerate(zip(origins.sentences, origins.spans, strict=True)):
        piece = "" if sentence is None else texts[sentence][start:end].strip()
        # Numbered by position: several bytes of one character have the same span, but are tokens of their own.
        found.append(Word(at, at + 1, normalise(piece), not any(map(_in_word, piece))) if piece else None)
    return found


def _label(pairs: PairTokenizer, token: int, piece: str | None, continues: bool) -> str:
    """A token as it stands in the text; `piece` is None for tokens outside the sentences."""
    from hc_lens.data.tokenise import PAIR_SEPARATOR

    tokenizer = pairs.tokenizer
    if token in tokenizer.all_special_ids:
        return cast(str, tokenizer.convert_ids_to_tokens(token))
    seen = PAIR_SEPARATOR if piece is None else piece
    if seen.strip():
        return f"##{seen.strip()}" if continues else seen.strip()
    return seen.replace("\n", "⏎").replace(" ", "␣") or "␣"  # some tokenizers trim the span of a space to nothing
