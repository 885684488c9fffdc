"""IPR in closed form, and the basis of discrete logarithms."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.modular.spectrum import discrete_logs, in_log_basis, ipr, power_spectrum, primitive_root

P = 13
NUMBERS = torch.arange(P, dtype=torch.float64)


def cosine(k, phase=0.0, amplitude=1.0):
    return (amplitude * torch.cos(2 * torch.pi * k * NUMBERS / P + phase)).unsqueeze(1)


@given(st.integers(1, P - 1), st.floats(-4, 4), st.floats(1e-12, 1e6))
def test_the_ipr_of_a_cosine_is_1_at_any_frequency_phase_and_amplitude(k, phase, amplitude):
    torch.testing.assert_close(ipr(cosine(k, phase, amplitude)), torch.ones(1, dtype=torch.float64))


@given(st.integers(1, 6), st.integers(1, 6), st.floats(0.1, 10))
def test_the_ipr_of_two_cosines_follows_their_powers(j, k, ratio):
    """Powers 1 and r^2: (1 + r^4) / (1 + r^2)^2, if the frequencies differ."""
    expected = 1.0 if j == k else (1 + ratio**4) / (1 + ratio**2) ** 2
    found = ipr(cosine(j) + ratio * cosine(k))
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))


def test_the_ipr_of_one_number_alone_is_one_over_the_frequencies():
    single = torch.zeros(P, 1, dtype=torch.float64)
    single[4] = 3.0
    torch.testing.assert_close(ipr(single), torch.tensor([1 / 7], dtype=torch.float64))  # 0..6


def test_a_constant_has_ipr_1_unless_its_mean_is_left_out():
    constant = torch.full((P, 1), 2.5)
    assert float(ipr(constant)) == pytest.approx(1)
    mixed = 2.5 + cosine(3)
    assert float(ipr(mixed)) < 0.99
    assert float(ipr(mixed, drop_mean=True)) == pytest.approx(1)


def test_a_dead_neuron_has_ipr_0_and_a_dying_one_keeps_its_own():
    weights = torch.cat([torch.zeros(P, 1), cosine(2, amplitude=1e-30).float()], dim=1)
    assert ipr(weights).tolist() == pytest.approx([0, 1])


def test_random_weights_have_a_low_ipr():
    assert float(ipr(torch.randn(97, 1000)).mean()) == pytest.approx(0.04, abs=0.005)


def test_the_spectrum_is_that_of_the_definition():
    weights = torch.randn(P, 3, dtype=torch.float64)
    k = torch.arange(P // 2 + 1, dtype=torch.float64)
    waves = torch.exp(-2j * torch.pi * torch.outer(k, NUMBERS) / P)
    torch.testing.assert_close(power_spectrum(weights), (waves @ weights.to(torch.complex128)).abs().square())


@pytest.mark.parametrize(("p", "g"), [(2, 1), (3, 2), (7, 3), (23, 5), (41, 6), (97, 5)])
def test_primitive_roots(p, g):
    assert primitive_root(p) == g


@pytest.mark.parametrize("p", [2, 3, 7, 41])
def test_logs_undo_powers(p):
    g, logs = primitive_root(p), discrete_logs(p)
    assert logs[0] == -1
    assert [pow(g, int(log), p) for log in logs[1:]] == list(range(1, p))


def test_multiplication_is_addition_of_logs():
    logs = discrete_logs(11)
    for a in range(1, 11):
        for b in range(1, 11):
            assert logs[a * b % 11] == (logs[a] + logs[b]) % 10


def test_a_wave_over_logs_is_periodic_in_their_basis_only():
    p = 23
    wave = torch.zeros(p, 1)
    logs = discrete_logs(p)
    wave[1:, 0] = torch.cos(2 * torch.pi * 4 * logs[1:] / (p - 1) + 0.3)
    assert float(ipr(in_log_basis(wave))) == pytest.approx(1, abs=1e-5)
    assert float(ipr(wave)) < 0.3


def test_logs_need_a_prime():
    with pytest.raises(ValueError, match="p must be a prime, got 8"):
        discrete_logs(8)
