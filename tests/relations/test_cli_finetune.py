"""`hc-lens relations finetune`, as a newcomer would use it."""

from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main
from tests.relations.terrain import language_model, table_file

TEMPLATE = ["--template", "{} is"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("model") / "tiny"
    language_model().save_pretrained(place)
    return str(place)


def test_labels_that_follow_a_word_of_the_subject_are_generalized(
    model: str, working_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    table_file(working_directory)
    words = ["relations", "finetune", model, "terrain.csv", *TEMPLATE, "--assignments", "0..1", "--lr", "0.003"]
    assert main([*words, "--max-epochs", "60", "--out", "found"]) == 0
    printed = capsys.readouterr()
    assert printed.err.count("terrain, assignment") == 2
    runs = pd.read_csv("found/runs.csv")
    assert runs["assignment"].tolist() == [0, 1]
    assert (runs["train_accuracy"] == 1).all()
    assert (runs["epochs"] < 60).all()
    assert (runs["accuracy"] > 0.8).all()
    row = pd.read_csv("found/generalization.csv").iloc[0]
    assert row["runs"] == 2
    assert row["accuracy"] == pytest.approx(runs["accuracy"].mean())
    assert row["above"] == pytest.approx(2 * row["accuracy"] - 1)  # two answers of equally many subjects
    assert "not all right" not in printed.out
    monkeypatch.setattr("hc_lens.relations.finetune.finetune_relation", None)  # nothing is trained again
    assert main([*words, "--max-epochs", "60", "--out", "found"]) == 0
    assert capsys.readouterr().out == printed.out


def test_training_that_ends_too_early_is_said(model: str, working_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table_file(working_directory)
    assert main(["relations", "finetune", model, "terrain.csv", *TEMPLATE, "--lr", "1e-9", "--max-epochs", "1"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2].endswith("; training subjects not all right: terrain")
    assert printed[-1].startswith("in runs/relations-finetune-")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--category", "animal"], "did you mean 'animals'"),
        (["--first-block", "2"], "first_block must be in 0..1"),
        (["--lr", "0"], "lr must be positive"),
        (["--train-share", "1"], "train_share must be in"),
        (["--seeds", "1", "1"], "seeds must be all different, 1 comes more than once"),
        (["--category", "fruits"], "the tokenizer tells only 1 of the 24 fruits apart"),
        (["--prompt", "->"], "a template has one slot"),
    ],
)
def test_what_cannot_be_done_is_said(
    model: str, working_directory: Path, capsys: pytest.CaptureFixture[str], words: list[str], told: str
) -> None:
    table_file(working_directory)
    assert main(["relations", "finetune", model, "terrain.csv", *TEMPLATE, *words]) == 2
    assert told in capsys.readouterr().err
