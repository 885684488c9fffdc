"""Attention scores mean what they say: heads that attend by a rule score 1 or their baseline, and padding never counts."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    GPT2Config,
    GPT2ForSequenceClassification,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from hc_lens.analysis.attended import AttentionScores
from hc_lens.analysis.attention import attention_scores
from hc_lens.analysis.pattern import attention_pattern
from hc_lens.analysis.profiles import profile_table
from hc_lens.analysis.targets import RELATIONS
from hc_lens.data.batches import encode
from hc_lens.data.task import Split, Task
from hc_lens.data.tokenise import PairTokenizer
from hc_lens.data.words import align_words
from hc_lens.hooks import Edit, HookError, pattern_point
from hc_lens.models import Classifier, load_model
from hc_lens.sample import Sample
from hc_lens.units import Head
from tests.attending import AttendingModel
from tests.data import tiny_tokenizers as tiny
from tests.micro import micro_model

NAMES = ("overlap", "previous", "next", "separator", "first", "self", "uniform", "other sentence")


def split_of(*pairs: tuple[str, str], name: str = "case") -> Split:
    first, second = zip(*pairs, strict=True)
    return Split(name, first, second, (0,) * len(pairs), ("yes", "no"), (0, 1))


PAIRS = split_of(
    ("the judge saw a lawyer .", "a lawyer slept ."),
    ("a lawyer slept near the judge .", "the judge slept"),
    ("the lawyer slept .", "the lawyers saw the judge ."),
    ("judges slept", "a judge saw a lawyer near the lawyer ."),
)


@pytest.fixture(scope="module")
def scores() -> AttentionScores:
    return attention_scores(AttendingModel(NAMES), PAIRS)


@pytest.fixture(scope="module")
def table(scores: AttentionScores) -> pd.DataFrame:
    return scores.table()


def of(table: pd.DataFrame, name: str, relation: str) -> pd.Series:
    rows = table[(table["head"] == NAMES.index(name)) & (table["relation"] == relation)]
    assert len(rows) == 1
    return rows.iloc[0]


@pytest.mark.parametrize("name", ["overlap", "previous", "next", "separator", "first", "self"])
def test_a_head_that_attends_by_one_rule_scores_1_on_it_and_is_named_after_it(
    table: pd.DataFrame, scores: AttentionScores, name: str
) -> None:
    row = of(table, name, name)
    assert (row["score"], row["low"], row["high"]) == pytest.approx((1, 1, 1), abs=1e-6)
    profiles = scores.profiles()
    assert profiles["profile"][NAMES.index(name)] == name
    assert len(profiles) == len(NAMES)


@pytest.mark.parametrize("relation", RELATIONS)
def test_a_head_that_attends_evenly_scores_its_baseline(table: pd.DataFrame, relation: str) -> None:
    row = of(table, "uniform", relation)
    assert row["score"] == pytest.approx(row["uniform"], abs=1e-6)
    assert row["low"] <= row["score"] <= row["high"]


def test_a_head_that_attends_to_the_whole_other_sentence_is_not_an_overlap_head(
    table: pd.DataFrame, scores: AttentionScores
) -> None:
    row = of(table, "other sentence", "overlap")
    assert row["score"] > row["uniform"], "even attention to one sentence is more than to both"
    assert row["score"] == pytest.approx(row["others"], abs=1e-6)
    assert of(table, "overlap", "overlap")["others"] == pytest.approx(0, abs=1e-6)
    assert list(scores.profiles()["profile"][-2:]) == ["mixed", "mixed"]


def test_queries_baselines_and_scores_by_hand() -> None:
    # [CLS] judge ##s slept . [SEP] the judge ##s saw [SEP]: eleven tokens.
    found = attention_scores(AttendingModel(NAMES), split_of(("judges slept.", "the judges saw")), shuffle=False).table()
    overlap = of(found, "uniform", "overlap")
    assert overlap["n_queries"] == 2, "judges in each sentence: a word of two pieces asks once"
    assert overlap["uniform"] == pytest.approx(2 / 11), "to both pieces of its match"
    assert of(found, "self", "overlap")["score"] == 0
    # A piece attends to its equal piece only, which is all of its match's attention: pieces of the target are summed.
    assert of(found, "overlap", "overlap")["score"] == pytest.approx(1)
    assert of(found, "uniform", "overlap from first")["n_queries"] == 1
    previous = of(found, "previous", "previous")
    assert previous["n_queries"] == 4, "words after something in their sentence: slept, judges, saw; and judges for its ##s"
    assert previous["score"] == pytest.approx(1)
    assert of(found, "next", "previous")["score"] == 0
    assert of(found, "uniform", "separator")["uniform"] == pytest.approx(2 / 11)
    assert of(found, "uniform", "self")["n_queries"] == 5
    assert found["shuffled"].isna().all()
    assert found["low"].isna().all(), "one pair has no interval"


def test_pieces_of_a_query_are_averaged() -> None:
    def pattern(weights: torch.Tensor, hook: object) -> torch.Tensor:
        made = torch.zeros_like(weights)
        made[0, 0, 1, 7], made[0, 0, 2, 7], made[0, 0, 2, 8] = 0.5, 0.25, 0.75  # judge ##s of the first, to those of the second
        return made

    model = AttendingModel(("uniform",))
    pair = split_of(("judges slept.", "the judges saw"))
    found = attention_scores(model, pair, shuffle=False, edits=[Edit(pattern_point(0), pattern)]).table()
    score = found.set_index("relation")["score"]
    assert score["overlap from first"] == pytest.approx((0.5 + 1) / 2)
    assert score["overlap from second"] == 0
    assert score["overlap"] == pytest.approx(0.75 / 2)
    tokens = attention_scores(model, pair, shuffle=False, words="token", edits=[Edit(pattern_point(0), pattern)]).table()
    score = tokens.set_index("relation")["score"]
    assert score["overlap from first"] == pytest.approx((0.5 + 0.75) / 2), "judge with judge, ##s with ##s"


def test_shuffled_pairs_keep_the_first_sentences_and_count_only_shared_words() -> None:
    pairs = split_of(("the judge", "the judge"), ("a lawyer", "a lawyer"), ("b c", "b c"))
    found = attention_scores(AttendingModel(NAMES), pairs).table()
    overlap = of(found, "overlap", "overlap")
    assert (overlap["n_queries"], overlap["n_rows"]) == (12, 3)
    assert (overlap["shuffled_queries"], overlap["shuffled_rows"]) == (0, 0), "no two rows share a word"
    assert np.isnan(overlap["shuffled"])
    assert of(found, "self", "self")["shuffled"] == pytest.approx(1)
    alike = split_of(("the judge", "the lawyer"), ("the dog", "the cat"), ("the a", "the b"))
    overlap = of(attention_scores(AttendingModel(NAMES), alike).table(), "overlap", "overlap")
    assert (overlap["shuffled_queries"], overlap["shuffled_rows"]) == (6, 3)
    assert overlap["shuffled"] == pytest.approx(1), "a head that matches words does so in any pair"


def test_attention_on_shuffled_pairs_is_that_of_the_model_on_them() -> None:
    found = attention_scores(bert(), PAIRS, sample=Sample(seed=3))
    (other,) = found.shuffled
    assert other is not None
    # Two rows: the only shuffle swaps them.
    two = PAIRS.take([0, 1])
    swapped = Split("swapped", two.first, two.second[::-1], two.labels, two.label_names, two.collapse)
    (shuffled,) = attention_scores(bert(), two).shuffled
    (expected,) = attention_scores(bert(), swapped, shuffle=False).cases
    assert shuffled is not None
    np.testing.assert_allclose(shuffled.mass, expected.mass, atol=1e-6)


def bert() -> Classifier:
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=25, hidden_size=20, num_hidden_layers=3, num_attention_heads=5, intermediate_size=12, initializer_range=1.0,
        max_position_embeddings=40,
    )  # fmt: skip
    return load_model(hf_model=BertForSequenceClassification(config), tokenizer=tiny.bert())


def roberta() -> Classifier:
    torch.manual_seed(0)
    config = RobertaConfig(
        vocab_size=261, hidden_size=20, num_hidden_layers=2, num_attention_heads=4, intermediate_size=12, type_vocab_size=1,
        max_position_embeddings=82, pad_token_id=1, initializer_range=1.0,
    )  # fmt: skip
    return load_model(hf_model=RobertaForSequenceClassification(config), tokenizer=tiny.roberta())


def gpt2() -> Classifier:
    torch.manual_seed(0)
    config = GPT2Config(vocab_size=257, n_embd=20, n_layer=2, n_head=4, n_positions=80, pad_token_id=256, initializer_range=1.0)
    return load_model(hf_model=GPT2ForSequenceClassification(config), tokenizer=tiny.gpt2())


@pytest.mark.parametrize("build", [bert, roberta, gpt2])
def test_scores_are_read_from_the_models_own_pattern(build: object) -> None:
    model = build()
    found = attention_scores(model, PAIRS, shuffle=False).table().set_index(["layer", "head", "relation"])
    batch = encode(PAIRS, model.tokenizer, 80).batch(range(4))
    with torch.no_grad():
        _, cache = model.run_with_cache(batch)
    pattern = cache[pattern_point(1)]
    assert pattern.sum(-1).allclose(torch.ones(()), atol=1e-5), "after the softmax"
    # "first": the mean over words of the mean over a word's tokens, here by a plain loop.
    aligned = align_words(PairTokenizer.of(model.tokenizer, 80), PAIRS.first, PAIRS.second)
    masses: list[float] = []
    for row, words in enumerate(aligned):
        for word in range(words.word.max() + 1):
            tokens = [at for at in np.flatnonzero(words.word == word) if at > 0]
            if tokens:
                masses.append(float(pattern[row, 2, tokens, 0].mean()))
    assert found.loc[(1, 2, "first"), "score"] == pytest.approx(np.mean(masses), abs=1e-5)
    assert found.loc[(1, 2, "first"), "n_queries"] == len(masses)


@pytest.mark.parametrize("build", [bert, gpt2])
def test_a_batch_gives_what_its_rows_give_alone(build: object) -> None:
    model = build()
    (together,) = attention_scores(model, PAIRS, sample=Sample(batch_size=4), shuffle=False).cases
    (alone,) = attention_scores(model, PAIRS, sample=Sample(batch_size=1), shuffle=False).cases
    for name in ("mass", "others", "uniform", "queries"):
        np.testing.assert_allclose(getattr(together, name), getattr(alone, name), atol=2e-6, err_msg=name)


def test_in_a_causal_model_only_what_comes_before_counts() -> None:
    found = attention_scores(gpt2(), split_of(("ab cd", "cd")), shuffle=False).table()
    assert set(found["relation"]) == {"overlap", "overlap from second", "previous", "first", "self"}
    score = found[(found["layer"] == 0) & (found["head"] == 0)].set_index("relation")
    # Tokens a b _ c d \n c d: the second "cd" looks back at both pieces of the first, from positions 6 and 7.
    assert score.loc["overlap", "n_queries"] == 1
    assert score.loc["overlap", "uniform"] == pytest.approx((2 / 7 + 2 / 8) / 2)
    assert score.loc["self", "uniform"] == pytest.approx(((1 + 1 / 2) / 2 + (1 / 4 + 1 / 5) / 2 + (1 / 7 + 1 / 8) / 2) / 3)


def test_robertas_separators_are_found() -> None:
    found = attention_scores(roberta(), split_of(("ab", "cd")), shuffle=False).table()
    # <s> a b </s> </s> c d </s>
    assert found[found["relation"] == "separator"]["uniform"].iloc[0] == pytest.approx(3 / 8)


def test_cases_of_a_task_have_their_group_and_are_pooled_as_their_rows() -> None:
    one, other = PAIRS.take([0, 1], "one"), PAIRS.take([2, 3], "other")
    task = Task("t", ("yes", "no"), PAIRS, {"one": one}, {"other": other})
    found = attention_scores(bert(), task)
    table = found.table()
    assert dict(zip(table["case"], table["group"], strict=True)) == {"one": "ID", "other": "OOD"}
    whole = attention_scores(bert(), PAIRS, shuffle=False).table(seed=1)
    pooled = found.pooled().table(seed=1)
    columns = ["layer", "head", "relation", "score", "low", "high", "uniform", "others", "n_queries", "n_rows"]
    pd.testing.assert_frame_equal(pooled[columns], whole[columns], atol=1e-5)
    assert set(found.pooled(["other"]).table()["group"]) == {"OOD"}
    groups = found.by_group().table()
    assert dict(zip(groups["case"], groups["group"], strict=True)) == {"in-domain": "ID", "out of domain": "OOD"}
    only = attention_scores(bert(), task, sample=Sample(1, cases=["other"]))
    assert set(only.table()["case"]) == {"other"}
    assert only.table()["n_rows"].max() == 1
    assert only.shuffled == (None,)


def test_intervals_resample_pairs_not_words() -> None:
    # All words of one pair score 1, all of the other 0: thirty words, but two pairs, so that nothing is known.
    def pattern(weights: torch.Tensor, hook: object) -> torch.Tensor:
        made = torch.zeros_like(weights)
        made[0, :, :, 0] = 1
        return made

    pairs = split_of(*[("a b c d e f g h i j", "a b c d e")] * 2)
    found = attention_scores(
        AttendingModel(("uniform",)), pairs, sample=Sample(batch_size=2), shuffle=False, edits=[Edit(pattern_point(0), pattern)]
    )
    first = found.table().set_index("relation").loc["first"]
    assert (first["score"], first["low"], first["high"]) == (0.5, 0, 1)
    assert (first["n_queries"], first["n_rows"]) == (30, 2)


def test_the_profile_rule() -> None:
    def head(index: int, **scores: tuple[float, float]) -> list[dict[str, object]]:
        rows = []
        for relation in ("overlap", "previous", "separator"):
            score, low = scores.get(relation, (0.1, 0.1))
            others = 0.3 if relation == "overlap" else np.nan
            rows.append(
                {"case": "c", "layer": 0, "head": index, "relation": relation, "score": score, "low": low, "high": score}
                | {"uniform": 0.1, "others": others, "shuffled": 0.5}
            )
        return rows

    table = pd.DataFrame(
        head(0, overlap=(0.9, 0.7))
        + head(1, overlap=(0.9, 0.59))  # not above twice what other words get
        + head(2, previous=(0.3, 0.25), separator=(0.4, 0.3))
        + head(3, previous=(0.24, 0.23))  # below the minimum
        + head(4, previous=(0.3, 0.19), separator=(0.26, 0.25))  # previous is too uncertain
    )
    found = profile_table(table)
    assert list(found["profile"]) == ["overlap", "mixed", "separator", "mixed", "separator"]
    assert list(found["relation"]) == ["overlap", "overlap", "separator", "previous", "separator"]
    assert found["baseline"].tolist() == pytest.approx([0.3, 0.3, 0.1, 0.1, 0.1])
    assert found["ratio"][0] == pytest.approx(3)
    assert (found["runner_up"][2], found["runner_up_score"][2]) == ("previous", 0.3)
    assert found["runner_up"][4] == "previous", "the runner-up is the next score, qualified or not"
    assert list(profile_table(table, minimum=0.2)["profile"])[3] == "previous"
    assert list(profile_table(table, factor=1.9)["profile"])[1] == "overlap"
    for bad, told in (({"factor": 0.5}, "factor"), ({"minimum": 2.0}, "minimum")):
        with pytest.raises(ValueError, match=told):
            profile_table(table, **bad)
    with pytest.raises(ValueError, match=r"of one case, the table has \['c', 'd'\]"):
        profile_table(pd.concat([table, table.assign(case="d")]))


def test_in_bfloat16_attention_is_as_near_as_bfloat16_is() -> None:
    model = bert()
    for block in model.blocks:
        block.attn.W_Q.data /= 20  # attention that is not all or nothing
    full, low = (
        attention_scores(model, PAIRS, sample=Sample(precision=kind), shuffle=False).table()["score"]
        for kind in ("fp32", "bf16")
    )
    assert not low.equals(full), "products were in bfloat16"
    np.testing.assert_allclose(low, full, atol=0.02)


def test_the_model_is_left_as_it_was() -> None:
    model = bert().train()
    before = {name: len(point.fwd_hooks) for name, point in model.hook_dict.items()}
    attention_scores(model, PAIRS)
    assert model.training
    assert {name: len(point.fwd_hooks) for name, point in model.hook_dict.items()} == before


def test_bad_input_is_named() -> None:
    model = AttendingModel(("uniform",))
    with pytest.raises(KeyError, match="no case 'hans'"):
        attention_scores(model, {"a": PAIRS}, sample=Sample(cases=["hans"]))
    with pytest.raises(ValueError, match="no cases"):
        attention_scores(model, {})
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        attention_scores(model, PAIRS, sample=Sample(0))
    with pytest.raises(ValueError, match="batch_size must be at least 1, got 0"):
        attention_scores(model, PAIRS, sample=Sample(batch_size=0))
    with pytest.raises(ValueError, match="none of its 1 pairs has a word"):
        attention_scores(model, split_of((".", ". .")))
    with pytest.raises(ValueError, match="MicroModel has no tokenizer"):
        attention_scores(micro_model(), PAIRS)
    with pytest.raises(KeyError, match="no case 'b' was measured"):
        attention_scores(model, PAIRS).pooled(["b"])
    without = copy.copy(micro_model())
    without.tokenizer = tiny.bert()
    with pytest.raises(HookError, match=r"has no hook point 'blocks\.0\.attn\.hook_pattern'"):
        attention_scores(without, PAIRS)
    nan = [Edit(pattern_point(0), lambda weights, hook: weights * float("nan"))]
    with pytest.raises(ValueError, match="not finite"):
        attention_scores(model, PAIRS, edits=nan)


def test_a_pattern_table_is_the_models_pattern_with_its_tokens() -> None:
    model = bert()
    heads = [Head(2, 1), Head(0, 4)]
    table = attention_pattern(model, "Judges slept.", "the judges", heads)
    labels = ["[CLS]", "Judge", "##s", "slept", ".", "[SEP]", "the", "judge", "##s", "[SEP]"]
    assert list(table["query_token"][::10][:10]) == labels
    assert list(table["key_token"][:10]) == labels
    assert len(table) == 2 * 100
    batch = encode(split_of(("Judges slept.", "the judges")), model.tokenizer, 40).batch([0])
    with torch.no_grad():
        _, cache = model.run_with_cache(batch)
    for head, rows in zip(heads, (table[:100], table[100:]), strict=True):
        assert (rows["layer"].iloc[0], rows["head"].iloc[0]) == head
        expected = cache[pattern_point(head.layer)][0, head.index].numpy()
        np.testing.assert_allclose(rows["weight"].to_numpy().reshape(10, 10), expected, atol=1e-4)
    same = {(int(q), int(k)) for q, k in table[:100][table[:100]["same_word"]][["query", "key"]].to_numpy()}
    assert same == {(q, k) for a, b in (((1, 2), (7, 8)), ((7, 8), (1, 2))) for q in a for k in b}
    with pytest.raises(ValueError, match=r"L3\.H0 is not in this model"):
        attention_pattern(model, "a", "b", [Head(3, 0)])
    with pytest.raises(ValueError, match="no heads"):
        attention_pattern(model, "a", "b", [])
