"""Networks of known weights that add and multiply modulo a prime (Doshi, He, Das and Gromov 2024, arXiv 2406.03495).

Every neuron computes with one frequency. In the power of the sum of its S cosines only one term has a phase that the output
weight cancels, cos(2 pi sigma (c_1 n_1 + ... + c_S n_S - q) / p); over all neurons it adds up to 1 at the right answer q and 0
elsewhere. The other terms have random phases and add up to noise of the order 1 / sqrt(N), times what grows with S.
"""

from collections.abc import Sequence
from math import factorial, pi

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hc_lens.modular.limits import require_prime
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.polynomial import power_table
from hc_lens.modular.spectrum import discrete_logs


def addition_network(p: int, coefficients: Sequence[int], n_neurons: int, seed: int = 0) -> ModularMlp:
    """(c_1 n_1 + ... + c_S n_S) mod p, with activation x^S (section 3, equation 2).

    Exact for all inputs at p = 97 with 200 neurons for S = 2; each further term asks for about five times as many.

    Raises:
        ValueError: if `p` is not a prime, there is no coefficient, or `n_neurons` is not positive.
    """
    _require(p, len(coefficients), n_neurons, least=1)
    sigma, phases = _draw(len(coefficients), n_neurons, seed)
    numbers = torch.arange(p)
    tables = [_waves(sigma, c * numbers % p, p, phase) for c, phase in zip(coefficients, phases, strict=True)]
    readout = _waves(sigma, -numbers % p, p, -phases.sum(0))
    amplitude = _amplitude(len(coefficients), n_neurons)
    return ModularMlp.with_weights((amplitude * torch.stack(tables)).float(), (amplitude * readout.T).float().contiguous())


def multiplication_network(p: int, exponents: Sequence[int], n_neurons: int, seed: int = 0) -> ModularMlp:
    """n_1^e_1 ... n_S^e_S mod p, with activation x^S: an addition network over discrete logarithms (section 4).

    Zero has no logarithm: it is the business of neuron 0, which hears only zeros and says only zero. n^0 is 1, also for 0. The
    amplitude is (2 / (N - 1))^(1/3) for two numbers; with the printed exponent -1/3 the other neurons' noise drowns neuron 0.

    Raises:
        ValueError: if `p` is not a prime, there is no exponent, one is negative, or there are fewer than 2 neurons.
    """
    _require(p, len(exponents), n_neurons, least=2)
    if negative := [exponent for exponent in exponents if exponent < 0]:
        raise ValueError(f"exponents must not be negative, got {negative[0]} in {list(exponents)}")
    sigma, phases = _draw(len(exponents), n_neurons - 1, seed)
    amplitude = _amplitude(len(exponents), n_neurons - 1)
    logs = discrete_logs(p)[1:]
    once = [_with_zero(amplitude * _waves(sigma, logs, p - 1, phase)) for phase in phases]
    tables = torch.stack([table[power_table(exponent, p)] for exponent, table in zip(exponents, once, strict=True)])
    readout = _with_zero(amplitude * _waves(sigma, -logs, p - 1, -phases.sum(0)))
    return ModularMlp.with_weights(tables.float(), readout.T.float().contiguous())


def _waves(
    sigma: Int[Tensor, " neuron"], places: Int[Tensor, " place"], period: int, phase: Float[Tensor, " neuron"]
) -> Float[Tensor, "place neuron"]:
    """cos(2 pi sigma place / period + phase), in float64; the product is reduced first, so that large N costs no precision."""
    turns = (places[:, None] * sigma % period).double() / period
    return torch.cos(2 * pi * turns + phase)


def _with_zero(waves: Float[Tensor, "place neuron"]) -> Float[Tensor, "place+1 neuron+1"]:
    """The rows of 1..p-1, with a row for 0 in front and a neuron in front that has weight 1 there and nowhere else."""
    table = torch.nn.functional.pad(waves, (1, 0, 1, 0))
    table[0, 0] = 1
    return table


def _draw(terms: int, n_neurons: int, seed: int) -> tuple[Int[Tensor, " neuron"], Float[Tensor, "term neuron"]]:
    """A random order of the frequencies 1..N, which count modulo the period, and uniform phases."""
    generator = torch.Generator().manual_seed(seed)
    sigma = 1 + torch.randperm(n_neurons, generator=generator)
    return sigma, 2 * pi * torch.rand(terms, n_neurons, generator=generator, dtype=torch.float64) - pi


def _amplitude(terms: int, n_neurons: int) -> float:
    """(2^S / (N S!))^(1 / (S + 1)), with which the right answer gets logit 1."""
    return (2**terms / (n_neurons * factorial(terms))) ** (1 / (terms + 1))


def _require(p: int, terms: int, n_neurons: int, least: int) -> None:
    require_prime(p)
    if terms < 1:
        raise ValueError("a network needs at least one coefficient or exponent, one for each number that goes in; got none")
    if n_neurons < least:
        raise ValueError(f"n_neurons must be at least {least}, got {n_neurons}")
