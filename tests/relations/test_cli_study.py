"""`hc-lens relations study`, as a newcomer would use it."""

import json
from collections.abc import Sequence
from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main
from hc_lens.relations.relation import Relation
from hc_lens.relations.world import Planted, planted_world
from tests.relations.test_world import SMALL

QUICK = ["--seeds", "0", "--assignments", "0", "--shots", "0", "--max-epochs", "2", "--lr", "0.003"]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted_world(SMALL, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def studied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the tests of this file keep one study, which each of them asks for and the first one does."""
    return tmp_path_factory.mktemp("studied") / "found"


def files_of(relations: Sequence[Relation], folder: Path) -> list[str]:
    """The relations in LRE's format."""
    files = [folder / f"{relation.name}.json" for relation in relations]
    for file, relation in zip(files, relations, strict=True):
        samples = [{"subject": subject, "object": answer} for subject, answer in relation.facts]
        file.write_text(json.dumps({"name": relation.name, "prompt_templates": relation.templates, "samples": samples}))
    return [str(file) for file in files]


def test_a_study_ends_in_a_correlation_a_table_and_a_report_and_is_not_done_twice(
    world: Planted, studied: Path, working_directory: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(world.relations, working_directory)
    words = ["relations", "study", str(world.directory), *files, *QUICK, "--out", str(studied)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "readability and generalization: r = " in printed
    assert f"over {len(files)} relations" in printed
    table = pd.read_csv(studied / "relations.csv")
    assert table["relation"].tolist() == [relation.name for relation in world.relations]
    page = (studied / "report.html").read_text(encoding="utf-8")
    assert "does readability before fine-tuning predict generalization" in page
    monkeypatch.setattr("hc_lens.relations.measured.finetune_relation", None)  # nothing is trained again
    assert main(words) == 0
    assert capsys.readouterr().out == printed


def test_counts_are_held_fixed(
    world: Planted, studied: Path, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(world.relations, working_directory)
    subjects = sorted({subject for relation in world.relations for subject in relation.subjects})
    counts = pd.DataFrame({"subject": subjects, "count": range(1, len(subjects) + 1)})
    counts.to_csv("counts.csv", index=False)
    words = ["relations", "study", str(world.directory), *files, *QUICK, "--out", str(studied), "--counts", "counts.csv"]
    assert main(words) == 0
    assert "log frequency" in (studied / "report.md").read_text(encoding="utf-8")
    capsys.readouterr()

    counts.iloc[:-1].to_csv("counts.csv", index=False)
    assert main(words) == 2
    assert f"counts.csv has no count for '{subjects[-1]}'" in capsys.readouterr().err
    counts.replace({"count": {3: 0}}).to_csv("counts.csv", index=False)
    assert main(words) == 2
    assert "counts.csv, line 4: count must be a number above 0, got '0'" in capsys.readouterr().err


def test_too_few_relations_and_an_unknown_category_are_refused(
    world: Planted, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = files_of(world.relations, working_directory)
    assert main(["relations", "study", str(world.directory), *files[:3], *QUICK]) == 2
    assert "at least 4 relations, got 3" in capsys.readouterr().err
    assert main(["relations", "study", str(world.directory), *files[:4], *QUICK, "--category", "fruit"]) != 0
    assert "did you mean 'fruits'" in capsys.readouterr().err
