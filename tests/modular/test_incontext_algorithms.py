"""The two exact oracles solve what they must by construction, and nothing else; agreement tells them apart."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.modular.incontext.algorithms import agreement, changed_match, modular_regression, ratio_matching
from hc_lens.modular.incontext.sequences import answers_of, as_tokens, examples_of


@st.composite
def _sequences(draw: st.DrawFn) -> tuple[torch.Tensor, int]:
    """Any examples of any tasks, repeated ones and zeros included."""
    p = draw(st.sampled_from([2, 3, 5, 7, 11, 13]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    n_shots = draw(st.integers(1, 8))
    examples = torch.randint(p, (16, n_shots, 2), generator=generator)
    return as_tokens(torch.randint(p, (16, 2), generator=generator), examples, p), p


def _span(examples: list[list[int]], p: int) -> set[tuple[int, int]]:
    """All combinations of the examples, by brute force."""
    found = {(0, 0)}
    for x, y in examples:
        found = {((u + c * x) % p, (v + c * y) % p) for u, v in found for c in range(p)}
    return found


@settings(max_examples=20)
@given(_sequences())
def test_ratio_matching_answers_the_multiples_of_earlier_examples_and_is_right(given_: tuple[torch.Tensor, int]) -> None:
    tokens, p = given_
    found = ratio_matching(tokens, p)
    for row, examples in enumerate(examples_of(tokens).tolist()):
        for shot, (x, y) in enumerate(examples):
            lines = {((c * u) % p, (c * v) % p) for u, v in examples[:shot] for c in range(p)}
            assert bool(found.answered[row, shot]) == ((x, y) in lines)
    assert (found.values == answers_of(tokens))[found.answered].all()
    assert not found.values[~found.answered].any()


@settings(max_examples=20)
@given(_sequences())
def test_regression_answers_all_that_the_examples_span_and_is_right(given_: tuple[torch.Tensor, int]) -> None:
    tokens, p = given_
    found = modular_regression(tokens, p)
    for row, examples in enumerate(examples_of(tokens).tolist()):
        for shot, (x, y) in enumerate(examples):
            expected = shot > 0 and (x, y) in _span(examples[:shot], p)
            assert bool(found.answered[row, shot]) == expected
    assert (found.values == answers_of(tokens))[found.answered].all()


def test_after_k_independent_lines_ratio_matching_covers_their_union_and_regression_everything() -> None:
    p = 7
    context = [[1, 0], [0, 1], [1, 1]]
    queries = [[x, y] for x in range(p) for y in range(p)]
    examples = torch.tensor([[*context, query] for query in queries])
    tokens = as_tokens(torch.tensor([[3, 5]] * len(queries)), examples, p)
    assert int(ratio_matching(tokens, p).answered[:, -1].sum()) == 1 + 3 * (p - 1)
    assert modular_regression(tokens, p).answered[:, -1].all()


def test_agreement_of_each_oracle_with_itself() -> None:
    p = 5
    generator = torch.Generator().manual_seed(0)
    tokens = as_tokens(torch.randint(p, (400, 2), generator=generator), torch.randint(p, (400, 5, 2), generator=generator), p)
    ratio = agreement(ratio_matching(tokens, p).values, tokens, p).set_index(["queries", "shot"])
    regression = agreement(modular_regression(tokens, p).values, tokens, p).set_index(["queries", "shot"])
    assert ratio.loc[("ratio matching", 5), "agreement"] == regression.loc[("ratio matching", 5), "agreement"] == 1
    assert regression.loc[("regression alone", 5), "agreement"] == 1
    assert ratio.loc[("regression alone", 5), "agreement"] < 0.4  # it answers 0, which is right by chance
    shares = ratio["share"].unstack("queries")
    assert (shares["ratio matching"] + shares["regression alone"] + shares["neither"]).to_numpy() == pytest.approx(
        1.0, abs=1e-6
    )
    assert (shares["regression"] - shares["ratio matching"] - shares["regression alone"]).to_numpy() == pytest.approx(
        0.0, abs=1e-6
    )
    assert shares.loc[1, "neither"] == 1.0


def test_a_changed_match_moves_ratio_matching_and_not_the_rest_of_the_examples() -> None:
    p = 7
    generator = torch.Generator().manual_seed(1)
    tokens = as_tokens(torch.randint(p, (500, 2), generator=generator), torch.randint(p, (500, 6, 2), generator=generator), p)
    found = changed_match(tokens, p)
    assert 50 < len(found.tokens) < 500
    assert (ratio_matching(found.tokens, p).values[:, -1] == found.changed).all()
    assert (found.changed != found.original).all()
    assert (answers_of(found.tokens)[:, -1] == found.original).all()
    examples, z = examples_of(found.tokens), answers_of(found.tokens)
    for row in range(20):  # the examples that are no multiple of the query give the original answer
        query = examples[row, -1].tolist()
        rest = [
            (pair, answer)
            for pair, answer in zip(examples[row, :-1].tolist(), z[row, :-1].tolist(), strict=True)
            if (pair[0] * query[1] - pair[1] * query[0]) % p
        ]
        tasks = [(a, b) for a in range(p) for b in range(p) if all((a * x + b * y) % p == t for (x, y), t in rest)]
        assert [(a * query[0] + b * query[1]) % p for a, b in tasks] == [int(found.original[row])]
