"""`hc-lens modular corrupted`, as a newcomer would use it."""

import pandas as pd
import pytest

from hc_lens.cli.modular_corrupted import main

TINY = ["--p", "23", "--neurons", "60", "--alpha", "0.8", "--xi", "0.2", "--weight-decay", "5", "--steps", "60"]


def test_one_run_is_trained_told_and_read_again(working_directory, capsys):
    main([*TINY, "--out", "run"])
    printed = capsys.readouterr().out
    assert "phase: " in printed
    assert "IPR >= 0.5" in printed
    assert "random" in printed
    assert printed.strip().endswith("in run")
    for name in ("accuracies", "pruning_curves", "ipr"):
        assert "plotly" in (working_directory / "run" / f"{name}.html").read_text().lower()
    table = pd.read_csv(working_directory / "run" / "threshold.csv")
    assert table.loc[0, "removed"] == 0
    assert table.loc[1, "removed"] == table.loc[2, "removed"]
    main([*TINY, "--out", "run"])
    assert capsys.readouterr().out == printed


def test_without_a_directory_the_run_is_named_after_what_is_asked(working_directory):
    main([*TINY[:-1], "3"])
    assert len(list((working_directory / "runs").glob("corrupted-*"))) == 1


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--p", "98"], "p must be a prime, got 98; the nearest: 97 and 101"),
        (["--alpha", "1"], "alpha, the share of 9409 pairs trained on"),
        (["--xi", "1.2"], "xi, the share of training labels that is corrupted, must be in"),
        (["--threshold", "2"], "--threshold: an IPR is in"),
        (["--weight-decay", "-1"], "weight_decay must not be negative"),
        (["--neurons", "0"], "--neurons must be at least 1, got 0"),
    ],
)
def test_what_makes_no_sense_is_refused_before_training(working_directory, words, told):
    with pytest.raises(ValueError, match=told):
        main(words)
    assert not list(working_directory.iterdir())
