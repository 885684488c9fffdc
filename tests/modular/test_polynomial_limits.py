"""Polynomials beyond what is read, decided or built: one short sentence with the limit, at once, whatever the text."""

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.cli import main
from hc_lens.modular.arithmetic import all_pairs
from hc_lens.modular.expert import ExpertNetwork, width_of_sum
from hc_lens.modular.learnable import classify
from hc_lens.modular.limits import require_prime
from hc_lens.modular.polynomial import Polynomial, polynomial

SECONDS = 10.0  # far above the fraction of a second it takes; a machine may be busy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a" + " + 3*a*b" * 1_300, "it has 10401 characters, at most 10000 are read"),
        ("2*a + " * 1_000 + "b", "too many terms"),
        ("1" * 4_500 + "*a", "a number in it has 4500 digits, at most 1000 are read"),
        ("a**" + "9" * 4_000, "a number in it has 4000 digits"),
        ("(" * 300 + "a" + ")" * 300, "its brackets are nested 300 deep, at most 100 are read"),
        ("a*" * 2_000 + "b", "too many terms"),
        ("x" * 6_000, "the names are a and b, not 'xxxx"),
        ("a**(a" + "+a" * 400 + ")", "is n"),
        ("0*(" + "a+" * 300 + "b)", "is an empty polynomial"),
    ],
)
def test_hostile_texts_get_one_short_sentence_at_once(text: str, says: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match=re.escape(says)) as refusal:
        polynomial(text, 97)
    assert len(str(refusal.value)) < 250
    assert time.perf_counter() - start < SECONDS


@pytest.mark.parametrize("p", [1_000_003, 10**18 + 9, 10**400, 503])
def test_a_large_modulus_is_refused_before_anything_is_computed(p: int) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="the modulus of a polynomial must be a prime of at most 499, got ") as refusal:
        polynomial("a + b", p)
    assert len(str(refusal.value)) < 120
    if p != 503:
        for refused in (require_prime, all_pairs):
            with pytest.raises(ValueError, match="p must be a prime of at most 1009"):
                refused(p)
    assert time.perf_counter() - start < SECONDS


def test_the_largest_primes_are_taken() -> None:
    assert require_prime(1_009) == 1_009
    assert str(polynomial("(a + 2)*b", 499)) == "a*b + 2*b"
    with pytest.raises(ValueError, match="got 1008; the nearest: 997 and 1009"):
        require_prime(1_008)


def test_a_power_of_many_terms_is_decided_and_only_its_network_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modular", "polynomial", "(a+b+1)**30"]) == 2
    printed = capsys.readouterr()
    assert "+ 484 more terms  (mod 97)" in printed.out
    assert "learnable: it is h(g1(a) + g2(b)) with g1 = a, g2 = b" in printed.out
    assert "a network of 496 experts of 500 neurons and a sum of 50000 would hold 2.5e+09 weights" in printed.err
    assert max(map(len, printed.out.splitlines())) < 400


def test_the_width_of_a_sum_does_not_overflow() -> None:
    assert [width_of_sum(terms) for terms in (2, 3, 4, 5, 6, 10_000)] == [400, 2_000, 10_000, 50_000, 50_000, 50_000]
    with pytest.raises(ValueError, match="at most"):
        ExpertNetwork(polynomial("(a + b)**12", 97), n_sum=10**9)
    with pytest.raises(ValueError, match="beta, which sharpens the experts' answers, must be positive and finite, got nan"):
        ExpertNetwork(polynomial("a*b", 5), beta=float("nan"))


def test_more_terms_than_can_be_compared_are_a_sentence_unless_values_rule_them_out() -> None:
    with pytest.raises(ValueError, match="a polynomial of 3514 terms is not decided in reasonable time: at most 1000"):
        classify(polynomial("(a**3*b + a*b + 1)**96", 97))
    ruled_out = polynomial("(a*b + a*b**2 + b + 1)**40", 97)
    assert len(ruled_out.terms) > 1_000
    assert not classify(ruled_out).learnable


@settings(max_examples=15)
@given(st.sampled_from([2, 3, 5, 97, 499]), st.data())
def test_terms_are_the_polynomial_of_their_values(p: int, data: st.DataObject) -> None:
    """Interpolation and evaluation are computed as products of float64 matrices: exact up to the largest modulus."""
    drawn = st.tuples(st.integers(1, p - 1), st.integers(0, p - 1), st.integers(0, p - 1))
    terms = data.draw(st.lists(drawn, min_size=1, max_size=6, unique_by=lambda term: term[1:]))
    found = polynomial(" + ".join(f"{c}*a**{i}*b**{j}" for c, i, j in terms), p)
    assert sorted(found.terms) == sorted(terms)
    a, b = data.draw(st.integers(0, p - 1)), data.draw(st.integers(0, p - 1))
    assert int(found.values()[a, b]) == sum(c * pow(a, i, p) * pow(b, j, p) for c, i, j in terms) % p
    assert Polynomial.of_values(found.values()) == found
