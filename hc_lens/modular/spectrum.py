"""Is a neuron periodic? Fourier spectra of weight vectors over the numbers modulo p, and the basis of discrete logarithms.

A weight vector over the numbers 0..p-1 that generalizes addition is a cosine; over their discrete logarithms, 0..p-2, one that
generalizes multiplication is.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hc_lens.modular.limits import require_prime


def power_spectrum(weights: Float[Tensor, "residue neuron"]) -> Float[Tensor, "frequency neuron"]:
    """|F|^2 of each neuron's weight vector, in float64, for the frequencies 0 (its mean) to residue // 2."""
    # In double precision: squares of weights that decay has all but killed do not fit a float.
    return torch.fft.rfft(weights.double(), dim=0).abs().square()


def ipr(weights: Float[Tensor, "residue neuron"], *, drop_mean: bool = False) -> Float[Tensor, " neuron"]:
    """Inverse participation ratio of each neuron's spectrum: sum |F|^4 / (sum |F|^2)^2 (Doshi et al. 2023, equation 4).

    F is the Fourier transform over the non-negative frequencies: 1 for a cosine of any frequency, phase and amplitude, about
    4 / residue for Gaussian weights. A constant vector has 1 as well, unless `drop_mean` leaves frequency 0 out. A neuron
    without any weight, whose ratio is 0 / 0, gets 0.
    """
    power = power_spectrum(weights)[1 if drop_mean else 0 :]
    total = power.sum(0)
    share = power / torch.where(total > 0, total, 1)
    return share.square().sum(0).to(weights.dtype)


def primitive_root(p: int) -> int:
    """The least g whose powers g^0..g^(p-2) are all the numbers 1..p-1 modulo p.

    Raises:
        ValueError: if `p` is not a prime.
    """
    require_prime(p)
    return next(g for g in range(1, p) if len(set(_powers(g, p))) == p - 1)


def discrete_logs(p: int) -> Int[Tensor, " residue"]:
    """log_g n for n = 0..p-1 to the base of the primitive root; -1 for 0, which has none.

    Raises:
        ValueError: if `p` is not a prime.
    """
    logs = torch.full((p,), -1)
    logs[_powers(primitive_root(p), p)] = torch.arange(p - 1)
    return logs


def in_log_basis(weights: Float[Tensor, "residue neuron"]) -> Float[Tensor, "log neuron"]:
    """The rows of the numbers 1..p-1 in the order of their discrete logarithms; the row of 0 is left out.

    Raises:
        ValueError: if the number of rows is not a prime.
    """
    p = weights.shape[0]
    return weights[_powers(primitive_root(p), p)]


def _powers(g: int, p: int) -> list[int]:
    """g^0, ..., g^(p-2) modulo p."""
    return [pow(g, exponent, p) for exponent in range(p - 1)]
