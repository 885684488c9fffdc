"""`hc-lens attention` on a small pruning run: tables and a page in the run, computed once, and bad input refused in a line."""

from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main


@pytest.fixture(scope="module")
def pruned(line: Path) -> Path:
    return line / "pruned"


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    return printed.err


def test_chosen_heads_get_a_table_a_page_and_a_headline(
    pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["attention", str(pruned), "--heads", "L1.H2", "L0.H3", "--max-rows", "4", "--case", "in_domain"]
    assert main([*words, "--out", str(tmp_path / "tables")]) == 0
    printed = capsys.readouterr().out
    assert "what the chosen heads mostly attend to" in printed
    assert printed.index("L1.H2") < printed.index("L0.H3"), "in the order asked for"
    assert "of 2 chosen heads:" in printed.splitlines()[-2]
    scores = pd.read_parquet(pruned / "attention.parquet")
    assert set(scores["case"]) == {"in_domain"}
    assert scores["n_rows"].max() == 4
    assert len(pd.read_parquet(pruned / "profiles.parquet")) == 32
    assert {file.name for file in (tmp_path / "tables").iterdir()} == {
        *("attention.csv", "attention_groups.csv", "profiles.csv", "profiles.html", "scores.html")
    }
    page = (pruned / "attention.html").read_text()
    assert "plotly" in page
    assert "head L1.H2" in page
    assert "<script src=" not in page, "self-contained"


def test_the_same_command_again_measures_nothing(pruned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["attention", str(pruned), "--heads", "L1.H2", "--max-rows", "3", "--case", "in_domain"]
    assert main(words) == 0

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("measured again")

    monkeypatch.setattr("hc_lens.analysis.attention_scores", never)
    assert main(words) == 0
    assert main([*words, "--pair", "the judge slept", "the judge <i>slept</i>"]) == 0, "another pair needs no new scores"
    page = (pruned / "attention.html").read_text()
    assert "<i>slept" not in page


def test_what_cannot_be_asked_for_is_said_in_a_line(pruned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(pruned)
    assert "only heads can be given" in complaint(capsys, "attention", run, "--heads", "L1.MLP")
    assert "L9.H0 is not in this model" in complaint(capsys, "attention", run, "--heads", "L9.H0")
    assert "--case hans: the task has the cases in_domain" in complaint(
        capsys, "attention", run, "--heads", "L0.H0", "--case", "hans"
    )
    assert "--max-rows must be at least 1" in complaint(capsys, "attention", run, "--heads", "L0.H0", "--max-rows", "0")
    assert "find the core first" in complaint(capsys, "attention", run)
