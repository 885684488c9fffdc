"""`hc-lens modular`: the overview, a word that is no question, and the polynomial's expert network as a newcomer uses it."""

import pytest

from hc_lens.cli import main

PAPER = "2*a**4*b + a**2*b**2 + 3*a*b**3"


def test_the_polynomial_of_the_paper_ends_with_its_accuracy(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modular", "polynomial", PAPER, "--p", "97"]) == 0
    first, verdict, last = capsys.readouterr().out.strip().splitlines()
    assert first == f"{PAPER}  (mod 97)"
    assert verdict.startswith("not learnable: no functions h, g1, g2")
    assert last == "accuracy over all 9409 pairs: 100.00 % (9409 right)"


def test_options_and_another_way_to_write_powers(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["(4*a + b^2)^3", "--p", "7", "--n-expert", "300", "--n-sum", "4000", "--beta", "50", "--seed", "3"]
    assert main(["modular", "polynomial", *words]) == 0
    told = capsys.readouterr()
    assert "learnable: it is h(g1(a) + g2(b)) with g1 = a, g2 = 2*b**2, h = t**3" in told.out  # 4^3 = 1
    assert told.out.strip().endswith("accuracy over all 49 pairs: 100.00 % (49 right)")
    assert "4 x 300 neurons for the terms, 4000 for their sum" in told.err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["a*c"], "the names are a and b, not 'c'"),
        (["a**-1"], "the power -1 is negative"),
        (["a", "--p", "91"], "p must be a prime, got 91"),
        (["a", "--n-expert", "1"], "n_neurons must be at least 2, got 1"),
        (["a", "--beta", "-1"], "must be positive, got -1.0"),
    ],
)
def test_bad_input_is_explained(words: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modular", "polynomial", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_the_overview_and_words_that_are_no_question(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["modular"], ["modular", "--help"]):
        assert main(words) == 0
        overview = capsys.readouterr().out
        assert all(name in overview for name in ("corrupted", "polynomial", "icl"))
    assert main(["modular", "polynomal"]) == 2
    assert "no question 'polynomal'; did you mean 'polynomial'? There are corrupted, polynomial, icl" in capsys.readouterr().err


@pytest.mark.parametrize("question", ["corrupted", "polynomial", "icl"])
def test_every_question_has_help(question: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["modular", question, "--help"]) == 0
    assert f"hc-lens modular {question}" in capsys.readouterr().out
