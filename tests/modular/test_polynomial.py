"""Polynomials modulo a prime: read, kept in a form unique to the function, and refused with the reason."""

import time

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.polynomial import Polynomial, Term, polynomial

PRIMES = (2, 3, 5, 7, 11)


@st.composite
def polynomials(draw: st.DrawFn, most: int = 5) -> Polynomial:
    p = draw(st.sampled_from(PRIMES))
    exponents = st.integers(0, p - 1)
    found = draw(st.dictionaries(st.tuples(exponents, exponents), st.integers(1, p - 1), min_size=1, max_size=most))
    return Polynomial(p, tuple(Term(found[key], *key) for key in sorted(found, reverse=True)))


def test_the_polynomial_of_the_paper() -> None:
    found = polynomial("2*a**4*b + a**2*b**2 + 3*a*b**3", p=97)
    assert found.terms == (Term(2, 4, 1), Term(1, 2, 2), Term(3, 1, 3))
    assert str(found) == "2*a**4*b + a**2*b**2 + 3*a*b**3"
    assert found.values()[5, 11] == (2 * 5**4 * 11 + 5**2 * 11**2 + 3 * 5 * 11**3) % 97
    pairs = all_pairs(97, found)
    assert torch.equal(pairs.target.view(97, 97), found.values())


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("(4*a + b^2)^3", "64*a**3 + 48*a**2*b**2 + 12*a*b**4 + b**6"),
        ("a*b - b*a + 3", "3"),
        ("-a", "96*a"),
        ("a**97 + b**96*b", "a + b"),  # Fermat
        ("100*a", "3*a"),
        ("(a - b)*(a + b)", "a**2 - b**2"),
        ("  2 *a\n+ b", "2*a+b"),
        ("(a + b)**97000000", "(a+b)**64"),  # huge powers cost nothing; 97000000 = 64 modulo 96
    ],
)
def test_equal_functions_are_equal_values(text: str, same: str) -> None:
    assert polynomial(text, 97) == polynomial(same, 97)


@settings(max_examples=60)
@given(polynomials())
def test_text_and_values_determine_the_polynomial(drawn: Polynomial) -> None:
    assert polynomial(str(drawn), drawn.p) == drawn
    assert Polynomial.of_values(drawn.values()) == drawn
    for a in range(drawn.p):
        for b in range(drawn.p):
            assert drawn.values()[a, b] == sum(c * a**i * b**j for c, i, j in drawn.terms) % drawn.p


@settings(max_examples=30)
@given(st.sampled_from(PRIMES), st.data())
def test_every_function_of_two_numbers_is_a_polynomial(p: int, data: st.DataObject) -> None:
    flat = data.draw(st.lists(st.integers(0, p - 1), min_size=p * p, max_size=p * p).filter(any))
    values = torch.tensor(flat).view(p, p)
    assert torch.equal(Polynomial.of_values(values).values(), values)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a*c", "the names are a and b, not 'c'"),
        ("sin(a)", "not 'sin'"),
        ("__import__('os').system('true')", "not '__import__'"),
        ("(lambda: a)()", "not 'lambda'"),
        ("a**-1", "the power -1 is negative"),
        ("a**(1/2)", "'/' is none of the signs"),
        ("a/2", "coefficients and powers must be whole numbers"),
        ("0.5*a", "coefficients and powers must be whole numbers"),
        ("a**b", "the power b is not a whole number"),
        ("2**a", "the power a is not a whole number"),
        ("9**9**9**9", "is not a whole number"),
        ("a b", "cannot be read"),
        ("a(b)", "cannot be read"),
        ("2a", "cannot be read"),
        ("a + b*", "cannot be read"),
        ("(a", "cannot be read"),
        ("()", "cannot be read"),
        ("a == b", "'=' is none of the signs"),
        ("a; b", "';' is none of the signs"),
        ("", "it is empty"),
        (" \n", "it is empty"),
        ("a - a", "empty polynomial: it is 0 modulo 97"),
        ("97*a*b", "empty polynomial"),
        ("a**97 - a", "empty polynomial"),
        ("(" * 5000 + "a" + ")" * 5000, ""),
        ("a" + "+a" * 4_000, "nested too deeply"),
        ("9" * 5000, "has 5000 digits"),
    ],
)
def test_what_is_no_polynomial_is_refused_at_once(text: str, problem: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the words are checked below
        polynomial(text, 97)
    assert problem in str(caught.value)
    assert text[:10] in str(caught.value) or "\n" in text
    assert time.perf_counter() - start < 5


def test_p_must_be_prime_and_terms_canonical() -> None:
    with pytest.raises(ValueError, match="p must be a prime, got 91"):
        polynomial("a + b", 91)
    for terms in [(), (Term(0, 1, 1),), (Term(5, 1, 1),), (Term(1, 5, 0),), (Term(1, 0, 1), Term(1, 1, 0))]:
        with pytest.raises(ValueError, match=r"term|coefficients"):
            Polynomial(5, terms)
