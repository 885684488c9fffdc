"""Tasks, examples and sequences of in-context learning: what is seen, what is not, and what a batch holds."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.modular.incontext.sequences import (
    all_queries,
    answer_loss,
    answers_of,
    as_tokens,
    balanced_batch,
    draw_examples,
    draw_repeating,
    examples_of,
)
from hc_lens.modular.incontext.tasks import parallelogram_tasks, random_tasks, split_examples

PRIMES = st.sampled_from([3, 5, 7, 11])


def _as_set(pairs: torch.Tensor) -> set[tuple[int, ...]]:
    return {tuple(pair) for pair in pairs.tolist()}


@settings(max_examples=25)
@given(p=PRIMES, seed=st.integers(0, 99), data=st.data())
def test_seen_and_unseen_tasks_part_all_tasks(p: int, seed: int, data: st.DataObject) -> None:
    n = 4 * data.draw(st.integers(1, max(1, p * p // 8)))
    for split in (parallelogram_tasks(p, n, seed), random_tasks(p, n, seed)):
        seen, unseen = _as_set(split.seen), _as_set(split.unseen)
        assert len(split.seen) == len(seen) == n
        assert len(split.unseen) == len(unseen) == p * p - n
        assert not seen & unseen


@pytest.mark.parametrize(("p", "n_tasks"), [(5, 20), (7, 40), (29, 512)])
def test_by_the_parallelogram_rule_every_coefficient_of_a_seen_task_is_in_another_seen_task(p: int, n_tasks: int) -> None:
    seen = parallelogram_tasks(p, n_tasks, seed=1).seen
    for column in (0, 1):
        assert min(Counter(seen[:, column].tolist()).values()) >= 2


def test_four_tasks_by_the_parallelogram_rule_are_the_corners_of_one() -> None:
    seen = parallelogram_tasks(7, 4, seed=3).seen
    assert len(set(seen[:, 0].tolist())) == len(set(seen[:, 1].tolist())) == 2


@pytest.mark.parametrize("n_tasks", [26, 28, 25, 0])
def test_more_tasks_than_there_are_is_an_error_that_names_them(n_tasks: int) -> None:
    for choose in (random_tasks, parallelogram_tasks):
        with pytest.raises(ValueError, match=rf"n_tasks must be in 1\.\.24.*got {n_tasks}"):
            choose(5, n_tasks, 0)


def test_a_number_of_tasks_that_the_rule_cannot_give_is_an_error_and_no_endless_loop() -> None:
    with pytest.raises(ValueError, match="no draw found 24 tasks modulo 5"):
        parallelogram_tasks(5, 24, seed=0)  # six disjoint parallelograms do not fit
    with pytest.raises(ValueError, match=r"multiple of 4.*got 6"):
        parallelogram_tasks(5, 6, seed=0)


def test_examples_are_split_at_the_fraction() -> None:
    split = split_examples(7, 0.6, seed=0)
    assert len(split.train) == int(0.6 * 49)
    assert not _as_set(split.train) & _as_set(split.test)
    assert len(_as_set(split.train) | _as_set(split.test)) == 49


@settings(max_examples=25)
@given(p=PRIMES, seed=st.integers(0, 99))
def test_a_sequence_repeats_no_example_and_its_answers_are_its_tasks(p: int, seed: int) -> None:
    pool, tasks = split_examples(p, 0.7, seed).train, random_tasks(p, 6, seed).seen
    examples = draw_examples(pool, 6, 4, torch.Generator().manual_seed(seed))
    tokens = as_tokens(tasks, examples, p)
    assert tokens.shape == (6, 12)
    for row, (a, b) in zip(tokens.tolist(), tasks.tolist(), strict=True):
        shots = [row[i : i + 3] for i in range(0, 12, 3)]
        assert all(z == (a * x + b * y) % p for x, y, z in shots)
        assert len({(x, y) for x, y, _ in shots}) == 4
        assert {(x, y) for x, y, _ in shots} <= _as_set(pool)


def test_a_batch_holds_equally_many_sequences_of_every_task_with_the_same_examples() -> None:
    pool, tasks = split_examples(5, 0.8, 0).train, random_tasks(5, 12, 0).seen
    tokens = balanced_batch(tasks, draw_examples(pool, 3, 6, torch.Generator().manual_seed(0)), p=5)
    by_task = tokens.unflatten(0, (12, 3))
    examples = examples_of(tokens).unflatten(0, (12, 3))
    assert (examples == examples[0]).all()
    for (a, b), rows in zip(tasks.tolist(), by_task, strict=True):
        xy = examples_of(rows)
        assert (answers_of(rows) == (a * xy[..., 0] + b * xy[..., 1]) % 5).all()


def test_longer_sequences_than_there_are_examples_are_refused() -> None:
    pool = split_examples(3, 0.5, 0).train
    with pytest.raises(ValueError, match="5 different examples cannot be drawn from 4"):
        draw_examples(pool, 1, 5, torch.Generator())


def test_examples_may_repeat_where_that_is_asked_for() -> None:
    pool = split_examples(5, 0.8, 0).train
    drawn = draw_repeating(pool, 50, 20, torch.Generator().manual_seed(0))
    assert {tuple(pair) for row in drawn.tolist() for pair in row} == _as_set(pool)
    assert all(len(_as_set(row)) < 20 for row in drawn)


def test_all_queries_follow_the_same_examples() -> None:
    tokens = all_queries(torch.tensor([[1, 2], [0, 1]]), torch.tensor([2, 3]), 5)
    assert tokens.shape == (25, 9)
    assert (tokens[:, :6] == torch.tensor([1, 2, 3, 0, 1, 3])).all()
    assert tokens[7, 6:].tolist() == [1, 2, 3]


def test_only_the_answers_have_a_loss() -> None:
    tokens = as_tokens(torch.tensor([[1, 1]]), torch.tensor([[[1, 2], [3, 4]]]), 5)
    logits = torch.zeros(1, 2, 5)
    assert answer_loss(logits, tokens).item() == pytest.approx(torch.log(torch.tensor(5.0)).item())
    logits[0, 0, 3] = logits[0, 1, 2] = 50.0  # 1 + 2, and 3 + 4 mod 5
    assert answer_loss(logits, tokens).item() == pytest.approx(0.0, abs=1e-6)
