"""Do trained networks compute as the analytic ones do: one frequency in every neuron, with phases that add up?

In an analytic network the phase of a neuron's output weights is the sum of those of its input weights, modulo 2 pi: else what
it computes does not depend on the answer (Doshi et al. 2024, sections 3 and 4).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import pi
from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Complex, Float, Int
from torch import Tensor

from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.networks import neuron_weights
from hc_lens.modular.spectrum import ipr, power_spectrum, primitive_root

PERIODIC = 0.5
"""A neuron with at least this IPR has a frequency and phases worth reading."""


@dataclass(frozen=True, eq=False)
class Basis:
    """In which order of the numbers, and at which rates, a network's weights run around the circle.

    Attributes:
        numbers: that many places around the circle, and the number at each.
        rates: of each input: turns of its weights for one turn of the output's.
    """

    numbers: Int[Tensor, " place"] = field(repr=False)
    rates: tuple[int, ...]


def addition_basis(p: int, coefficients: Sequence[int] = (1, 1)) -> Basis:
    """That of c_1 n_1 + ... + c_S n_S: the numbers as they come."""
    return Basis(torch.arange(p), tuple(coefficients))


def multiplication_basis(p: int, exponents: Sequence[int] = (1, 1)) -> Basis:
    """That of n_1^e_1 ... n_S^e_S: 1..p-1 by their discrete logarithms; zero has no place."""
    g = primitive_root(p)
    return Basis(torch.tensor([pow(g, log, p) for log in range(p - 1)]), tuple(exponents))


def spectra(model: ModularMlp, basis: Basis) -> Float[Tensor, "frequency neuron"]:
    """The share of each frequency in the power of each neuron's weights, mean over its inputs and its output."""
    shares: list[Tensor] = []
    for weights in neuron_weights(model):
        power = power_spectrum(weights[basis.numbers])
        shares.append(power / power.sum(0).clamp_min(torch.finfo(power.dtype).tiny))
    return torch.stack(shares).mean(0)


def neuron_table(model: ModularMlp, basis: Basis) -> pd.DataFrame:
    """Frequency, IPR and phases of every neuron, in a basis.

    Returns:
        One row per neuron: `neuron`; the strongest `frequency` of its output weights; `ipr`, mean over inputs and output;
        `same`: whether the strongest frequency of every input is that one times its rate; `psi_sum`: the sum of the inputs'
        phases, `psi_w`: the output's, and `error`: their difference, all in (-pi, pi]. They are NaN where a wave's
        frequency is 0 or half the period: it has no phase.

    Raises:
        ValueError: if the network has not as many inputs as the basis has rates.
    """
    *inputs, output = [weights[basis.numbers] for weights in neuron_weights(model)]
    if len(inputs) != len(basis.rates):
        raise ValueError(f"a basis of {len(basis.rates)} rates is not that of a network of {len(inputs)} inputs")
    waves = _waves(output, 1, None)
    read = [_waves(weights, rate, waves.frequency) for weights, rate in zip(inputs, basis.rates, strict=True)]
    total = torch.stack([each.phase for each in read]).sum(0)
    return pd.DataFrame(
        {
            "neuron": range(len(total)),
            "frequency": waves.frequency.tolist(),
            "ipr": torch.stack([ipr(weights) for weights in (*inputs, output)]).mean(0).tolist(),
            "same": torch.stack([each.strongest for each in read]).all(0).tolist(),
            "psi_sum": _wrapped(total).tolist(),
            "psi_w": waves.phase.tolist(),
            "error": _wrapped(total - waves.phase).tolist(),
        }
    )


class PhaseAgreement(NamedTuple):
    """How well the phases of periodic neurons add up: `periodic` of `neurons`, those without phases left out.

    `error` is the mean absolute difference in radians (pi / 2 for unrelated phases), `resultant` the length of the mean of
    exp(i difference): 1 if all are equal, about 1 / sqrt(periodic) for unrelated ones. `same` is the share of periodic neurons
    whose inputs and output have one frequency. Without periodic neurons the three are NaN.
    """

    neurons: int
    periodic: int
    same: float
    error: float
    resultant: float


def phase_agreement(table: pd.DataFrame, least_ipr: float = PERIODIC) -> PhaseAgreement:
    """The phase relation over the neurons of a `neuron_table` with at least this IPR."""
    periodic = table[(table["ipr"] >= least_ipr) & table["error"].notna()]
    if periodic.empty:
        return PhaseAgreement(len(table), 0, *[float("nan")] * 3)
    errors = torch.tensor(periodic["error"].to_list(), dtype=torch.float64)
    resultant = torch.polar(torch.ones_like(errors), errors).mean().abs()
    same = float(periodic["same"].mean())
    return PhaseAgreement(len(table), len(periodic), same, float(errors.abs().mean()), float(resultant))


class _Waves(NamedTuple):
    """One frequency of each neuron's weights, its phase (NaN if it has none), and whether it is the strongest."""

    frequency: Int[Tensor, " neuron"]
    phase: Float[Tensor, " neuron"]
    strongest: Bool[Tensor, " neuron"]


def _waves(weights: Float[Tensor, "place neuron"], rate: int, output: Int[Tensor, " neuron"] | None) -> _Waves:
    """The wave at `rate` times the output's frequency, or (None) the strongest; the phase is that of the cosine at place 0."""
    places, n_neurons = weights.shape
    fourier: Complex[Tensor, "place neuron"] = torch.fft.fft(weights.double(), dim=0)
    strongest = fourier[: places // 2 + 1].abs().argmax(0)
    frequency = strongest if output is None else output * rate % places
    phase = fourier[frequency, torch.arange(n_neurons)].angle()
    phase[2 * frequency % places == 0] = torch.nan
    return _Waves(frequency, phase, strongest == torch.minimum(frequency, places - frequency))


def _wrapped(angle: Float[Tensor, " neuron"]) -> Float[Tensor, " neuron"]:
    """The angle in (-pi, pi]."""
    return pi - (pi - angle) % (2 * pi)
