"""`hc-lens modular polynomial`: the expert network of a polynomial, its accuracy, and whether the polynomial can be learned."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import parse
from hc_lens.limits import Count, Natural

if TYPE_CHECKING:
    from hc_lens.modular.polynomial import Polynomial

_SHOWN_TERMS = 12


@dataclass(frozen=True)
class Arguments:
    """Build a network of known weights that computes a polynomial in a and b modulo a prime, and try it on all pairs."""

    text: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="POLYNOMIAL")]
    """Such as "2*a**4*b + a**2*b**2 + 3*a*b**3"; ^ is read as **. At most 10,000 characters."""
    p: Count = 97
    """The modulus, a prime of at most 499."""
    n_expert: Count = 500
    """Neurons of the network that multiplies out one term."""
    n_sum: Count | None = None
    """Neurons of the network that adds up the terms; 2000 for three terms by default, five times as many for each further."""
    beta: float = 100.0
    """How sharply each expert's answer is passed on: beta within the softmax."""
    seed: Natural = 0
    """Of the phases, and of the order of the frequencies."""


def main(words: Sequence[str]) -> None:
    """Read the polynomial, say whether it is of a learnable form, build the network, and end with its accuracy."""
    args = parse(Arguments, "modular polynomial", words)

    from hc_lens.modular.polynomial import polynomial

    found = polynomial(args.text, args.p)

    from hc_lens.modular.accuracy import predictions
    from hc_lens.modular.arithmetic import all_pairs
    from hc_lens.modular.expert import ExpertNetwork
    from hc_lens.modular.learnable import classify

    print(f"{_shown(found)}  (mod {args.p})")
    print(classify(found))
    start = time.perf_counter()
    network = ExpertNetwork(found, args.n_expert, args.n_sum, args.beta, args.seed)
    pairs = all_pairs(args.p, found)
    right = int((predictions(network, pairs.numbers) == pairs.target).sum())
    widths = f"{len(network.experts)} x {args.n_expert} neurons for the terms, {network.sum.config.n_neurons} for their sum"
    output.say(f"{widths}; {time.perf_counter() - start:.1f} s")
    print(f"accuracy over all {len(pairs)} pairs: {100 * right / len(pairs):.2f} % ({right} right)")


def _shown(found: Polynomial) -> str:
    """The polynomial, or its first terms and how many more there are."""
    first = " + ".join(map(str, found.terms[:_SHOWN_TERMS]))
    more = len(found.terms) - _SHOWN_TERMS
    return first if more <= 0 else f"{first} + {more} more terms"
