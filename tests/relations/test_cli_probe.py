"""`hc-lens relations`: its overview, and the probe as a newcomer uses it."""

from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main
from tests.relations.terrain import language_model, table_file


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny"
    language_model().save_pretrained(place)
    return str(place)


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(["relations", *words]) == 2
    return capsys.readouterr().err


def test_the_overview_names_the_questions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["relations"]) == 0
    printed = capsys.readouterr().out
    assert "  probe " in printed
    assert "  finetune " in printed
    assert "did you mean 'probe'" in complaint(capsys, "prob")


def test_what_the_last_word_of_a_subject_gives_away_is_read_at_the_embedding(
    model: str, working_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table_file(working_directory)
    words = ["relations", "probe", model, "terrain.csv", "--template", "{} is", "--folds", "3", "--out", "found"]
    assert main(words) == 0
    printed = capsys.readouterr()
    assert "terrain: held-out accuracy 1.000" in printed.err
    row = pd.read_csv("found/readability.csv").iloc[0]
    assert (row["train"], row["tested"], row["answers"]) == (16, 16, 2)
    assert (row["held_out"], row["majority"], row["above"]) == (1, 0.5, 1)
    assert row["layer"] == 0
    assert row["selectivity"] == pytest.approx(1 - row["control"], abs=1e-6)
    assert row["control"] < 1
    profile = pd.read_csv("found/layer_profile.csv")
    assert profile["layer"].tolist() == [0, 1, 2]
    assert profile["held_out"][0] == 1
    assert "held-out accuracy by layer" in printed.out
    assert printed.out.splitlines()[-1] == "in found"
    assert "plotly" in Path("found/layer_profile.html").read_text()
    monkeypatch.setattr("hc_lens.relations.probe.readability", None)  # nothing is probed again
    assert main(words) == 0
    assert capsys.readouterr().out == printed.out
    assert "holds a run with another specification" in complaint(capsys, *words[1:], "--at", "prompt")


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_the_prompts_last_word_says_nothing_at_the_embedding(model: str, working_directory: Path) -> None:
    table_file(working_directory)
    words = ["relations", "probe", model, "terrain.csv", "--template", "{} is", "--at", "prompt", "--out", "found"]
    assert main(words) == 0
    profile = pd.read_csv("found/layer_profile.csv").set_index("layer")["held_out"]
    assert profile[0] == 0.5
    assert profile[2] > 0.5


def test_what_cannot_be_probed_is_said_before_the_model_is_read(
    working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table_file(working_directory)
    nowhere = ["probe", "no-such-model"]
    assert "name at least one file" in complaint(capsys, *nowhere)
    assert "needs a template" in complaint(capsys, *nowhere, "terrain.csv")
    template = ["--template", "{} is"]
    assert "two relations are called 'terrain'" in complaint(capsys, *nowhere, "terrain.csv", "terrain.csv", *template)
    assert "0 of its answers have at least 20" in complaint(capsys, *nowhere, "terrain.csv", *template, "--min-subjects", "20")
    assert "no relations in" in complaint(capsys, *nowhere, ".")
    assert "no such file: lake.csv" in complaint(capsys, *nowhere, "lake.csv", *template)
    assert "no-such-model" in complaint(capsys, *nowhere, "terrain.csv", *template)
