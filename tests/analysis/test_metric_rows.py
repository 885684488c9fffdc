"""`batch.rows` that a metric or a loss of one's own gets are rows of the data it was given, however they are run."""

import dataclasses
from functools import cache

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig

import hc_lens as hc
from hc_lens.analysis import Ablation, ablate, first_order_effects, rank_correlation, single_heads
from hc_lens.analysis.greedy import halves
from hc_lens.analysis.stored import from_tensors, to_tensors
from hc_lens.data.batches import Batch, Encoded
from hc_lens.metrics import predict
from hc_lens.models import new_model
from hc_lens.sample import Sample
from hc_lens.units import Head
from tests.analysis.planted import WORDS, tokenizer

N = 40
RNG = torch.Generator().manual_seed(5)
ANSWER = torch.randint(0, 2, (N,), generator=RNG)
LENGTHS = torch.randint(3, 12, (N,), generator=RNG)
TOKENS = torch.randint(5, len(WORDS), (int(LENGTHS.sum()),), generator=RNG, dtype=torch.int32)
DATA = Encoded(TOKENS, None, LENGTHS, ANSWER, 0, "rows of different lengths")
SETS = [(Head(0, 1),), (Head(0, 2),), (Head(0, 1), Head(1, 0)), (Head(1, 3),)]


@cache
def setting():
    config = BertConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        vocab_size=len(WORDS),
        initializer_range=0.5,
    )
    model = new_model(config, labels=("yes", "no"), tokenizer=tokenizer(), seed=3)
    return model, hc.ActivationMeans.collect(model, DATA)


def answer_logit(logits: Tensor, batch: Batch) -> Tensor:
    """The logit of each row's own answer, which only its place in the data tells."""
    return logits[torch.arange(len(batch)), ANSWER[batch.rows]]


def by_hand(units: tuple[Head, ...] = ()) -> np.ndarray:
    model, means = setting()
    logits = predict(model, DATA, edits=means.edits(units) if units else ())
    return logits[torch.arange(N), ANSWER].numpy()


def rows_of(ablation: Ablation) -> np.ndarray:
    assert ablation.rows is not None
    return ablation.rows


@pytest.mark.parametrize(("max_rows", "batch_size"), [(15, 64), (15, 4), (1, 1), (None, 7)])
def test_a_metric_that_looks_its_rows_up_is_the_plain_loop_over_the_rows_drawn(max_rows: int | None, batch_size: int) -> None:
    model, means = setting()
    found = ablate(model, DATA, means, SETS, metric=answer_logit, sample=Sample(max_rows, 2, batch_size=batch_size))
    assert len(set(rows_of(found).tolist())) == (max_rows or N)
    np.testing.assert_allclose(found.full["metric"], by_hand()[rows_of(found)], atol=1e-4)
    for units in SETS:
        np.testing.assert_allclose(found.ablated[units]["metric"], by_hand(units)[rows_of(found)], atol=1e-4)


def test_the_estimate_of_some_rows_is_theirs_among_the_estimates_of_all() -> None:
    model, means = setting()
    every = first_order_effects(model, DATA, means, metric=answer_logit)
    some = first_order_effects(model, DATA, means, metric=answer_logit, sample=Sample(15, 2, batch_size=4))
    np.testing.assert_allclose(some.full["metric"], by_hand()[rows_of(some)], atol=1e-4)
    for units, values in some.ablated.items():
        np.testing.assert_allclose(values["metric"], every.ablated[units]["metric"][rows_of(some)], atol=1e-4)
    exact = ablate(model, DATA, means, single_heads(means), metric=answer_logit, sample=Sample(15, 2))
    assert rank_correlation(some, exact)["n"].tolist() == [15]


def test_labels_tokens_and_rows_of_a_batch_belong_together() -> None:
    model, means = setting()
    starts = LENGTHS.cumsum(0) - LENGTHS

    def checked(logits: Tensor, batch: Batch) -> Tensor:
        assert batch.input_ids[:, 0].tolist() == TOKENS[starts[batch.rows]].tolist()
        assert batch.labels is not None
        assert batch.labels.tolist() == ANSWER[batch.rows].tolist()
        return logits[:, 0]

    ablate(model, DATA, means, SETS, metric=checked, sample=Sample(15, batch_size=4))
    first_order_effects(model, DATA, means, metric=checked, sample=Sample(15, batch_size=4))
    config = hc.PruneConfig(steps=4, ramp_steps=2, batch_size=4, max_length=16, gate_std=2.0)
    hc.prune(model, DATA, means, config, seeds=[1, 2, 3], loss=checked)  # three runs in one forward pass


def test_what_is_known_of_other_rows_is_refused_though_its_values_are_alike() -> None:
    """The full model's values alone cannot tell rows apart where they are all the same."""
    model, means = setting()

    def one(logits: Tensor, batch: Batch) -> Tensor:
        return torch.ones(len(batch)) + 0 * logits[:, 0]

    known = ablate(model, DATA, means, SETS[:1], metric=one, sample=Sample(15, 2))
    with pytest.raises(ValueError, match="known is a result on other rows"):
        ablate(model, DATA, means, SETS, metric=one, sample=Sample(15, 3), known=known)
    others = first_order_effects(model, DATA, means, metric=answer_logit, sample=Sample(15, 3))
    exact = ablate(model, DATA, means, single_heads(means), metric=answer_logit, sample=Sample(15, 2))
    with pytest.raises(ValueError, match="of different rows"):
        rank_correlation(others, exact)
    again = ablate(model, DATA, means, SETS, metric=one, sample=Sample(15, 2), known=known)
    assert again.ablated[SETS[0]] is known.ablated[SETS[0]]


def test_rows_are_kept_with_an_ablation_and_unknown_in_one_kept_without() -> None:
    model, means = setting()
    found = ablate(model, DATA, means, SETS[:1], metric=answer_logit, sample=Sample(15, 2))
    tensors, metadata = to_tensors(found)
    back = from_tensors(tensors, metadata)
    assert rows_of(back).tolist() == rows_of(found).tolist()
    assert set(back.full) == {"metric"}
    first, second = halves(found)
    assert sorted([*rows_of(first), *rows_of(second)]) == sorted(rows_of(found))
    np.testing.assert_allclose(first.full["metric"], by_hand()[rows_of(first)], atol=1e-4)
    older = from_tensors(*to_tensors(dataclasses.replace(found, rows=None)))
    assert older.rows is None
    ablate(model, DATA, means, SETS, metric=answer_logit, sample=Sample(15, 2), known=older)
