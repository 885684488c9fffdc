"""The expert network computes any polynomial, and each expert its own term."""

import pytest
import torch
from hypothesis import given, settings
from torch import Tensor

from hc_lens.hooks import Edit, captured, hooked
from hc_lens.modular.accuracy import accuracy, predictions
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.expert import ExpertNetwork, width_of_sum
from hc_lens.modular.polynomial import Polynomial, polynomial
from tests.modular.test_polynomial import polynomials

PAPER = "2*a**4*b + a**2*b**2 + 3*a*b**3"


def right(network: ExpertNetwork, target: Polynomial) -> float:
    pairs = all_pairs(target.p, target)
    return accuracy(network, pairs.numbers, pairs.target)


@settings(max_examples=20)
@given(polynomials(most=3))
def test_any_polynomial_of_three_terms(drawn: Polynomial) -> None:
    assert right(ExpertNetwork(drawn), drawn) == 1


def test_the_polynomial_of_the_paper_at_97_and_its_widths() -> None:
    found = polynomial(PAPER, 97)
    assert right(ExpertNetwork(found, n_expert=500, n_sum=2_000), found) == 1
    assert 0.95 < right(ExpertNetwork(found, n_expert=200, n_sum=500), found) < 1
    assert right(ExpertNetwork(found, beta=0.1), found) < 0.5


def test_each_expert_answers_its_own_term() -> None:
    found = polynomial(PAPER, 23)
    network, pairs = ExpertNetwork(found), all_pairs(23, found)
    with captured(network, ["hook_products"]) as seen:
        network(pairs.numbers)
    for place, term in enumerate(found.terms):
        alone = Polynomial(23, (term._replace(coefficient=1),))
        assert torch.equal(seen["hook_products"][:, place].argmax(-1), alone(pairs.a, pairs.b))

    def say_zero(products: Tensor, hook: object) -> Tensor:
        products[:, 1] = torch.eye(23)[0]
        return products

    with hooked(network, [Edit("hook_products", say_zero)]):
        without = predictions(network, pairs.numbers)
    assert torch.equal(without, Polynomial(23, (found.terms[0], found.terms[2]))(pairs.a, pairs.b))


def test_points_inside_can_be_edited() -> None:
    network = ExpertNetwork(polynomial("a*b + 1", 5))
    expected = {"experts.0.hook_pre", "experts.1.hook_post", "sum.hook_pre", "sum.hook_post", "hook_products"}
    assert expected <= set(network.hook_dict)


def test_seeds_give_other_weights_and_no_two_experts_the_same() -> None:
    found = polynomial("a*b + 2*a**3*b", 7)
    first, second = ExpertNetwork(found, seed=0), ExpertNetwork(found, seed=1)
    readouts = [network.W for each in (first, second) for network in each.experts]
    assert all(not torch.equal(a, b) for i, a in enumerate(readouts) for b in readouts[:i])
    assert not torch.equal(first.sum.W, second.sum.W)


def test_widths_and_beta() -> None:
    assert [width_of_sum(terms) for terms in (2, 3, 4, 5, 9)] == [400, 2_000, 10_000, 50_000, 50_000]
    with pytest.raises(ValueError, match=r"beta.*positive, got 0.0"):
        ExpertNetwork(polynomial("a", 3), beta=0.0)
    with pytest.raises(ValueError, match="at least 2, got 1"):
        ExpertNetwork(polynomial("a", 3), n_expert=1)
