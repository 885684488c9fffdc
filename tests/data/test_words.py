"""Every token knows the sentence and the word it belongs to, whatever the tokenizer, with the ids that `encode` gives."""

import os

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import BertTokenizerFast, GPT2TokenizerFast, PreTrainedTokenizerFast, RobertaTokenizerFast

from hc_lens.data.batches import encode
from hc_lens.data.desk import data_folder
from hc_lens.data.synthetic import synthetic_tokenizer
from hc_lens.data.task import Split
from hc_lens.data.tokenise import PairTokenizer
from hc_lens.data.words import PairWords, align_words, normalise, words_of
from tests.data import tiny_tokenizers as tiny

# "judge", "judges" and "slept" as byte-level merges, with and without the space before them.
MERGES = [
    ("j", "u"), ("ju", "d"), ("jud", "g"), ("judg", "e"), ("Ġ", "judge"), ("t", "h"), ("th", "e"), ("Ġ", "the"),
    ("s", "l"), ("sl", "e"), ("sle", "p"), ("slep", "t"), ("Ġ", "slept"), ("Ġ", "s"),
]  # fmt: skip


def _vocabulary(*special: str) -> dict[str, int]:
    merged = ["".join(pair) for pair in MERGES]
    return {token: i for i, token in enumerate([*special, *tiny.BYTES, *merged])}


def cased() -> PreTrainedTokenizerFast:
    """WordPiece that keeps case: "The" is a token of its own."""
    words = (
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "[MASK]",
        "The",
        "the",
        "judge",
        "Judge",
        "##s",
        "slept",
        ".",
        ",",
        "don",
        "'",
        "t",
    )
    return BertTokenizerFast(vocab={word: i for i, word in enumerate(words)}, do_lower_case=False)


def bpe_roberta() -> PreTrainedTokenizerFast:
    return RobertaTokenizerFast(vocab=_vocabulary("<s>", "<pad>", "</s>", "<unk>", "<mask>"), merges=MERGES)


def bpe_gpt2() -> PreTrainedTokenizerFast:
    return GPT2TokenizerFast(vocab=_vocabulary("<|endoftext|>"), merges=MERGES)


def untrimmed() -> PreTrainedTokenizerFast:
    """Byte-level BPE whose offsets include the space before a word, between a start and an end token."""
    ids = _vocabulary("<s>", "</s>")
    tokenizer = Tokenizer(models.BPE(ids, MERGES))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False)
    special = [("<s>", ids["<s>"]), ("</s>", ids["</s>"])]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A $B </s>", special_tokens=special
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>")


TOKENIZERS = {
    "uncased": tiny.bert,
    "cased": cased,
    "roberta": bpe_roberta,
    "gpt2": bpe_gpt2,
    "untrimmed": untrimmed,
    "bytes": tiny.gpt2,
    "start": tiny.with_start_token,
    "synthetic": synthetic_tokenizer,
}
BUILT = {name: build() for name, build in TOKENIZERS.items()}


def aligned(tokenizer: PreTrainedTokenizerFast, first: str, second: str, length: int = 64, **options: object) -> PairWords:
    (found,) = align_words(PairTokenizer.of(tokenizer, length), [first], [second], **options)
    return found


def pieces(found: PairWords) -> dict[int, list[str]]:
    """The tokens of each word."""
    words: dict[int, list[str]] = {}
    for word, label in zip(found.word.tolist(), found.labels, strict=True):
        words.setdefault(word, []).append(label)
    return words


def matched(found: PairWords) -> set[tuple[str, str]]:
    """The first tokens of words that are the same in both sentences."""
    first = {key: i for i, key in reversed(list(enumerate(found.key.tolist()))) if found.sentence[i] == 0}
    second = {key: i for i, key in reversed(list(enumerate(found.key.tolist()))) if found.sentence[i] == 1}
    return {(found.labels[first[key]], found.labels[second[key]]) for key in first.keys() & second.keys() - {-1}}


def test_words_are_runs_without_space_less_the_punctuation_around_them() -> None:
    found = [(word.text, word.punctuation) for word in words_of("The  judge's «dog» slept... — 3.5 km!")]
    assert found == [
        ("the", False), ("judge's", False), ("«", True), ("dog", False), ("»", True), ("slept", False), ("...", True),
        ("—", True), ("3.5", False), ("km", False), ("!", True),
    ]  # fmt: skip


def test_words_are_compared_without_case_and_in_one_unicode_form() -> None:
    assert normalise("JUDGE") == normalise("judge")
    assert normalise("STRASSE") == normalise("straße")
    assert normalise("cafe\u0301") == normalise("caf\u00e9")
    assert normalise("\ufb01ne") == normalise("fine"), "a ligature"
    assert normalise("judge") != normalise("judges")


def test_the_pieces_of_a_word_are_one_word_and_punctuation_is_none() -> None:
    found = aligned(tiny.bert(), "The judges slept.", "the judge")
    assert found.labels == ("[CLS]", "The", "judge", "##s", "slept", ".", "[SEP]", "the", "judge", "[SEP]")
    assert found.sentence.tolist() == [-1, 0, 0, 0, 0, 0, -1, 1, 1, -1]
    assert found.word.tolist() == [-1, 0, 1, 1, 2, -1, -1, 3, 4, -1]
    assert matched(found) == {("The", "the")}, "judges is not judge, though a piece of it is"


def test_cased_pieces_match_by_normalised_word() -> None:
    found = aligned(cased(), "The Judge slept.", "the judge, slept")
    assert matched(found) == {("The", "the"), ("Judge", "judge"), ("slept", "slept")}


def test_punctuation_inside_a_word_belongs_to_it() -> None:
    found = aligned(cased(), "the judge don't", "slept")
    assert pieces(found)[2] == ["don", "##'", "##t"]


@pytest.mark.parametrize("name", ["roberta", "gpt2", "untrimmed"])
def test_byte_level_words_do_not_depend_on_the_space_before_them(name: str) -> None:
    found = aligned(BUILT[name], "judge the judges slept.", "The slept judge")
    assert ["judge", "##s"] in pieces(found).values()
    assert matched(found) == {("the", "T"), ("slept", "slept"), ("judge", "judge")}
    ending = -2 if name == "roberta" else -1 if name == "gpt2" else -2
    assert found.labels[ending] == "judge"


def test_the_joining_separator_and_the_frame_belong_to_no_sentence() -> None:
    found = aligned(untrimmed(), "the judge", "slept")
    assert found.labels == ("<s>", "the", "judge", "⏎", "slept", "</s>")
    assert found.sentence.tolist() == [-1, 0, 0, -1, 1, -1]
    assert found.word.tolist() == [-1, 0, 1, -1, 2, -1]


def test_several_bytes_of_one_letter_are_one_word() -> None:
    found = aligned(tiny.gpt2(), "né", "NÉ a")
    assert found.word.tolist() == [0, 0, 0, -1, 1, 1, 1, -1, 2]
    assert len(matched(found)) == 1


def test_the_embedded_tokenizer_has_a_token_a_word() -> None:
    found = aligned(synthetic_tokenizer(), "the judge slept .", "The judge .")
    assert found.word.tolist() == [-1, 0, 1, 2, -1, -1, 3, 4, -1, -1]
    assert found.key.tolist() == [-1, 0, 1, 2, -1, -1, 0, 1, -1, -1]


def test_a_word_that_is_cut_is_what_is_left_of_it() -> None:
    found = aligned(tiny.gpt2(), "judge", "judgesxyz", length=11)
    assert found.labels == ("j", "##u", "##d", "##g", "##e", "⏎", "j", "##u", "##d", "##g", "##e")
    assert len(matched(found)) == 1


def test_punctuation_and_special_tokens_are_words_if_asked_for() -> None:
    with_punctuation = aligned(tiny.bert(), "the judge .", "slept.", include=["punctuation"])
    assert with_punctuation.word.tolist() == [-1, 0, 1, 2, -1, 3, 4, -1]
    assert matched(with_punctuation) == {(".", ".")}
    with_special = aligned(tiny.bert(), "the judge .", "slept.", include=["special"])
    assert with_special.word.tolist() == [0, 1, 2, -1, 3, 4, -1, 5]
    assert with_special.key.tolist()[0] == -1, "a special token matches nothing"


def test_tokens_can_be_matched_in_place_of_words() -> None:
    found = aligned(tiny.bert(), "judges slept.", "the judge", matching="token")
    assert found.word.tolist() == [-1, 0, 1, 2, -1, -1, 3, 4, -1]
    assert matched(found) == {("judge", "judge")}


def test_unknown_words_still_match_by_their_text() -> None:
    found = aligned(synthetic_tokenizer(), "zyx abc", "abc the")
    assert found.labels[1:3] == ("[UNK]", "[UNK]")
    assert found.key[2] == found.key[4] != found.key[1]


@pytest.mark.parametrize("name", TOKENIZERS)
@settings(max_examples=25)
@given(
    first=st.lists(st.sampled_from(["the", "Judges", "slept.", "né", "a—b", "(judge)", "\u00a0x", "日本", "..."]), max_size=9),
    second=st.lists(st.sampled_from(["The", "judge", "slept,", "NÉ", "it's", "judges", "  x"]), min_size=1, max_size=9),
    length=st.integers(8, 40),
)
def test_the_ids_are_those_of_encode_also_where_pairs_are_cut(
    name: str, first: list[str], second: list[str], length: int
) -> None:
    tokenizer = BUILT[name]
    one, other = " ".join(first), " ".join(second)
    encoded = encode(Split("s", (one, one), (other, "judge"), (0, 0), ("yes",), (0,)), tokenizer, length)
    found = align_words(PairTokenizer.of(tokenizer, length), [one, one], [other, "judge"])
    for row, words in enumerate(found):
        batch = encoded.batch([row])
        assert words.ids.tolist() == batch.input_ids[0].tolist()
        assert ((words.word >= 0) <= (words.sentence >= 0)).all()
        if batch.token_type_ids is not None:
            inside = words.sentence >= 0
            assert batch.token_type_ids[0].numpy()[inside].tolist() == words.sentence[inside].tolist()
        # Words of a sentence that was not cut are all there, in order.
        if len(words) < length:
            texts = [
                word.text for text in (one, other if row == 0 else "judge") for word in words_of(text) if not word.punctuation
            ]
            assert len(set(words.word.tolist()) - {-1}) == len(texts)
            assert len(set(words.key.tolist()) - {-1}) == len(set(texts))


def test_unequally_many_sentences_are_refused() -> None:
    with pytest.raises(ValueError, match="2 first sentences and 1 second sentences"):
        align_words(PairTokenizer.of(tiny.bert(), 16), ["a", "b"], ["a"])


def test_gpt2_vocabulary() -> None:
    folder = data_folder()
    if "HC_LENS_DATA" not in os.environ or folder is None or not (folder / "tokenizers" / "gpt2" / "vocab.json").exists():
        pytest.skip("HC_LENS_DATA is not set, or has no tokenizers/gpt2")
    place = folder / "tokenizers" / "gpt2"
    tokenizer = GPT2TokenizerFast(vocab=str(place / "vocab.json"), merges=str(place / "merges.txt"))
    found = aligned(tokenizer, "Unbelievable judges slept; the café.", "The judges, unbelievable Café!")
    words = {tuple(part) for word, part in pieces(found).items() if word >= 0}
    assert ("Un", "##bel", "##iev", "##able") in words
    assert len(matched(found)) == 4
