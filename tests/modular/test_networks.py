"""Networks by hand at p = 3, beside autograd, and beside the one-hot form."""

import pytest
import torch
from torch.nn import functional
from transformer_lens import HookedTransformer

from hc_lens.hooks import captured
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.config import MlpConfig, TransformerConfig
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.networks import answers, neuron_count, neuron_point, neuron_weights, new_network
from hc_lens.modular.training import loss_of, targets_of

P = 3
U = [[1.0, -0.5, 0.25], [0.5, 2.0, -1.0]]  # one neuron: a table for each term
W = [0.3, -0.2, 0.7]


def micro(activation="power"):
    tables = torch.tensor(U, dtype=torch.float64).unsqueeze(2)
    return ModularMlp.with_weights(tables, torch.tensor([W], dtype=torch.float64), activation)


def test_the_forward_pass_by_hand():
    given = micro()(torch.tensor([[0, 1], [2, 2]]))  # (1 + 2)^2 = 9, (0.25 - 1)^2 = 0.5625
    expected = [[9 * w for w in W], [0.5625 * w for w in W]]
    torch.testing.assert_close(given, torch.tensor(expected, dtype=torch.float64))


def test_the_gradients_by_hand():
    """d/dW_q = sum 2 (y_q - t_q) h^2 / (9 3) and d/dU_m = sum 2 (y_q - t_q) W_q 2 h / (9 3), over pairs and answers."""
    model, pairs = micro(), all_pairs(P)
    loss_of(model(pairs.numbers), targets_of(pairs.target, P, "mse").double()).backward()
    d_w, d_u = [0.0] * P, [[0.0] * P, [0.0] * P]
    for a in range(P):
        for b in range(P):
            h = U[0][a] + U[1][b]
            for q in range(P):
                off = 2 * (W[q] * h**2 - float(q == (a + b) % P)) / (P * P * P)
                d_w[q] += off * h**2
                d_u[0][a] += off * W[q] * 2 * h
                d_u[1][b] += off * W[q] * 2 * h
    torch.testing.assert_close(model.W.grad, torch.tensor([d_w], dtype=torch.float64))
    torch.testing.assert_close(model.U.grad, torch.tensor(d_u, dtype=torch.float64).unsqueeze(2))


@pytest.mark.parametrize("activation", ["power", "relu", "gelu"])
@pytest.mark.parametrize("terms", [1, 2, 3])
def test_looking_up_equals_the_one_hot_product(activation, terms):
    p = 5
    model = ModularMlp(MlpConfig(p, 7, terms, activation), seed=3)
    numbers = torch.cartesian_prod(*[torch.arange(p)] * terms).view(-1, terms)
    h = functional.one_hot(numbers, p).float().flatten(1) @ model.U.flatten(0, 1)
    phi = {"power": h**terms, "relu": h.clamp(min=0), "gelu": functional.gelu(h)}[activation]
    expected = phi @ model.W
    torch.testing.assert_close(model(numbers), expected)
    targets = targets_of(numbers.sum(1) % p, p, "mse")
    ours = torch.autograd.grad(loss_of(model(numbers), targets), [model.U, model.W])
    theirs = torch.autograd.grad(loss_of(expected, targets), [model.U, model.W])
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b)


def test_weights_have_the_protocols_size_and_their_seed():
    model = ModularMlp(MlpConfig(97, 500), seed=1)
    for weight in (model.U, model.W):
        assert float(weight.detach().std()) == pytest.approx(0.05, rel=0.02)
    assert torch.equal(model.U, ModularMlp(MlpConfig(97, 500), seed=1).U)
    assert not torch.equal(model.U, ModularMlp(MlpConfig(97, 500), seed=2).U)


def test_a_mixture_of_numbers_goes_in_by_its_pre_activations():
    model = micro()
    mixed = 0.5 * model.U[0, 0] + 0.5 * model.U[0, 1] + model.U[1, 2]
    expected = (0.25 - 1.0) ** 2 * torch.tensor([W], dtype=torch.float64)
    torch.testing.assert_close(model.readout(mixed.unsqueeze(0)), expected)


def test_dropout_and_batch_norm_are_where_the_protocol_has_them():
    torch.manual_seed(0)
    config = MlpConfig(5, 400, dropout=0.5, batch_norm=True)
    model, numbers = ModularMlp(config), all_pairs(5).numbers
    model.train()
    with captured(model, ["hook_pre", "hook_post"]) as seen:
        model(numbers)
    assert torch.allclose(seen["hook_pre"], model.U[0][numbers[:, 0]] + model.U[1][numbers[:, 1]])
    torch.testing.assert_close(seen["hook_post"].mean(0), torch.zeros(400), atol=1e-4, rtol=0)  # after the norm
    model.norm = torch.nn.Identity()
    with captured(model, ["hook_post"]) as seen:
        model(numbers)
    assert float((seen["hook_post"] == 0).float().mean()) == pytest.approx(0.5, abs=0.03)
    model.eval()
    with captured(model, ["hook_post"]) as seen:
        model(numbers)
    assert float((seen["hook_post"] == 0).float().mean()) == 0


def test_the_transformer_answers_at_the_second_number_by_hand():
    config = TransformerConfig(3, d_model=4, n_heads=2)
    model = new_network(config, seed=0)
    assert isinstance(model, HookedTransformer)
    numbers = all_pairs(3).numbers
    with torch.no_grad():
        x = model.W_E[numbers] + model.W_pos
        block = model.blocks[0]
        q, k, v = (torch.einsum("npd,hde->nhpe", x, w) for w in (model.W_Q[0], model.W_K[0], model.W_V[0]))
        pattern = (q @ k.transpose(-1, -2) / 2**0.5).softmax(-1)  # both ways: no mask
        x = x + torch.einsum("nhpe,hed->npd", pattern @ v, model.W_O[0])
        x = x + torch.relu(x @ block.mlp.W_in) @ block.mlp.W_out  # biases start at zero
        torch.testing.assert_close(answers(model, numbers), x[:, -1] @ model.W_U, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("config", [MlpConfig(5, 6), TransformerConfig(5, d_model=8, n_heads=2)])
def test_neurons_and_their_weights_are_found_in_either_network(config):
    model = new_network(config, seed=0)
    n = neuron_count(model)
    with captured(model, [neuron_point(model)]) as seen:
        assert answers(model, all_pairs(5).numbers).shape == (25, 5)
    assert seen[neuron_point(model)].shape[-1] == n
    assert all(weights.shape == (5, n) for weights in neuron_weights(model))


def test_building_a_network_leaves_the_global_random_state_alone():
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    a = new_network(TransformerConfig(5, 8, 2), seed=1)
    assert torch.equal(torch.rand(1), expected)
    assert torch.equal(a.W_E, new_network(TransformerConfig(5, 8, 2), seed=1).W_E)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: MlpConfig(9, 5), "p must be a prime, got 9"),
        (lambda: MlpConfig(5, 0), "n_neurons and terms must be at least 1, got 0 and 2"),
        (lambda: MlpConfig(5, 5, dropout=1.0), r"dropout must be in \[0, 1\), got 1.0"),
        (lambda: TransformerConfig(6), "p must be a prime, got 6"),
        (lambda: TransformerConfig(5, d_model=10, n_heads=4), "n_heads must divide d_model"),
    ],
)
def test_impossible_networks_are_refused(make, told):
    with pytest.raises(ValueError, match=told):
        make()
