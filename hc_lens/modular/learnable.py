"""Which polynomials modulo a prime can be learned from some of the pairs: the hypothesis, decided, for any polynomial.

Doshi et al. (2024, section 6): a network of one hidden layer generalizes if the polynomial is h(g1(a) + g2(b)) or
h(g1(a) * g2(b)), and does not if it is neither, even by one term.
"""

from dataclasses import dataclass

from hc_lens.modular.decomposition import Decomposition, decomposition
from hc_lens.modular.functions import SEARCHED, contradiction, search
from hc_lens.modular.polynomial import Polynomial

PAIRS = (
    ("(4*a + b**2)**3", "(4*a + b**2)**3 + a*b"),
    ("(2*a + 3*b)**4", "(2*a + 3*b)**4 - a**2"),
    ("(5*a**3 + 2*b**4)**2", "(5*a**3 + 2*b**4)**2 - b"),
)
"""The polynomials of the paper: each learnable one, and what one more term makes of it (table 2)."""

MOST_TERMS = 1_000
"""Terms of a polynomial whose derivatives are compared at most: some seconds."""


@dataclass(frozen=True, eq=False)
class Verdict:
    """Whether a polynomial is of a learnable form, and why.

    Attributes:
        decomposition: the form, proved on all pairs; None: not learnable.
        reason: in words; where there is no form, whether any functions g1, g2, h were ruled out or only polynomials.
    """

    polynomial: Polynomial
    decomposition: Decomposition | None
    reason: str

    @property
    def learnable(self) -> bool:
        """Whether it is h(g1(a) + g2(b)) or h(g1(a) * g2(b))."""
        return self.decomposition is not None

    def __str__(self) -> str:
        return f"{'learnable' if self.learnable else 'not learnable'}: {self.reason}"


def classify(polynomial: Polynomial) -> Verdict:
    """Whether a polynomial is h(g1(a) + g2(b)) or h(g1(a) * g2(b)) modulo p, with the proof in words.

    A yes is exact: it comes with the functions, checked on all pairs. A no is exact for polynomials h, g1, g2 that make an
    identity of polynomials of degrees below p (`decomposition`); where `contradiction` finds one, and up to p = 7, where all
    functions are tried (`search`), it is exact for any functions at all.

    Raises:
        ValueError: for a polynomial of more than `MOST_TERMS` terms that no contradiction rules out.
    """
    values = polynomial.values()
    if len(polynomial.terms) > MOST_TERMS:
        if (why := contradiction(values)) is not None:
            return _no(polynomial, "functions", why)
        raise ValueError(
            f"a polynomial of {len(polynomial.terms)} terms is not decided in reasonable time: at most {MOST_TERMS}"
        )
    if (found := decomposition(polynomial)) is not None:
        return Verdict(polynomial, found, f"it is {found}")
    if (why := contradiction(values)) is not None:
        return _no(polynomial, "functions", why)
    if polynomial.p > SEARCHED:
        return _no(
            polynomial, "polynomials", "the ratio of its derivatives is not that of a function of one sum or one product"
        )
    if (found := search(values)) is not None:
        return Verdict(polynomial, found, f"it is {found}")
    return _no(polynomial, "functions", "all were tried")


def _no(polynomial: Polynomial, what: str, why: str) -> Verdict:
    return Verdict(polynomial, None, f"no {what} h, g1, g2 make it h(g1(a) + g2(b)) or h(g1(a) * g2(b)): {why}")
