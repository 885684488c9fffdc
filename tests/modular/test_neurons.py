"""Subnetworks over neurons: set algebra, what edits do to a network by hand, files, refusal of another network's."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.hooks import captured, hooked
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.config import MlpConfig, TransformerConfig
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.networks import answers, new_network
from hc_lens.modular.neurons import Neurons
from hc_lens.subnetwork import SubnetworkError

P, N = 5, 6
MODEL = ModularMlp(MlpConfig(P, N), seed=0)
OTHER = ModularMlp(MlpConfig(P, N), seed=1)
NUMBERS = all_pairs(P).numbers
masks = st.lists(st.booleans(), min_size=N, max_size=N).map(torch.tensor)


@given(masks, masks)
def test_operators_are_set_operations_on_the_kept_neurons(a, b):
    x, y = Neurons.of(MODEL, a), Neurons.of(MODEL, b)
    assert (x & y).kept == x.kept & y.kept
    assert (x | y).kept == x.kept | y.kept
    assert (x - y).kept == x.kept - y.kept
    assert (~x).kept == x.closed == frozenset(range(N)) - x.kept
    assert x.sparsity == len(x.closed) / N
    assert (x == y) == (x.kept == y.kept)
    assert hash(x) == hash(Neurons.of(MODEL, a.clone()))


@given(masks)
def test_zero_behind_a_neuron_is_the_network_without_it(mask):
    with hooked(MODEL, Neurons.of(MODEL, mask).edits()), torch.no_grad():
        found = answers(MODEL, NUMBERS)
    expected = torch.zeros(P * P, P)
    if mask.any():
        expected = ModularMlp.with_weights(MODEL.U.detach()[:, :, mask], MODEL.W.detach()[mask])(NUMBERS).detach()
    torch.testing.assert_close(found, expected)


def test_all_neurons_are_the_full_network():
    whole = Neurons.all_of(MODEL)
    assert whole.sparsity == 0
    with hooked(MODEL, whole.edits()), torch.no_grad():
        found = answers(MODEL, NUMBERS)
    assert torch.equal(found, MODEL(NUMBERS).detach())


@pytest.mark.parametrize("model", [MODEL, new_network(TransformerConfig(P, 8, 2), seed=0)])
def test_ablation_puts_the_reference_in_place(model):
    means = torch.arange(1.0, 1.0 + Neurons.all_of(model).mask.numel())
    neurons = Neurons.all_of(model, means).without(2)
    with torch.no_grad(), captured(model, [neurons.point]) as full:
        answers(model, NUMBERS)
    with torch.no_grad(), hooked(model, neurons.edits()), captured(model, [neurons.point]) as edited:
        answers(model, NUMBERS)
    before, after = full[neurons.point], edited[neurons.point]
    assert torch.equal(after[..., 2], means[2].expand_as(after[..., 2]))
    assert torch.equal(after[..., 3:], before[..., 3:])


def test_without_names_neurons_and_refuse_strangers():
    neurons = Neurons.all_of(MODEL).without(1, 4)
    assert neurons.kept == {0, 2, 3, 5}
    assert "neurons" in str(neurons.provenance["made by"])
    with pytest.raises(SubnetworkError, match=r"neuron 6 is not in this network: neurons are 0\.\.5"):
        neurons.without(6)


def test_files_hold_everything_and_are_checked(tmp_path):
    neurons = Neurons.of(MODEL, torch.tensor([True] * 5 + [False]), torch.arange(6.0), seed=7)
    file = neurons.save(tmp_path / "neurons.safetensors")
    found = Neurons.load(file, MODEL)
    assert found == neurons
    assert (found.seed, found.point) == (7, "hook_post")
    assert torch.equal(found.reference, torch.arange(6.0))
    with pytest.raises(SubnetworkError, match="these neurons are of the network"):
        Neurons.load(file, OTHER)
    with pytest.raises(SubnetworkError, match="does not exist"):
        Neurons.load(tmp_path / "nothing.safetensors")
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(SubnetworkError, match="does not hold a subnetwork of neurons"):
        Neurons.load(file)


def test_neurons_of_different_networks_do_not_mix():
    with pytest.raises(SubnetworkError, match="different networks"):
        Neurons.all_of(MODEL) & Neurons.all_of(OTHER)
    with pytest.raises(SubnetworkError, match="stand-ins"):
        Neurons.all_of(MODEL) | Neurons.all_of(MODEL, torch.ones(N))
    with pytest.raises(SubnetworkError, match="a mask of 3 places is not one of this network, which has 6 neurons"):
        Neurons.of(MODEL, torch.tensor([True, False, True]))
