"""Which polynomials are functions of one sum or one product: found where planted, never found where there is none."""

import itertools

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hc_lens.modular.decomposition import composed, decomposition
from hc_lens.modular.functions import SEARCHED, contradiction, search
from hc_lens.modular.learnable import PAIRS, classify
from hc_lens.modular.polynomial import Polynomial, polynomial, power_table


def univariate(coefficients: list[int], p: int) -> Tensor:
    """Values of c_0 + c_1 n + c_2 n^2 + ..."""
    return sum((c * power_table(i, p) for i, c in enumerate(coefficients)), torch.zeros(p, dtype=torch.int64)) % p


@st.composite
def planted(draw: st.DrawFn) -> tuple[str, Tensor]:
    """The values of h(g1(a) + g2(b)) or h(g1(a) * g2(b)) for polynomials whose degrees stay below p together."""
    p, form = draw(st.sampled_from((5, 7, 11, 13))), draw(st.sampled_from(("sum", "product")))
    inner, outer = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    assume(inner * outer < p)
    g1, g2 = (draw(st.lists(st.integers(0, p - 1), min_size=2, max_size=inner + 1)) for _ in range(2))
    h = draw(st.lists(st.integers(0, p - 1), min_size=2, max_size=outer + 1))
    first, second = univariate(g1, p)[:, None], univariate(g2, p)[None, :]
    return form, univariate(h, p)[(first + second if form == "sum" else first * second) % p]


@settings(max_examples=40)
@given(planted())
def test_planted_forms_are_found_and_proved(case: tuple[str, Tensor]) -> None:
    form, values = case
    assume(values.any())
    found = decomposition(Polynomial.of_values(values))
    assert found is not None
    assert torch.equal(found.h[found.inner], values)
    assert found.form == form or found.form == "sum"
    assert contradiction(values) is None
    assert classify(Polynomial.of_values(values)).learnable


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(4*a + b**2)**3", "h(g1(a) + g2(b)) with g1 = 4*a, g2 = b**2, h = t**3"),
        ("a + b", "h(g1(a) + g2(b)) with g1 = a, g2 = b, h = t"),
        ("3*a**2*b**2 + 1", "h(g1(a) * g2(b)) with g1 = a, g2 = b, h = 3*t**2 + 1"),
        ("(a + 1)**2*(b**3 + 2)", "h(g1(a) * g2(b)) with g1 = a**2 + 2*a + 1, g2 = b**3 + 2, h = t"),
        ("a**3 + a", "h(g1(a) + g2(b)) with g1 = a, g2 = 0, h = t**3 + t"),
        ("7", "h(g1(a) + g2(b)) with g1 = a, g2 = 0, h = 7"),
    ],
)
def test_the_form_is_told(text: str, expected: str) -> None:
    assert str(decomposition(polynomial(text, 23))) == expected


@pytest.mark.parametrize("p", [23, 97])
def test_the_pairs_of_the_paper(p: int) -> None:
    for learnable, perturbed in PAIRS:
        assert classify(polynomial(learnable, p)).learnable
        verdict = classify(polynomial(perturbed, p))
        assert not verdict.learnable
        assert str(verdict).startswith("not learnable: no functions h, g1, g2")


def all_forms(p: int) -> set[tuple[int, ...]]:
    """The values of every h(g1(a) + g2(b)) and h(g1(a) * g2(b)), by brute force."""
    functions = torch.cartesian_prod(*[torch.arange(p)] * p)
    found: set[tuple[int, ...]] = set()
    for g1, g2 in itertools.product(functions, repeat=2):
        for inner in (g1[:, None] + g2, g1[:, None] * g2):
            found |= set(map(tuple, functions[:, (inner % p).flatten()].tolist()))
    return found


def test_exact_modulo_3() -> None:
    """No test says yes or no wrongly for any of a sample of tables, against all functions."""
    forms = all_forms(3)
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randint(3, (60, 3, 3), generator=generator)
    known = torch.tensor(sorted(forms))[torch.randint(len(forms), (60,), generator=generator)].view(-1, 3, 3)
    for values in (*drawn, *known):
        if not values.any():
            continue
        exists = tuple(values.flatten().tolist()) in forms
        found = search(values)
        assert (found is not None) == exists
        assert found is None or torch.equal(found.h[found.inner], values)
        assert not (exists and contradiction(values))
        assert classify(Polynomial.of_values(values)).learnable == exists


def test_small_primes_reduce_degrees_and_the_form_is_found_all_the_same() -> None:
    found = polynomial("(4*a + b**2)**3", 5)  # b^6 is b^2 modulo 5: no identity of polynomials is left
    assert decomposition(found) is None
    assert classify(found).learnable


def test_what_only_the_algebra_rules_out_is_told_so() -> None:
    verdict = classify(polynomial("a**2*b**2 + a**2 + b**4", 13))
    assert not verdict.learnable
    assert "no polynomials h, g1, g2" in verdict.reason


def test_a_wrong_inner_function_is_no_decomposition() -> None:
    values, numbers = polynomial("a + 2*b", 7).values(), torch.arange(7)
    assert composed("sum", numbers, numbers, values) is None
    with pytest.raises(ValueError, match=f"at most {SEARCHED}, not 11"):
        search(polynomial("a", 11).values())
