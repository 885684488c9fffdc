"""A seed whose gates collapse, on the command line: said wherever its run is used, and in nobody's way."""

from pathlib import Path

import pytest

from hc_lens.cli import main
from hc_lens.pruning.advice import CLOSED
from hc_lens.pruning.trained import TrainedGates

SHORT = ["--steps", "12", "--gate-std", "2", "--batch-size", "8", "--means-rows", "50"]
TOLD = "1 of 3 seeds collapsed (44: every gate ended closed)"


def collapsing(monkeypatch: pytest.MonkeyPatch, *seeds: int) -> None:
    """Let these seeds end as if all their gates had closed."""
    monkeypatch.setattr(TrainedGates, "collapsed", lambda self: {seed: CLOSED for seed in seeds if seed in self.seeds})


def test_one_collapsed_seed_is_reported_and_costs_the_others_nothing(
    line: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collapsing(monkeypatch, 44)
    run = str(tmp_path / "pruned")
    words = ["prune", str(line / "ft"), *SHORT, "--out", run]
    assert main([*words, "--seeds", "42..44"]) == 0
    printed = capsys.readouterr()
    assert "2 subnetworks at sparsity 0.500: they keep" in printed.out
    assert TOLD in printed.out
    assert f"warning: {TOLD}" in printed.err
    assert f"delete {run}/outcome/seed-44.json to train it again" in printed.err
    for command in (["evaluate", run, "--max-rows", "5"], ["core", run, "--k", "1"], ["show", run]):
        assert main(command) == 0
        assert TOLD in capsys.readouterr().out, command
    assert main(["report", run]) == 0
    page = (tmp_path / "pruned" / "report.html").read_text()
    assert page.count(TOLD) >= 2, "among the facts and in a finding"
    assert main([*words, "--seeds", "42", "43"]) == 0
    capsys.readouterr()
    assert main(["evaluate", run, "--max-rows", "5"]) == 0
    capsys.readouterr()
    export = ["export", run, "--out", str(tmp_path / "model"), "--seed"]
    assert main([*export, "44"]) == 2
    assert "1 of 1 seeds collapsed (44: every gate ended closed), so there is no subnetwork" in capsys.readouterr().err
    assert main([*export, "99"]) == 2
    assert f"{run} has no seed 99: it has 42, 43, 44" in capsys.readouterr().err
    assert main([*export, "43"]) == 0


def test_if_all_seeds_collapse_prune_says_why_and_keeps_it(
    line: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    collapsing(monkeypatch, 42, 43)
    run = str(tmp_path / "pruned")
    words = ["prune", str(line / "ft"), *SHORT, "--out", run, "--seeds"]
    assert main([*words, "42", "43"]) == 1
    said = capsys.readouterr().err
    assert "2 of 2 seeds collapsed (42, 43: every gate ended closed)" in said
    assert "too sparse: raise steps or lower lr_multipliers (now 12 and 1)" in said
    assert main(["evaluate", run]) == 2
    assert "2 of 2 seeds collapsed" in capsys.readouterr().err
    assert main(["show", run]) == 0
    assert "2 of 2 seeds collapsed" in capsys.readouterr().out
    assert main([*words, "45"]) == 0
    assert main(["evaluate", run, "--max-rows", "5"]) == 0
    assert "2 of 3 seeds collapsed (42, 43: every gate ended closed)" in capsys.readouterr().out
