"""Analytic networks: right on every input, for any prime, coefficients and exponents, at the widths of the protocol."""

import operator

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hc_lens.hooks import Edit, captured, hooked
from hc_lens.modular.accuracy import accuracy, predictions
from hc_lens.modular.analytic import addition_network, multiplication_network
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.polynomial import power_table
from hc_lens.modular.spectrum import in_log_basis, ipr

PRIMES = (2, 3, 5, 7, 11, 13)


def tuples(p: int, terms: int) -> Tensor:
    """Every tuple of numbers modulo p."""
    return torch.cartesian_prod(*[torch.arange(p)] * terms).view(-1, terms)


@settings(max_examples=25)
@given(p=st.sampled_from(PRIMES), coefficients=st.lists(st.integers(-20, 20), min_size=1, max_size=2), seed=st.integers(0, 99))
def test_addition_is_right_for_every_pair(p: int, coefficients: list[int], seed: int) -> None:
    numbers = tuples(p, len(coefficients))
    target = (numbers * torch.tensor(coefficients)).sum(1) % p
    assert accuracy(addition_network(p, coefficients, 500, seed), numbers, target) == 1


@settings(max_examples=25)
@given(p=st.sampled_from(PRIMES), exponents=st.lists(st.integers(0, 15), min_size=1, max_size=2), seed=st.integers(0, 99))
def test_multiplication_is_right_for_every_pair_zeros_included(p: int, exponents: list[int], seed: int) -> None:
    numbers = tuples(p, len(exponents))
    factors = [power_table(exponent, p)[numbers[:, i]] for i, exponent in enumerate(exponents)]
    target = torch.stack(factors).prod(0) % p
    assert accuracy(multiplication_network(p, exponents, 500, seed), numbers, target) == 1


def test_the_width_that_pairs_need_at_97() -> None:
    added, multiplied = all_pairs(97), all_pairs(97, operator.mul)
    assert accuracy(addition_network(97, (1, 1), 200), added.numbers, added.target) == 1
    assert accuracy(multiplication_network(97, (1, 1), 200), multiplied.numbers, multiplied.target) == 1
    assert accuracy(addition_network(97, (1, 1), 50), added.numbers, added.target) < 0.95


@pytest.mark.parametrize(
    ("terms", "n_neurons", "least"),
    [(3, 1_000, 1.0), (4, 5_000, 0.995), pytest.param(5, 20_000, 0.97, marks=pytest.mark.slow)],
)
def test_the_width_grows_with_the_terms(terms: int, n_neurons: int, least: float) -> None:
    numbers = torch.randint(23, (1_000, terms), generator=torch.Generator().manual_seed(0))
    target = numbers.sum(1) % 23
    assert accuracy(addition_network(23, (1,) * terms, n_neurons), numbers, target) >= least
    assert accuracy(addition_network(23, (1,) * terms, n_neurons // 10), numbers, target) < least - 0.05


def test_the_right_answer_has_logit_one_and_the_others_zero() -> None:
    pairs = all_pairs(7)
    logits = addition_network(7, (1, 1), 200_000)(pairs.numbers)
    torch.testing.assert_close(logits, torch.nn.functional.one_hot(pairs.target, 7).float(), atol=0.03, rtol=0)


def test_every_neuron_is_periodic_in_its_basis_and_only_there() -> None:
    added, multiplied = addition_network(97, (3, 5), 60), multiplication_network(97, (1, 7), 60)
    assert ipr(added.U[1].detach()).min() > 1 - 1e-4
    assert ipr(in_log_basis(multiplied.U[1].detach())[:, 1:]).min() > 1 - 1e-4
    assert ipr(multiplied.U[1].detach()[:, 1:]).median() < 0.1


def test_zero_is_the_business_of_one_neuron() -> None:
    network = multiplication_network(11, (2, 1), 300)
    pairs = all_pairs(11, operator.mul)
    with captured(network, ["hook_post"]) as seen:
        network(pairs.numbers)
    assert torch.equal(seen["hook_post"][:, 0] > 0, pairs.target == 0)

    def silence(post: Tensor, hook: object) -> Tensor:
        return post.index_fill(1, torch.tensor([0]), 0.0)

    with hooked(network, [Edit("hook_post", silence)]):
        found = predictions(network, pairs.numbers)
    assert (found[pairs.target == 0] == 0).double().mean() < 0.5
    assert (found != 0)[pairs.target != 0].all()


def test_by_hand_modulo_3() -> None:
    """One neuron of frequency 1: f_q = A^3 (cos(2 pi a / 3 + x) + cos(2 pi b / 3 + y))^2 cos(2 pi q / 3 + x + y)."""
    network = addition_network(3, (1, 1), 1, seed=5)
    amplitude = 2 ** (1 / 3)
    waves = network.U.detach()[:, :, 0] / amplitude
    turns = 2 * torch.pi * torch.arange(3) / 3
    phases = [torch.atan2(-(wave * turns.sin()).sum(), (wave * turns.cos()).sum()) for wave in waves]
    readout = amplitude**3 * torch.cos(turns + phases[0] + phases[1])
    for a, b in tuples(3, 2).tolist():
        expected = (torch.cos(turns[a] + phases[0]) + torch.cos(turns[b] + phases[1])) ** 2 * readout
        torch.testing.assert_close(network(torch.tensor([[a, b]]))[0], expected)


def test_bad_input_is_named() -> None:
    with pytest.raises(ValueError, match="prime, got 12"):
        addition_network(12, (1, 1), 100)
    with pytest.raises(ValueError, match="at least one coefficient"):
        addition_network(7, (), 100)
    with pytest.raises(ValueError, match="negative, got -2"):
        multiplication_network(7, (1, -2), 100)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        multiplication_network(7, (1, 1), 1)
