"""The experiment on modular polynomials at its smallest: a report with every section, and nothing computed twice."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.modular_polynomials import Measured, Solutions, Task, config, exceptions, inputs_of, run
from experiments.shared.command import Places
from hc_lens.report import write_article


def test_inputs_are_all_pairs_or_as_many_rows_as_asked() -> None:
    assert len(inputs_of(Task("sum", 2, 7, ()), 10)) == 49
    assert inputs_of(Task("sum", 3, 7, ()), 100).shape == (100, 3)
    assert len(inputs_of(Task("sum", 3, 3, ()), 100).unique(dim=0)) == 27


def test_what_the_verdict_gets_wrong_and_what_is_half_learned_is_told() -> None:
    columns = ["polynomial", "p", "learnable", "learned", "test", "low", "majority"]
    rows = [
        ("a", 7, True, True, 1.0, 1.0, 0.1),
        ("b", 7, True, False, 0.4, 0.3, 0.1),
        ("c", 7, False, False, 0.7, 0.6, 0.1),
        ("d", 7, False, False, 0.1, 0.05, 0.1),
    ]
    nothing = pd.DataFrame()
    learned = pd.DataFrame(rows, columns=columns)
    found = Measured(config("smoke"), nothing, nothing, Solutions(nothing, nothing, {}), learned)
    first, second = exceptions(found)
    assert first == "b modulo 7 is of a learnable form, yet its test accuracy is 40.0%."
    assert second.startswith("c modulo 7 is not learned, but 70.0% of its test pairs")


@pytest.mark.slow
def test_the_smoke_preset_ends_in_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(tmp_path / "models", tmp_path / "own")
    article = run(config("smoke"), places)
    assert [section.anchor for section in article.sections] == ["widths", "experts", "spectra", "phases", "learned"]
    assert "nan" not in article.answer
    assert "Expert networks compute any polynomial" in write_article(article, places.own).read_text()

    def trained(*_: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr(torch.optim, "AdamW", trained)
    monkeypatch.setattr("experiments.modular_polynomials.ExpertNetwork", trained)
    assert run(config("smoke"), places).answer == article.answer
