"""Polynomials in two numbers modulo a prime, read from text and kept in a form that is unique to the function they compute."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from tokenize import TokenError
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from sympy import Add, Basic, Integer, Mul, Pow, Symbol
from sympy.parsing.sympy_parser import auto_number, convert_xor, parse_expr

from hc_lens.modular.limits import brief_number, require_prime

if TYPE_CHECKING:
    from jaxtyping import Float, Int
    from torch import Tensor

NAMES = ("a", "b")
"""The two numbers of a pair."""

LARGEST = 499
"""The largest modulus of a polynomial: its p^2 coefficients take p^3 operations, a fraction of a second."""

LONGEST = 10_000
"""Characters that are read as a polynomial at most."""

_DIGITS, _BRACKETS = 1_000, 100
_SHOWN = 60


class Term(NamedTuple):
    """coefficient * a^a * b^b."""

    coefficient: int
    a: int
    b: int

    def __str__(self) -> str:
        powers = [name if power == 1 else f"{name}**{power}" for name, power in zip(NAMES, self[1:], strict=True) if power]
        return "*".join(powers if powers and self.coefficient == 1 else [str(self.coefficient), *powers])


@dataclass(frozen=True)
class Polynomial:
    """A polynomial function of two numbers modulo `p`; two are equal if and only if they have the same values.

    Coefficients are in 1..p-1. Exponents are in 0..p-1, since n^p = n for every n modulo p (Fermat). Terms descend by the
    exponent of a, then of b. As text (`str`) it is read back by `polynomial`. It is callable on integer tensors: a `Rule`.

    Raises:
        ValueError: if `p` is not a prime, there is no term, or a term is out of range or out of order.
    """

    p: int
    terms: tuple[Term, ...]

    def __post_init__(self) -> None:
        _require_modulus(self.p)
        if not self.terms:
            raise ValueError("a polynomial needs at least one term; it has none")
        for term in self.terms:
            if not (0 < term.coefficient < self.p and 0 <= term.a < self.p and 0 <= term.b < self.p):
                raise ValueError(f"{term!r}: modulo {self.p} coefficients are 1..{self.p - 1} and exponents 0..{self.p - 1}")
        powers = [term[1:] for term in self.terms]
        if sorted(set(powers), reverse=True) != powers:
            raise ValueError(f"terms must descend by the exponents of a and b and occur once, got {powers}")

    @staticmethod
    def of_values(values: Int[Tensor, "residue residue"]) -> "Polynomial":
        """The polynomial that has these values at (a, b), a for the row and b for the column.

        Raises:
            ValueError: if the table is not p x p for a prime p, or 0 throughout.
        """
        p = _require_modulus(len(values))
        found = _coefficients(values.numpy(), p)
        places = np.argwhere(found)[::-1]
        return Polynomial(p, tuple(Term(int(found[a, b]), int(a), int(b)) for a, b in places))

    def values(self) -> Int[Tensor, "residue residue"]:
        """Its value at every pair, a for the row and b for the column."""
        import torch

        coefficients = np.zeros((self.p, self.p))
        for coefficient, a, b in self.terms:
            coefficients[a, b] = coefficient
        powers = _powers(self.p)
        return torch.from_numpy((powers.T @ coefficients % self.p @ powers % self.p).astype(np.int64))

    def __call__(self, a: Int[Tensor, "*batch"], b: Int[Tensor, "*batch"]) -> Int[Tensor, "*batch"]:
        """Its values at pairs of numbers in 0..p-1."""
        return self.values()[a, b]

    def __str__(self) -> str:
        return " + ".join(map(str, self.terms))


def power_table(exponent: int, p: int) -> Int[Tensor, " residue"]:
    """n^exponent mod p for n = 0..p-1; 0^0 is 1."""
    import torch

    return torch.tensor([pow(n, exponent, p) for n in range(p)])


def polynomial(text: str, p: int) -> Polynomial:
    """Read a polynomial in `a` and `b`, such as `2*a**4*b + a**2*b**2 + 3*a*b**3` or `(4*a + b^2)^3`.

    Numbers, + - * ** (or ^) and brackets are understood; powers are whole numbers.

    Raises:
        ValueError: if `p` is not a prime or above `LARGEST`; or, with the beginning of the text, for other names or signs,
            powers that are negative or not whole, coefficients that are not whole, what is no polynomial, what is longer than
            `LONGEST`, has too many terms or is nested too deeply, and what is 0 modulo p.
    """
    _require_modulus(p)
    shown = repr(text) if len(text) <= _SHOWN else f"{text[:_SHOWN]!r}..."
    try:
        values = _values(_parsed(_checked(text)), p)
    except _NotAPolynomialError as problem:
        raise ValueError(f"{shown} is not a polynomial in a and b: {problem}") from None
    except RecursionError:
        raise ValueError(f"{shown} is nested too deeply, or has too many terms, to be read as a polynomial") from None
    table = np.broadcast_to(values, (p, p))
    if not table.any():
        raise ValueError(f"{shown} is an empty polynomial: it is 0 modulo {p} for every pair")

    import torch

    return Polynomial.of_values(torch.from_numpy(table.copy()))


def _require_modulus(p: int) -> int:
    if p > LARGEST:
        raise ValueError(f"the modulus of a polynomial must be a prime of at most {LARGEST}, got {brief_number(p)}")
    return require_prime(p)


class _NotAPolynomialError(Exception):
    """What is wrong with a text, without the text."""


_WORD = re.compile(r"(?P<name>[A-Za-z_]\w*)|(?P<number>[0-9]+)|(?P<sign>\*\*|[-+*^()])|(?P<blank>\s+)|(?P<other>.)", re.DOTALL)


def _checked(text: str) -> str:
    """The text, if it is made of nothing but a, b, decimal digits, brackets and the signs of a polynomial.

    The parser ends in Python's `eval`. What gets there holds no attribute, string, subscript, keyword or name but these.
    """
    if len(text) > LONGEST:
        raise _NotAPolynomialError(f"it has {len(text)} characters, at most {LONGEST} are read")
    words = list(_WORD.finditer(text))
    if long := [word for word in words if word.lastgroup == "number" and len(word[0]) > _DIGITS]:
        raise _NotAPolynomialError(f"a number in it has {len(long[0][0])} digits, at most {_DIGITS} are read")
    if (depth := max(accumulate({"(": 1, ")": -1}.get(word[0], 0) for word in words), default=0)) > _BRACKETS:
        raise _NotAPolynomialError(f"its brackets are nested {depth} deep, at most {_BRACKETS} are read")
    if unknown := [word[0] for word in words if word.lastgroup == "name" and word[0] not in NAMES]:
        raise _NotAPolynomialError(f"the names are a and b, not {unknown[0]!r:.40}")
    for word in words:
        if word.lastgroup == "other":
            why = "; coefficients and powers must be whole numbers" if word[0] in "./" else ""
            raise _NotAPolynomialError(f"{word[0]!r} is none of the signs + - * ** ^ ( ){why}")
    if all(word.lastgroup == "blank" for word in words):
        raise _NotAPolynomialError("it is empty")
    return " ".join(word[0] for word in words if word.lastgroup != "blank")


def _parsed(text: str) -> Basic:
    """The expression, as it is written: `evaluate=False` so that 9**9**9 is not computed."""
    known = {"Integer": Integer, "Add": Add, "Mul": Mul, "Pow": Pow, "__builtins__": {}}
    names = {name: Symbol(name) for name in NAMES}
    try:
        tree: object = parse_expr(text, names, (auto_number, convert_xor), known, evaluate=False)
    except (SyntaxError, TokenError, TypeError, ValueError, MemoryError) as error:
        raise _NotAPolynomialError("it cannot be read; write products with *, as in 2*a*b") from error
    if not isinstance(tree, Basic):
        raise _NotAPolynomialError("it cannot be read; brackets must hold something")
    return tree


def _values(node: Basic, p: int) -> np.ndarray:
    """Values modulo p over all pairs, up to broadcasting: (p, 1) where only a occurs, (1, p) where only b does."""
    if isinstance(node, Symbol):
        numbers = np.arange(p)
        return numbers[:, None] if node.name == "a" else numbers[None, :]
    if isinstance(node, Integer):
        return np.full((1, 1), int(node) % p)
    if isinstance(node, Pow):
        return _power(_values(node.base, p), node.exp, p)
    parts: Sequence[np.ndarray] = [_values(part, p) for part in node.args]
    total = parts[0]
    for part in parts[1:]:
        total = (total + part if isinstance(node, Add) else total * part) % p
    return total


def _power(base: np.ndarray, exponent: Basic, p: int) -> np.ndarray:
    if not isinstance(exponent, Integer):
        raise _NotAPolynomialError(f"the power {exponent!s:.20} is not a whole number")
    if exponent < 0:
        raise _NotAPolynomialError(f"the power {exponent!s:.20} is negative; powers are whole numbers from 0 on")
    return power_table(int(exponent), p).numpy()[base]


def _coefficients(values: np.ndarray, p: int) -> np.ndarray:
    """The coefficient of a^i b^j at [i, j], degrees below p: interpolation over the field, one variable after the other."""
    # f(x) = sum_n f(n) (1 - (x - n)^(p-1)); the coefficient of x^i is -sum_n f(n) n^(p-1-i) for i > 0, and f(0) for i = 0.
    basis = -_powers(p)[::-1] % p
    basis[0] = np.arange(p) == 0
    return (basis @ (values % p @ basis.T % p) % p).astype(np.int64)


def _powers(p: int) -> Float[np.ndarray, "exponent residue"]:
    """n^i mod p for i and n in 0..p-1; in float64, whose products are fast, and exact for sums of p products below p^2."""
    numbers = np.arange(p)
    powers = [np.ones(p, dtype=np.int64)]
    for _ in range(p - 1):
        powers.append(powers[-1] * numbers % p)
    return np.stack(powers).astype(np.float64)
