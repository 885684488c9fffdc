"""`hc-lens ablate` with all its questions, used as a newcomer would."""

from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main

HEADS = ["--heads", "L0.H0", "L1.H1", "L2.H2", "--max-rows", "4", "--controls", "1"]


@pytest.fixture(scope="module")
def pruned(line: Path) -> Path:
    return line / "pruned"


def test_every_question_leaves_its_table_its_figure_and_a_sentence(
    pruned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out"
    questions = ["--estimate", "--pairs", "--greedy", "2", "--removal", "--dependence"]
    assert main(["ablate", str(pruned), *HEADS, *questions, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    for part in (
        "the 10 of 36 that cost most",
        "Rank correlation of the estimate with the exact ablation of every head",
        "the estimate ranks the heads as ablation does to",
        "OOD mean: margin (nats) that a pair costs beyond its two heads",
        "of 3 pairs interact (OOD mean, 95 %)",
        "head by head (margin, rows that did not choose it)",
        "cost most out of domain:",
        "against its subnetworks (OOD mean)",
        "later heads change more without all together than without random heads",
    ):
        assert part in printed, part
    headline = printed.strip().splitlines()[-2]
    assert headline.startswith("ablating the chosen heads")
    assert headline.count(";") == 5
    for name in (
        "effects",
        "additivity",
        "estimates",
        "agreement",
        "interactions",
        "domains",
        "greedy",
        "removal",
        "dependence",
    ):
        table = pd.read_csv(out / f"{name}.csv")
        if name == "effects":  # with the mean of all other heads, whose interval is that of a mean
            mean = table["group"].str.startswith("mean of")
            assert mean.any()
            table = table[~mean]
        assert len(table) == len(pd.read_parquet(pruned / f"{name}.parquet"))
    for name in ("pairs", "greedy", "dependence"):
        assert "plotly" in (out / f"{name}.html").read_text().lower()


def test_greedy_may_choose_from_all_heads(pruned: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ablate", str(pruned), *HEADS, "--greedy", "1", "--greedy-from", "all"]) == 0
    best = pd.read_parquet(pruned / "greedy.parquet")["added"].iloc[0]
    assert f"greedily {best} cost most" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--heads", "L0.H0", "--pairs"], "pairs need at least two different heads"),
        (["--heads", "L0.H0", "L1.H1", "--greedy", "3"], "has 1..2 of the 2 candidates, got size 3"),
        (["--heads", "L0.H0", "--greedy", "-1"], "--greedy must be at least 0, got -1"),
        (["--heads", "L3.H0", "--dependence"], "no block comes after the model's last one"),
    ],
)
def test_questions_that_make_no_sense_are_refused(
    pruned: Path, words: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["ablate", str(pruned), *words, "--max-rows", "4", "--controls", "1"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert "Traceback" not in error


def test_the_estimate_is_kept_beside_the_ablations_it_is_compared_with(pruned: Path) -> None:
    assert main(["ablate", str(pruned), *HEADS, "--estimate"]) == 0
    estimates, effects = (pd.read_parquet(pruned / f"{name}.parquet") for name in ("estimates", "effects"))
    assert list(estimates.columns) == list(effects.columns)
    assert set(estimates["scale"]) == {"margin"}
    agreement = pd.read_parquet(pruned / "agreement.parquet")
    assert set(agreement["units"]) == {32}
    assert agreement["spearman"].between(-1, 1).all()
    assert set(agreement["case"]) == set(estimates["case"])
