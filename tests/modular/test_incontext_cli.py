"""`hc-lens modular icl` as a user runs it, and the experiment's smoke preset."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from experiments.modular_in_context import config, never, run, solved
from experiments.shared.command import Places
from hc_lens.cli import modular_icl
from hc_lens.modular.incontext.evaluation import SETS
from hc_lens.modular.incontext.training import InContextRun
from hc_lens.report import write_article
from hc_lens.runs import Run

TINY = [
    *("--p", "5", "--tasks", "8", "--shots", "4", "--depth", "1", "--width", "16", "--heads", "2"),
    *("--steps", "10", "--every", "5", "--batch", "16", "--device", "cpu"),
]


def test_it_prints_accuracy_by_shot_on_four_sets_and_the_phase(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modular_icl.main([*TINY, "--out", str(tmp_path / "run")])
    first = capsys.readouterr().out
    assert "unseen tasks, test examples" in first
    assert "phase: none (from 0.75 on): " in first
    assert "chance 0.200" in first
    modular_icl.main([*TINY, "--out", str(tmp_path / "run")])  # finished: only read
    assert capsys.readouterr().out == first


def test_more_tasks_than_there_are_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"n_tasks must be in 1\.\.24.*got 28"):
        modular_icl.main([*TINY, "--tasks", "28", "--batch", "28", "--out", str(tmp_path / "run")])


@pytest.mark.slow
def test_the_smoke_preset_tells_its_search(tmp_path: Path) -> None:
    places = Places(tmp_path / "models", tmp_path / "own")
    article = run(config("smoke", 40.0), places, torch.device("cpu"))
    assert "None of 2 settings generalizes out of distribution" in article.answer
    page = write_article(article, places.own).read_text()
    assert "Phases over the number of pre-training tasks" in page
    again = run(config("smoke", 40.0), places, torch.device("cpu"))
    assert again.answer == article.answer


@pytest.mark.parametrize("preset", ["smoke", "desk", "paper"])
def test_every_setting_of_a_preset_can_be(preset: str) -> None:
    for _, candidate in config(preset, 40.0).candidates:  # pyright: ignore[reportArgumentType]
        assert len(candidate.data.tasks().seen) == candidate.data.n_tasks
        assert len(candidate.data.examples().train) >= candidate.data.n_shots
        assert candidate.training.batch_size % candidate.data.n_tasks == 0


def test_a_setting_is_solved_by_two_checkpoints_in_a_row(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:

    def evaluations(*accuracies: float) -> pd.DataFrame:
        rows = [{**of._asdict(), "step": i, "shot": 1, "accuracy": a} for i, a in enumerate(accuracies) for of in SETS]
        return pd.DataFrame(rows)

    found = InContextRun(Run.at(tmp_path, "modular-in-context", {}), config("smoke", 1.0).candidates[0][1])
    for accuracies, expected in (((0.1,), False), ((0.9,), False), ((0.9, 0.1, 0.9), False), ((0.1, 0.8, 0.8), True)):
        monkeypatch.setattr(InContextRun, "evaluations", lambda self, a=accuracies: evaluations(*a))
        assert solved(found) is expected
        assert never(found) is False
