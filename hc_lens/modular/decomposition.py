"""Is a polynomial modulo p a function of one sum, h(g1(a) + g2(b)), or of one product, h(g1(a) * g2(b))?

Found by algebra and proved on all pairs. For P of degrees below p in a and in b, as `Polynomial` keeps them, and polynomials
g1, g2, h with P = h(g1(a) + g2(b)) in F_p[a, b], the chain rule gives P_a / P_b = g1'(a) / g2'(b), a function of a times one
of b. That ratio determines g1 and g2 up to what h can absorb: a common factor, and constants. (Degrees below p: no derivative
vanishes, and every antiderivative exists.) For products P_a / P_b = (g1'/g1)(a) / (g2'/g2)(b), whose residues are the
multiplicities of the roots of g1 and g2, up to a common factor in 1..p-1. So if nothing is found, there are no such
polynomials. What is found need not be an identity of polynomials: that P is constant wherever the sum, or the product, is, is
checked on all p^2 pairs, which makes it one of functions.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Int
from sympy import Poly, symbols
from torch import Tensor

from hc_lens.modular.polynomial import Polynomial, power_table

Form = Literal["sum", "product"]
"""What is within h: g1(a) + g2(b) or g1(a) * g2(b)."""

_A, _B = symbols("a b")
_LONGEST = 6


@dataclass(frozen=True, eq=False)
class Decomposition:
    """P(a, b) = h(g1(a) + g2(b)), or h(g1(a) * g2(b)), modulo p, for all pairs; the functions by their values at 0..p-1.

    `h` is 0 where the sum, or the product, never is.
    """

    form: Form
    g1: Int[Tensor, " residue"] = field(repr=False)
    g2: Int[Tensor, " residue"] = field(repr=False)
    h: Int[Tensor, " residue"] = field(repr=False)

    @property
    def inner(self) -> Int[Tensor, "residue residue"]:
        """What h is applied to, a for the row and b for the column."""
        return _inner(self.form, self.g1, self.g2)

    def __str__(self) -> str:
        sign = "+" if self.form == "sum" else "*"
        parts = [f"g1 = {_text(self.g1, 'a')}", f"g2 = {_text(self.g2, 'b')}"]
        if len(self.inner.unique()) == len(self.h):
            parts.append(f"h = {_text(self.h, 't')}")
        return f"h(g1(a) {sign} g2(b)) with {', '.join(parts)}"


def decomposition(polynomial: Polynomial) -> Decomposition | None:
    """The polynomial as a function of one sum or else of one product; None if no polynomials g1, g2, h make it so."""
    numbers, values = torch.arange(polynomial.p), polynomial.values()
    nothing = torch.zeros_like(numbers)
    if all(term.b == 0 for term in polynomial.terms):
        return Decomposition("sum", numbers, nothing, values[:, 0])
    if all(term.a == 0 for term in polynomial.terms):
        return Decomposition("sum", nothing, numbers, values[0])
    ratio = _ratio(polynomial)
    return None if ratio is None else _as_sum(ratio, values) or _as_product(ratio, values)


class _Ratio(NamedTuple):
    """P_a / P_b = factor * (over_a / under_a)(a) * (over_b / under_b)(b), in lowest terms, all monic."""

    factor: int
    over_a: Poly
    under_a: Poly
    over_b: Poly
    under_b: Poly


def _ratio(polynomial: Polynomial) -> _Ratio | None:
    """The ratio of the partial derivatives; None if it is not a function of a times a function of b."""
    p = polynomial.p
    whole = Poly({(term.a, term.b): term.coefficient for term in polynomial.terms}, _A, _B, modulus=p)
    by_a, by_b = cast(Poly, whole.diff(_A)), cast(Poly, whole.diff(_B))
    # If P_a under = P_b over, the highest coefficients in b (polynomials in a) have the ratio's part in a, and vice versa.
    over_a, under_a = _reduced(_highest(by_a, 1, p), _highest(by_b, 1, p))
    over_b, under_b = _reduced(_highest(by_a, 0, p), _highest(by_b, 0, p))
    left, right = by_a.mul(under_a).mul(under_b), by_b.mul(over_a).mul(over_b)
    if left.monic() != right.monic():
        return None
    return _Ratio(int(left.LC()) * pow(int(right.LC()), -1, p) % p, over_a, under_a, over_b, under_b)


def _highest(poly: Poly, axis: int, p: int) -> Poly:
    """The coefficient of the highest power of b (axis 1), a polynomial in a; or the other way round (axis 0)."""
    terms = cast("list[tuple[tuple[int, int], int]]", poly.terms())
    most = max(powers[axis] for powers, _ in terms)
    return Poly({(powers[1 - axis],): c for powers, c in terms if powers[axis] == most}, (_A, _B)[1 - axis], modulus=p)


def _reduced(over: Poly, under: Poly) -> tuple[Poly, Poly]:
    common = over.gcd(under)
    return over.quo(common).monic(), under.quo(common).monic()


def _as_sum(ratio: _Ratio, values: Int[Tensor, "residue residue"]) -> Decomposition | None:
    if ratio.under_a.degree() > 0 or ratio.over_b.degree() > 0:
        return None
    p = len(values)
    first = [ratio.factor * c for c in _antiderivative(ratio.over_a, p)]
    second = _antiderivative(ratio.under_b, p)
    # Any common factor will do; the one with the smallest coefficients reads best.
    scale = min(range(1, p), key=lambda factor: sum(factor * c % p for c in (*first, *second)))
    return composed("sum", _table(first, p) * scale % p, _table(second, p) * scale % p, values)


def _as_product(ratio: _Ratio, values: Int[Tensor, "residue residue"]) -> Decomposition | None:
    p = len(values)
    first, second = _residues(ratio.over_a, ratio.under_a, p), _residues(ratio.under_b, ratio.over_b, p)
    if first is None or second is None:
        return None
    first = [_Root(root.values, ratio.factor * root.multiplicity % p, root.degree) for root in first]
    powers = [[root.power(scale, p) for root in (*first, *second)] for scale in range(1, p)]
    for multiplicities in sorted(
        powers, key=lambda each: sum(m * r.degree for m, r in zip(each, (*first, *second), strict=True))
    ):
        g1 = _product(first, multiplicities[: len(first)], p)
        g2 = _product(second, multiplicities[len(first) :], p)
        if (found := composed("product", g1, g2, values)) is not None:
            return found
    return None


class _Root(NamedTuple):
    """An irreducible factor of g: its values, its multiplicity up to a factor common to all, and its degree."""

    values: Int[Tensor, " residue"]
    multiplicity: int
    degree: int

    def power(self, scale: int, p: int) -> int:
        return scale * self.multiplicity % p


def _residues(over: Poly, under: Poly, p: int) -> list[_Root] | None:
    """The factors f of `under` with multiplicities m such that over / under = sum of m f' / f; None if there are none."""
    if over.degree() >= under.degree():
        return None
    roots: list[_Root] = []
    for factor, times in under.factor_list()[1]:
        if times > 1:
            return None
        residue = over.mul(cast(Poly, under.diff()).invert(factor)).rem(factor)
        if residue.degree() > 0:
            return None
        coefficients = [int(c) for c in reversed(factor.all_coeffs())]
        roots.append(_Root(_table(coefficients, p), int(residue.LC()) % p, int(factor.degree())))
    return roots


def _product(roots: Sequence[_Root], multiplicities: Sequence[int], p: int) -> Int[Tensor, " residue"]:
    total = torch.ones(p, dtype=torch.int64)
    for root, multiplicity in zip(roots, multiplicities, strict=True):
        total = total * power_table(multiplicity, p)[root.values] % p
    return total


def composed(
    form: Form, g1: Int[Tensor, " residue"], g2: Int[Tensor, " residue"], values: Int[Tensor, "residue residue"]
) -> Decomposition | None:
    """The decomposition with these inner functions, if the values are a function of their sum or product."""
    inner = _inner(form, g1, g2)
    h = torch.zeros_like(g1)
    h[inner.flatten()] = values.flatten()
    return Decomposition(form, g1, g2, h) if torch.equal(h[inner], values) else None


def _inner(form: Form, g1: Int[Tensor, " residue"], g2: Int[Tensor, " residue"]) -> Int[Tensor, "residue residue"]:
    first, second = g1[:, None], g2[None, :]
    return (first + second if form == "sum" else first * second) % len(g1)


def _antiderivative(poly: Poly, p: int) -> list[int]:
    """Coefficients of the antiderivative without constant, from the power 0 on."""
    ascending = reversed(poly.all_coeffs())
    return [0, *(int(c) * pow(power, -1, p) % p for power, c in enumerate(ascending, start=1))]


def _table(ascending: Sequence[int], p: int) -> Int[Tensor, " residue"]:
    """Values at 0..p-1 of a polynomial given by its coefficients."""
    total = torch.zeros(p, dtype=torch.int64)
    for power, coefficient in enumerate(ascending):
        total += coefficient % p * power_table(power, p)
    return total % p


def _text(values: Int[Tensor, " residue"], name: str) -> str:
    """A function of one number as a polynomial, if that is short."""
    if not values.any():
        return "0"
    found = Polynomial.of_values(values[:, None].expand(-1, len(values)).contiguous())
    if len(found.terms) > _LONGEST:
        return f"a polynomial of degree {found.terms[0].a}"
    return str(found).replace("a", name)
