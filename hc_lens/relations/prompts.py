"""Prompts of a relation as token ids, with the place of each subject's last token."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from jaxtyping import Int
from torch import Tensor

from hc_lens.models.language import LanguageModel
from hc_lens.relations.relation import SLOT, Relation, prompt


@dataclass(frozen=True, eq=False)
class Prompts:
    """One template with the subject of each fact.

    Attributes:
        ids: right-padded token ids, on the CPU.
        lengths: tokens of each row.
        subject_last: position of the subject's last token: the place where a model knows which subject it is (Hernandez et al.
            2023; step 4 of the protocol).
    """

    ids: Int[Tensor, "fact pos"]
    lengths: Int[Tensor, " fact"]
    subject_last: Int[Tensor, " fact"]

    @property
    def last(self) -> Int[Tensor, " fact"]:
        """Position of each prompt's last token."""
        return self.lengths - 1

    def rows(self) -> list[list[int]]:
        """The ids of each prompt, without padding."""
        return [row[:length] for row, length in zip(self.ids.tolist(), self.lengths.tolist(), strict=True)]

    def __len__(self) -> int:
        return len(self.ids)


def encode_prompts(model: LanguageModel, relation: Relation, template: str, facts: Sequence[int] | None = None) -> Prompts:
    """The template with the subjects of the facts at these places (None: of all), as `open_ended` writes them.

    Raises:
        ValueError: for a template without exactly one slot, a tokenizer without character offsets, no facts, and a subject that
            the model cannot be asked about: an empty one, one of nothing but unknown tokens, and one whose prompt is longer
            than the model reads.
    """
    places = range(len(relation)) if facts is None else facts
    subjects = [relation.facts[place].subject for place in places]
    if not subjects:
        raise ValueError(f"relation {relation.name!r}: there is no fact to encode")
    if empty := [place for place, subject in zip(places, subjects, strict=True) if not subject.strip()]:
        raise ValueError(f"relation {relation.name!r}: fact {empty[0]} has an empty subject")
    texts = [prompt(template, subject) for subject in subjects]
    rows, spans = open_ended(model, texts)
    lengths = torch.tensor([len(row) for row in rows])
    width = int(lengths.max())
    ids = torch.tensor([[*row, *[model.pad_id] * (width - len(row))] for row in rows])
    offsets = torch.tensor([[*row, *[(0, 0)] * (width - len(row))] for row in spans])
    last = _last_tokens(offsets, [template.index(SLOT) + len(subject.rstrip()) - 1 for subject in subjects])
    prompts = Prompts(ids, lengths, last)
    _require_askable(model, relation, subjects, prompts, offsets, template.index(SLOT))
    return prompts


def open_ended(model: LanguageModel, texts: Sequence[str]) -> tuple[list[list[int]], list[list[tuple[int, int]]]]:
    """The ids of each text and the characters each is of, with the special tokens that open a text and none that closes it.

    A tokenizer may end every text with `</s>`; what goes on from a text must not come after that.

    Raises:
        ValueError: for a tokenizer without character offsets.
    """
    if not model.tokenizer.is_fast:
        raise ValueError(
            f"{type(model.tokenizer).__name__} gives no character offsets, by which subjects are found: load a fast one"
        )
    encoded = model.tokenizer(list(texts), return_offsets_mapping=True)
    ends = [_end_of_text(encoded.sequence_ids(row)) for row in range(len(texts))]
    ids = [row[:end] for row, end in zip(encoded["input_ids"], ends, strict=True)]
    return ids, [row[:end] for row, end in zip(encoded["offset_mapping"], ends, strict=True)]


def _end_of_text(sequences: Sequence[int | None]) -> int:
    """How many tokens a row has up to the last of its text; all of them where it has no text."""
    return max((place + 1 for place, sequence in enumerate(sequences) if sequence is not None), default=len(sequences))


def continuation(model: LanguageModel, text: str) -> tuple[int, ...]:
    """The tokens of a text that goes on from another, such as `" crab"`: with its space, without special tokens.

    Raises:
        ValueError: if the text is nothing to this tokenizer, or its first token would swallow what comes before.
    """
    before: list[int] = model.tokenizer("a", add_special_tokens=False)["input_ids"]
    whole: list[int] = model.tokenizer("a" + text, add_special_tokens=False)["input_ids"]
    if whole[: len(before)] != before or len(whole) == len(before):
        raise ValueError(f"{text!r} cannot go on from another text in this tokenizer: put a space before it")
    return tuple(whole[len(before) :])


def _last_tokens(offsets: Int[Tensor, "fact pos 2"], characters: Sequence[int]) -> Int[Tensor, " fact"]:
    """The last token of each row that has this character of its text in it; -1 where there is none."""
    wanted = torch.tensor(characters)[:, None]
    inside = (offsets[..., 0] <= wanted) & (wanted < offsets[..., 1])
    return torch.where(inside, torch.arange(offsets.shape[1]), -1).amax(dim=1)


def _require_askable(
    model: LanguageModel,
    relation: Relation,
    subjects: Sequence[str],
    prompts: Prompts,
    offsets: Int[Tensor, "fact pos 2"],
    start: int,
) -> None:
    unknown = cast(int | None, model.tokenizer.unk_token_id)
    for row, subject in enumerate(subjects):
        length, last = int(prompts.lengths[row]), int(prompts.subject_last[row])
        if length > model.max_length:
            raise ValueError(
                f"relation {relation.name!r}: the prompt of {subject!r:.80} has {length} tokens, "
                f"the model reads {model.max_length}"
            )
        own = prompts.ids[row][(offsets[row, :, 1] > start) & (torch.arange(len(offsets[row])) <= last)]
        if last < 0 or (unknown is not None and bool((own == unknown).all())):
            raise ValueError(f"relation {relation.name!r}: the tokenizer knows no part of the subject {subject!r}")
