"""Every formula of the hard-concrete protocol against numbers worked out by hand, and the masks cut from trained gates."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.gates import HardConcrete, discretise, gate_edits, top_k, two_stage, undecided
from hc_lens.hooks import hooked
from hc_lens.means import ActivationMeans
from tests.micro import micro_model

CONCRETE = HardConcrete()


@pytest.mark.parametrize(
    ("log_alpha", "u", "gate"),
    [
        # s = sigmoid((ln u - ln(1 - u) + a) / (2/3)), g = clip(1.2 s - 0.1, 0, 1)
        (0.0, 0.5, 0.5),
        (0.0, 0.75, 1.2 * 3**1.5 / (1 + 3**1.5) - 0.1),  # sigmoid(1.5 ln 3)
        (-2.0, 0.5, 0.0),  # sigmoid(-3) = 0.0474 -> -0.043 -> 0
        (2.0, 0.5, 1.0),  # sigmoid(3) = 0.9526 -> 1.043 -> 1
        (1.0, 0.5, 1.2 / (1 + math.exp(-1.5)) - 0.1),
    ],
)
def test_sample_by_hand(log_alpha, u, gate):
    assert CONCRETE.sample(torch.tensor(log_alpha), torch.tensor(u)).item() == pytest.approx(gate, abs=1e-6)


def test_p_closed_is_the_protocols_sigmoid():
    # beta ln(0.1 / 1.1) = (2/3)(-2.3978953) = -1.5985969
    a = torch.tensor([-3.0, -1.5985969, 0.0, 10.0], dtype=torch.float64)
    expected = [1 / (1 + math.exp(1.5985969 + x)) for x in a.tolist()]
    assert CONCRETE.p_closed(a).tolist() == pytest.approx(expected, abs=1e-7)
    assert CONCRETE.p_closed(a)[1].item() == pytest.approx(0.5, abs=1e-7)
    assert torch.equal(CONCRETE.p_open(a), 1 - CONCRETE.p_closed(a))


@pytest.mark.parametrize("log_alpha", [-2.5, -1.0, 0.0, 1.0])
def test_p_closed_is_the_frequency_of_closed_draws(log_alpha):
    u = CONCRETE.noise((200_000,), torch.Generator().manual_seed(0))
    closed = (CONCRETE.sample(torch.full_like(u, log_alpha), u) == 0).float().mean()
    assert closed.item() == pytest.approx(CONCRETE.p_closed(torch.tensor(log_alpha)).item(), abs=0.005)


def test_noise_stays_inside_eps_and_repeats():
    u = CONCRETE.noise((10_000,), torch.Generator().manual_seed(3))
    assert u.min() >= 1e-6
    assert u.max() <= 1 - 1e-6
    assert torch.equal(u, CONCRETE.noise((10_000,), torch.Generator().manual_seed(3)))


def test_deterministic_gate_by_hand():
    assert CONCRETE.deterministic(torch.tensor([-5.0, 0.0, 5.0])).tolist() == pytest.approx([0.0, 0.5, 1.0])


def test_gradient_at_the_start_of_the_paper_recipe_is_almost_always_zero():
    """At log_alpha = 10 nearly every draw is clipped at 1: why gates move only by weight decay there."""
    a = torch.full((10_000,), 10.0, requires_grad=True)
    CONCRETE.sample(a, CONCRETE.noise((10_000,), torch.Generator().manual_seed(0))).sum().backward()
    assert (a.grad != 0).float().mean() < 0.001


def collected(model):
    ids = torch.tensor([[1, 2, 0, 1], [2, 2, 1, 1]])
    return ActivationMeans.collect(model, ids), ids


@torch.no_grad()
def test_open_gates_equal_the_full_model_and_closed_gates_equal_mean_ablation():
    model = micro_model()
    means, ids = collected(model)
    mask = torch.ones_like(ids)
    full = model(ids, mask)
    with hooked(model, gate_edits(means, torch.ones(1, 2, 3))):
        assert torch.equal(model(ids, mask), full)
    with hooked(model, gate_edits(means, torch.zeros(1, 2, 3))):
        closed = model(ids, mask)
    # All units at their means: the score is (sum of weight * mean) * positions, the same for every row.
    by_hand = (model.weights * means_by_hand(model, ids)).sum() * 4
    assert torch.allclose(closed[:, 0], by_hand.expand(2))


def means_by_hand(model, ids):
    return model.values[:, :, ids.flatten()].mean(-1)


@torch.no_grad()
def test_runs_of_one_batch_get_their_own_gates():
    model = micro_model()
    means, ids = collected(model)
    gates = torch.rand(3, 2, 3, generator=torch.Generator().manual_seed(1))
    with hooked(model, gate_edits(means, gates)):
        together = model(ids.repeat(3, 1), torch.ones(6, 4, dtype=torch.long))
    for run in range(3):
        with hooked(model, gate_edits(means, gates[run : run + 1])):
            alone = model(ids, torch.ones_like(ids))
        assert torch.allclose(together[2 * run : 2 * run + 2], alone)


def test_gate_gradient_equals_finite_differences():
    model = micro_model().double()
    means, ids = collected(model)
    gates = torch.rand(1, 2, 3, dtype=torch.float64, requires_grad=True)

    def score(g):
        with hooked(model, gate_edits(means, g)):
            return model(ids, torch.ones_like(ids))[:, 0].square().sum()

    assert torch.autograd.gradcheck(score, (gates,))


def test_gates_of_another_shape_are_refused():
    means, _ = collected(micro_model())
    with pytest.raises(ValueError, match=r"gates have \(3, 3\) \(layer, unit\); these means belong to a model with \(2, 3\)"):
        gate_edits(means, torch.ones(1, 3, 3))


@given(st.integers(1, 4), st.integers(1, 6), st.floats(0.01, 0.99), st.integers(0, 1000))
@settings(max_examples=60)
def test_top_k_hits_the_target_exactly_and_keeps_the_largest(layers, units, sparsity, seed):
    log_alpha = torch.randn(2, layers, units, generator=torch.Generator().manual_seed(seed))
    mask = top_k(log_alpha, sparsity)
    n = layers * units
    assert mask.flatten(1).sum(1).tolist() == [n - round(sparsity * n)] * 2
    for run in range(2):
        if mask[run].any() and not mask[run].all():
            assert log_alpha[run][mask[run]].min() >= log_alpha[run][~mask[run]].max()


def test_two_stage_by_hand():
    # One layer, three heads, one MLP. P(g=0) = sigmoid(-1.5986 - a): a = -6 -> .988, 0 -> .168, 6 -> .0005; heads' sum 1.157
    # -> n0 = 1.
    log_alpha = torch.tensor([[[-6.0, 0.0, 6.0, 6.0]]])
    # Target 0.5: n0 closes head 0; tau must also close head 1 (score sigmoid(0) = .5), but not the scores of .999.
    assert two_stage(log_alpha, 3, 0.5, CONCRETE).tolist() == [[[False, False, True, True]]]
    # Target 0.25: head 0 alone, the grid stays below head 1's score.
    assert two_stage(log_alpha, 3, 0.25, CONCRETE).tolist() == [[[False, True, True, True]]]
    # Target 0.05 cannot reopen what n0 closed: that is why the paper's "50 %" runs realise .455-.532.
    assert two_stage(log_alpha, 3, 0.05, CONCRETE).tolist() == [[[False, True, True, True]]]


def test_discretise_picks_the_rule():
    log_alpha = torch.tensor([[[-6.0, 0.0, 6.0, 6.0]]])
    assert torch.equal(discretise(log_alpha, 0.25, "top_k"), top_k(log_alpha, 0.25))
    assert torch.equal(discretise(log_alpha, 0.05, "two_stage"), two_stage(log_alpha, 3, 0.05, CONCRETE))


def test_undecided_share():
    assert undecided(torch.tensor([[[1.5, -1.5], [1.7, -9.0]]])).tolist() == [0.5]
