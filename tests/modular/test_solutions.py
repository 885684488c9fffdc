"""Frequencies and phases of neurons: exact for analytic networks, the same for trained ones, absent in random ones."""

import operator
from pathlib import Path

import pytest
import torch

from hc_lens.modular.analytic import addition_network, multiplication_network
from hc_lens.modular.config import FitConfig, MlpConfig
from hc_lens.modular.learning import LearnConfig, evidence, learn, over_seeds
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.polynomial import polynomial
from hc_lens.modular.solutions import (
    addition_basis,
    multiplication_basis,
    neuron_table,
    phase_agreement,
    spectra,
)

QUICK = LearnConfig(n_neurons=150, fit=FitConfig(steps=300, lr=0.005, weight_decay=5.0, measure_every=100))


@pytest.mark.parametrize("rates", [(1, 1), (3, 5), (1, 21), (2, 7)])
def test_analytic_networks_have_the_relation_exactly(rates: tuple[int, int]) -> None:
    added = neuron_table(addition_network(23, rates, 60), addition_basis(23, rates))
    multiplied = neuron_table(multiplication_network(23, rates, 60), multiplication_basis(23, rates)).iloc[1:]
    for table in (added, multiplied):
        clear = table[(table["ipr"] > 0.99) & table["error"].notna()]
        assert len(clear) > 40
        assert clear["error"].abs().max() < 1e-3
        assert clear["same"].all()


def test_random_networks_do_not() -> None:
    table = neuron_table(ModularMlp(MlpConfig(97, 400)), addition_basis(97))
    found = phase_agreement(table, least_ipr=0.0)
    assert abs(found.error - torch.pi / 2) < 0.15
    assert found.resultant < 0.15
    assert found.same < 0.05
    assert phase_agreement(table).periodic == 0


def test_spectra_are_shares() -> None:
    network = addition_network(23, (1, 1), 40)
    shares = spectra(network, addition_basis(23))
    torch.testing.assert_close(shares.sum(0), torch.ones(40, dtype=torch.float64))
    assert shares.max(0).values.min() > 0.999


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("learned")


@pytest.mark.parametrize(("text", "rule"), [("a + b", operator.add), ("a*b", operator.mul)])
def test_trained_networks_find_the_analytic_solution(text: str, rule: object, root: Path) -> None:
    network = learn(polynomial(text, 31), QUICK, 0, root)
    assert network.test > 0.95
    right, wrong = addition_basis(31), multiplication_basis(31)
    if rule is operator.mul:
        right, wrong = wrong, right
    found = phase_agreement(neuron_table(network.model, right))
    assert found.periodic > 50
    assert found.same > 0.9
    assert found.error < 0.3
    assert found.resultant > 0.9
    assert phase_agreement(neuron_table(network.model, wrong)).periodic < 0.1 * found.periodic


def test_learnable_is_learned_and_one_more_term_is_not(root: Path) -> None:
    texts = ("(2*a + 3*b)**4", "(2*a + 3*b)**4 - a**2")
    rows = evidence([(text, polynomial(text, 23)) for text in texts], QUICK, (0, 1), root)
    assert list(rows.columns) == ["polynomial", "p", "seed", "train", "test", "majority"]
    table = over_seeds(rows).set_index("polynomial")
    assert list(table["learned"]) == [True, False]
    assert table.loc[texts[0], "test"] > 0.95
    assert table.loc[texts[1], "test"] < 0.2
    assert (table["train"] > 0.95).all()
    assert table["majority"].between(0.02, 0.25).all()
    assert (table["seeds"] == 2).all()
    again = evidence([(texts[0], polynomial(texts[0], 23))], QUICK, (0,), root)
    assert again["test"][0] == rows["test"][0]  # loaded, not trained again


def test_a_basis_of_another_size_is_refused() -> None:
    with pytest.raises(ValueError, match="2 rates is not that of a network of 3 inputs"):
        neuron_table(addition_network(7, (1, 1, 1), 20), addition_basis(7))
