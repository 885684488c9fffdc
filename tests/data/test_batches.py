"""A batch is what the tokenizer itself gives when it pads; the training order visits every row and wastes little padding."""

import logging
from collections.abc import Callable
from pathlib import Path

import datasets.config
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from hc_lens.data import batches, tokenise
from hc_lens.data.batches import Batch, Encoded, encode, encode_tokens, shuffled_rows
from hc_lens.data.task import Split
from hc_lens.data.tokenise import PAIR_SEPARATOR, PairTokenizer
from tests.data import tiny_tokenizers as tiny

TEMPLATED = {"bert": tiny.bert(), "roberta": tiny.roberta()}
sentences = st.lists(st.sampled_from([w for w in tiny.WORDS if "#" not in w]), min_size=1, max_size=12).map(" ".join)
pairs = st.lists(st.tuples(sentences, sentences, st.integers(0, 1)), min_size=1, max_size=8)


def split_of(rows: list[tuple[str, str, int]]) -> Split:
    first, second, labels = zip(*rows, strict=True)
    return Split("s", first, second, labels, ("yes", "no"), (0, 1))


def a_split(n: int) -> Split:
    return split_of([(f"judge {'a ' * (i % 7)}", f"lawyer {'b ' * (i % 3)}", i % 2) for i in range(n)])


@pytest.fixture(autouse=True)
def _no_encoded_yet() -> None:
    batches._cache.clear()


@pytest.mark.parametrize("family", TEMPLATED)
@settings(max_examples=40)
@given(rows=pairs, max_length=st.integers(8, 40), data=st.data())
def test_a_batch_is_what_the_tokenizer_pads_itself(
    family: str, rows: list[tuple[str, str, int]], max_length: int, data: st.DataObject
) -> None:
    tokenizer, split = TEMPLATED[family], split_of(rows)
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, max_size=6))
    batch = encode(split, tokenizer, max_length).batch(chosen)
    expected = tokenizer(
        [split.first[i] for i in chosen],
        [split.second[i] for i in chosen],
        truncation="longest_first",
        max_length=max_length,
        padding=True,
        return_tensors="pt",
    )
    assert torch.equal(batch.input_ids, expected["input_ids"])
    assert torch.equal(batch.attention_mask, expected["attention_mask"])
    if family == "bert":
        assert batch.token_type_ids is not None
        assert torch.equal(batch.token_type_ids, expected["token_type_ids"])
    else:
        assert batch.token_type_ids is None
    assert batch.labels is not None
    assert batch.labels.tolist() == [split.labels[i] for i in chosen]
    assert batch.rows.tolist() == chosen


def test_without_a_pair_template_the_separator_joins_the_sentences() -> None:
    tokenizer = tiny.gpt2()
    data = encode(split_of([("the judge slept", "a lawyer", 0), ("a", "b", 1)]), tokenizer, 64)
    batch = data.batch([0, 1])
    assert tokenizer.decode(batch.input_ids[0]) == f"the judge slept{PAIR_SEPARATOR}a lawyer"
    assert tokenizer.decode(batch.input_ids[1][:3]) == f"a{PAIR_SEPARATOR}b"
    assert batch.input_ids[1][3:].unique().tolist() == [tokenizer.eos_token_id]
    assert batch.attention_mask.sum(1).tolist() == [24, 3]
    assert batch.token_type_ids is None


def test_a_joined_pair_keeps_the_special_tokens_around_a_single_text() -> None:
    tokenizer = tiny.with_start_token()
    data = encode(split_of([("the judge", "a lawyer", 0)]), tokenizer, 12)
    text = tokenizer.decode(data.batch([0]).input_ids[0])
    assert text.startswith("<s>the j")
    assert text.count("<s>") == 1
    assert data.lengths.tolist() == [12]


def test_the_longer_sentence_is_cut() -> None:
    tokenizer = tiny.gpt2()
    for first, second in (("a" * 50, "bcd"), ("bcd", "a" * 50)):
        data = encode(split_of([(first, second, 0)]), tokenizer, 10)
        text = tokenizer.decode(data.batch([0]).input_ids[0])
        assert len(text) == 10
        assert "bcd" in text
        assert PAIR_SEPARATOR in text


@settings(max_examples=30)
@given(rows=pairs, batch_size=st.integers(1, 5))
def test_evaluation_batches_hold_every_row_once(rows: list[tuple[str, str, int]], batch_size: int) -> None:
    split = split_of(rows)
    data = encode(split, TEMPLATED["bert"], 32)
    made = list(data.batches(batch_size))
    assert sorted(row for b in made for row in b.rows.tolist()) == list(range(len(rows)))
    widths = [b.input_ids.shape[1] for b in made]
    assert widths == sorted(widths, reverse=True)
    for b in made:
        assert b.labels is not None
        assert b.labels.tolist() == [split.labels[i] for i in b.rows.tolist()]
        assert b.attention_mask.sum(1).tolist() == data.lengths[b.rows].tolist()


@pytest.mark.parametrize("family", TEMPLATED)
def test_stacked_batches_equal_one_batch_of_all_rows(family: str) -> None:
    data = encode(a_split(9), TEMPLATED[family], 32)
    stacked, whole = Batch.stack([data.batch([0]), data.batch([6, 1]), data.batch([8])]), data.batch([0, 6, 1, 8])
    for name in ("input_ids", "attention_mask", "token_type_ids", "labels", "rows"):
        ours, theirs = getattr(stacked, name), getattr(whole, name)
        assert (ours is None and theirs is None) or torch.equal(ours, theirs)
    assert stacked.pad_id == TEMPLATED[family].pad_token_id
    assert len(stacked) == 4


def test_stack_refuses_what_does_not_fit_together() -> None:
    labelled = encode(a_split(2), TEMPLATED["bert"], 16).batch([0])
    unlabelled = encode_tokens(torch.ones(1, 4, dtype=torch.int64)).batch([0])
    other_padding = encode(a_split(2), TEMPLATED["roberta"], 32).batch([0])
    with pytest.raises(ValueError, match="zero batches"):
        Batch.stack([])
    with pytest.raises(ValueError, match="1 of 2 have token types"):
        Batch.stack([labelled, unlabelled])
    with pytest.raises(ValueError, match=r"pad ids \[0, 1\]"):
        Batch.stack([labelled, other_padding])


def test_a_batch_moves_as_a_whole() -> None:
    moved = encode(a_split(2), TEMPLATED["bert"], 16).batch([0, 1]).to("meta")
    tensors = (moved.input_ids, moved.attention_mask, moved.token_type_ids, moved.labels, moved.rows)
    assert {t.device.type for t in tensors if t is not None} == {"meta"}


def test_bad_rows_are_refused() -> None:
    data = encode(a_split(3), TEMPLATED["bert"], 16)
    for rows, row in (([0, 3], 3), ([-1], -1)):
        with pytest.raises(IndexError, match=rf"row {row} is outside 0\.\.2"):
            data.batch(rows)
    with pytest.raises(ValueError, match="at least one row"):
        data.batch([])
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        data.batches(0)


def test_bad_tokenizers_and_lengths_are_refused() -> None:
    split = a_split(1)
    with pytest.raises(ValueError, match=r"max_length must be at least 5 for a pair .* adds 3 special tokens.*got 4"):
        encode(split, tiny.bert(), 4)
    with pytest.raises(TypeError, match="ByT5Tokenizer is a slow tokenizer"):
        encode(split, ByT5Tokenizer(), 32)
    endless = tiny.gpt2()
    endless.eos_token = None
    with pytest.raises(ValueError, match="neither a pad_token nor an eos_token"):
        encode(split, endless, 32)


# Tokenised once.


@pytest.fixture
def tokenised(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs in each call of a tokenizer, as they happen."""
    calls: list[int] = []
    original = PairTokenizer.__call__

    def counted(self: PairTokenizer, first: list[str], second: list[str]) -> dict[str, list[list[int]]]:
        calls.append(len(first))
        return original(self, first, second)

    monkeypatch.setattr(PairTokenizer, "__call__", counted)
    return calls


def test_a_split_is_tokenised_once_in_a_process(tokenised: list[int]) -> None:
    split, tokenizer = a_split(20), tiny.bert()
    data = encode(split, tokenizer, 16)
    tokenizer("other text", truncation=True, max_length=3, padding="max_length")  # leaves its settings on the tokenizer
    assert encode(split, tokenizer, 16) is data
    assert encode(split, tiny.bert(), 16) is data  # an equal tokenizer, loaded anew
    assert tokenised == [20]


def test_the_fingerprint_follows_data_tokenizer_and_length() -> None:
    tokenizer, more = tiny.bert(), tiny.bert()
    more.add_tokens(["judge lawyer"])
    prints = [
        encode(split, tok, length).fingerprint
        for split, tok, length in (
            (a_split(4), tokenizer, 16),
            (a_split(5), tokenizer, 16),
            (a_split(4), tokenizer, 17),
            (a_split(4), more, 16),
            (a_split(4), tiny.roberta(), 16),
        )
    ]
    assert len(set(prints)) == len(prints)
    batches._cache.clear()
    assert encode(a_split(4), tokenizer, 16).fingerprint == prints[0]


@pytest.mark.parametrize("setting", [{"truncation_side": "left"}, {"split_special_tokens": True}])
@pytest.mark.parametrize("on_disk", [False, True])
def test_settings_outside_the_serialised_rules_give_tokens_of_their_own(
    setting: dict[str, object], on_disk: bool, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if on_disk:
        request.getfixturevalue("cache_folder")
    split = split_of([("a b c d e f g [SEP]", "h i", 0), ("a [MASK] b", "c", 1), ("j", "a", 0)])
    usual, other = tiny.bert(), tiny.bert()
    for name, value in setting.items():
        setattr(other, name, value)
    first = encode(split, usual, 9)
    batches._cache.clear()
    made = encode(split, other, 9)
    wanted = other(list(split.first), list(split.second), truncation="longest_first", max_length=9)["input_ids"]
    assert [row[:n].tolist() for row, n in zip(made.batch([0, 1, 2]).input_ids, made.lengths.tolist(), strict=True)] == wanted
    assert made.fingerprint != first.fingerprint
    assert not torch.equal(made.tokens, first.tokens)
    other.save_pretrained(tmp_path / "saved")
    again = encode(split, type(other).from_pretrained(tmp_path / "saved"), 9)
    assert (again.fingerprint == made.fingerprint) == torch.equal(again.tokens, made.tokens)


def test_a_class_that_encodes_in_its_own_way_has_tokens_of_its_own() -> None:
    class Reversed(PreTrainedTokenizerFast):
        def _encode_plus(self, *args: object, **kwargs: object) -> object:
            made = super()._encode_plus(*args, **kwargs)
            made.data["input_ids"] = made["input_ids"][::-1]
            return made

    plain = tiny.with_start_token()
    other = Reversed(tokenizer_object=plain.backend_tokenizer, bos_token="<s>", eos_token="</s>")
    assert encode(a_split(2), plain, 16).fingerprint != encode(a_split(2), other, 16).fingerprint


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder of `datasets`, used even for few rows."""
    monkeypatch.setattr(tokenise, "ON_DISK_ROWS", 2)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path)
    return tmp_path


def same(a: Encoded, b: Encoded) -> bool:
    types = (a.token_types is None and b.token_types is None) or torch.equal(_types(a), _types(b))
    return types and torch.equal(a.tokens, b.tokens) and torch.equal(a.lengths, b.lengths) and a.fingerprint == b.fingerprint


def _types(data: Encoded) -> torch.Tensor:
    assert data.token_types is not None
    return data.token_types


@pytest.mark.parametrize("tokenizer", [tiny.bert(), tiny.roberta(), tiny.gpt2()], ids=["bert", "roberta", "gpt2"])
def test_another_process_reads_the_tokens_from_disk(
    tokenizer: PreTrainedTokenizerFast, cache_folder: Path, tokenised: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    split = a_split(50)
    written = encode(split, tokenizer, 32)
    assert len(list(cache_folder.glob("hc_lens/*.arrow"))) == 1
    batches._cache.clear()
    tokenised.clear()
    assert same(encode(split, tokenizer, 32), written)
    assert sum(tokenised) <= 1  # one pair, to learn the columns
    monkeypatch.setattr(tokenise, "ON_DISK_ROWS", 1000)
    batches._cache.clear()
    assert same(encode(split, tokenizer, 32), written)  # and as without the file
    assert sum(tokenised) > 1


def cut_to_half(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def leave_out_a_record_batch(file: Path) -> None:
    """What reads without any error, but lacks rows."""
    import pyarrow as pa

    with pa.ipc.open_stream(file.read_bytes()) as reader:
        table = reader.read_all()
    with pa.OSFile(str(file), "wb") as out, pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table.slice(0, len(table) // 2))


@pytest.mark.parametrize("damage", [cut_to_half, leave_out_a_record_batch])
def test_a_damaged_cache_file_is_made_anew(damage: Callable[[Path], None], cache_folder: Path) -> None:
    split, tokenizer = a_split(50), tiny.bert()
    written = encode(split, tokenizer, 32)
    (file,) = cache_folder.glob("hc_lens/*.arrow")
    size = file.stat().st_size
    damage(file)
    batches._cache.clear()
    assert same(encode(split, tokenizer, 32), written)
    assert file.stat().st_size == size


def test_a_cache_folder_that_cannot_be_written_costs_only_time(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (cache_folder / "file").touch()
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", cache_folder / "file" / "folder")
    with caplog.at_level(logging.WARNING, "hc_lens"):
        data = encode(a_split(10), tiny.bert(), 32)
    assert len(data) == 10
    assert "tokens are not cached" in caplog.text
    assert str(cache_folder / "file") in caplog.text


def test_rows_of_plain_tokens() -> None:
    tokens = torch.arange(12).view(3, 4)
    data = encode_tokens(tokens)
    batch = data.batch([2, 0])
    assert torch.equal(batch.input_ids, tokens[[2, 0]])
    assert batch.attention_mask.all()
    assert batch.labels is None
    assert data.fingerprint == encode_tokens(tokens.clone()).fingerprint
    assert data.fingerprint != encode_tokens(tokens.view(4, 3)).fingerprint
    with pytest.raises(ValueError, match="the number of rows must be at least 1, got 0"):
        encode_tokens(tokens[:0])


# The training order.


def order(lengths: torch.Tensor, batch_size: int, n_batches: int, seed: int = 0, bucket: bool = True) -> torch.Tensor:
    return shuffled_rows(lengths, batch_size, n_batches, torch.Generator().manual_seed(seed), bucket)


@settings(max_examples=60)
@given(
    per_epoch=st.integers(1, 130),
    batch_size=st.integers(1, 4),
    rest=st.integers(0, 3),
    epochs=st.integers(1, 3),
    bucket=st.booleans(),
    seed=st.integers(0, 2**31),
)
def test_every_epoch_visits_every_row_once(
    per_epoch: int, batch_size: int, rest: int, epochs: int, bucket: bool, seed: int
) -> None:
    rest = min(rest, batch_size - 1)
    lengths = torch.arange(per_epoch * batch_size + rest) % 17 + 1
    rows = order(lengths, batch_size, per_epoch * epochs, seed, bucket)
    assert rows.shape == (per_epoch * epochs, batch_size)
    for epoch in rows.split(per_epoch):
        visited = epoch.flatten().tolist()
        assert len(set(visited)) == len(visited) == len(lengths) - rest
    assert torch.equal(rows, order(lengths, batch_size, per_epoch * epochs, seed, bucket))


def test_more_steps_continue_the_same_order() -> None:
    lengths = torch.arange(1000) % 40 + 5
    assert torch.equal(order(lengths, 16, 20), order(lengths, 16, 150)[:20])
    assert not torch.equal(order(lengths, 16, 20), order(lengths, 16, 20, seed=1))


def test_no_row_is_left_out_of_every_epoch() -> None:
    """The remainder of an epoch is a random one, not its longest or last rows."""
    lengths = torch.arange(11) + 1
    assert set(order(lengths, 4, 2 * 60).flatten().tolist()) == set(range(11))


def test_bucketing_saves_padding_and_keeps_batches_mixed() -> None:
    lengths = torch.randint(5, 60, (20_000,), generator=torch.Generator().manual_seed(3))

    def padded(rows: torch.Tensor) -> float:
        return float((lengths[rows].amax(1) * rows.shape[1]).sum() / lengths[rows].sum())

    bucketed, plain = order(lengths, 32, 600), order(lengths, 32, 600, bucket=False)
    assert padded(bucketed) < 1.05
    assert padded(plain) > 1.5
    # Short and long batches come in random order, not one after the other.
    widths = lengths[bucketed].amax(1).float()
    assert abs(float(torch.corrcoef(torch.stack([widths[:-1], widths[1:]]))[0, 1])) < 0.2


@pytest.mark.parametrize("bucket", [True, False])
def test_fewer_rows_than_a_batch_repeat_evenly(bucket: bool) -> None:
    rows = order(torch.ones(3, dtype=torch.int64), 8, 3, bucket=bucket)
    assert rows.shape == (3, 8)
    assert torch.bincount(rows.flatten()).tolist() == [8, 8, 8]


def test_impossible_orders_are_refused() -> None:
    lengths = torch.ones(3, dtype=torch.int64)
    with pytest.raises(ValueError, match="the number of rows must be at least 1, got 0"):
        order(lengths[:0], 1, 1)
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        order(lengths, 0, 1)
    with pytest.raises(ValueError, match="n_batches must be at least 1, got 0"):
        order(lengths, 1, 0)


def test_evaluation_batches_are_padded_anew_in_every_pass_and_can_be_sliced():
    data = encode_tokens(torch.arange(12).view(6, 2) % 5)
    batches = data.batches(4)
    assert [len(batch) for batch in batches] == [4, 2]
    assert batches[0] is not batches[0], "no batch is kept"
    assert torch.equal(batches[-1].rows, [*batches][1].rows)
    assert [batch.rows.tolist() for batch in batches[:1]] == [batches[0].rows.tolist()]
