"""`hc-lens sweep-sparsity` and `hc-lens effective-size`: a tiny fine-tuning run through both, the released files, bad words."""

import json
from dataclasses import fields, replace
from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main
from hc_lens.cli.prune import with_steps
from hc_lens.cli.prune_options import PruneOptions
from hc_lens.pruning import PruneConfig
from hc_lens.pruning.advice import OPEN
from hc_lens.pruning.trained import TrainedGates

TINY = ["--limit", "200", "--steps", "20", "--batch-size", "16", "--checkpoint-every", "10", "--eval-rows", "5"]
SHORT = ["--workers", "1", "--prune-steps", "12", "--prune-batch-size", "8", "--means-rows", "30", "--max-rows", "5"]
GRID = [*SHORT, "--seeds", "42..43", "--sparsities", "0.7", "0.5"]


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model, fine-tuned for a moment."""
    place = tmp_path_factory.mktemp("grid") / "ft"
    assert main(["finetune", *TINY, "--out", str(place)]) == 0
    return str(place)


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert main(words) == 2
    return capsys.readouterr().err


def test_sweep_prunes_the_final_model_at_every_sparsity(
    finetuned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "sweep"
    words = ["sweep-sparsity", finetuned, *GRID, "--out", str(out)]
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "rank correlation of accuracy with sparsity" in printed
    assert str(out) in printed.splitlines()[-1]
    table = pd.read_csv(out / "accuracy_by_sparsity.csv")
    assert set(table["step"]) == {20}
    pruned = table[table["subnetwork"] != "full"]
    assert set(zip(pruned["seed"], pruned["target"], strict=True)) == {(s, t) for s in (42, 43) for t in (0.5, 0.7)}
    assert set(pd.read_csv(out / "sparsity_trend.csv")["group"]) == {"ID", "OOD"}
    assert "plotly" in (out / "sweep-sparsity.html").read_text()

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", never)
    assert main(words) == 0


def test_effective_size_along_one_rising_target_per_seed(
    finetuned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "sizes"
    assert main(["effective-size", finetuned, *GRID, "--path", "--steps", "10", "20", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "effective size in %, as coded, steps 10 to 20: in-domain" in printed
    sizes = pd.read_csv(out / "effective_size.csv")
    assert set(sizes["semantics"]) == {"as_coded", "as_written"}
    assert set(zip(sizes["step"], sizes["set"], strict=True)) == {(s, n) for s in (10, 20) for n in ("ID", "OOD", "mixed")}
    assert sizes["size"].between(30, 100).all()
    kinds = {json.loads(file.read_text())["kind"] for file in out.glob("step-*/prune*/run.json")}
    assert kinds == {"prune-path"}
    assert {file.name for file in out.glob("*.html")} == {"effective-size-as-coded.html", "effective-size-as-written.html"}


def test_effective_size_of_released_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = {"validation_matched": 0.9, "swap": 0.4}, {"validation_matched": 0.9, "swap": -1}
    (tmp_path / "mnli-acc_over_ft.json").write_text(json.dumps({"500": good | {"swap": 0.01}, "6500": good}))
    grid = {"42": {"500": {"25": good, "5": bad}, "6500": {"25": good | {"swap": 0.1}, "50": bad}}}
    (tmp_path / "mnli-sparsity-grid-acc.json").write_text(json.dumps(grid))
    out = tmp_path / "out"
    words = ["effective-size", "--published", str(tmp_path), "--semantics", "as_coded", "--out", str(out)]
    assert main(words) == 0
    told = "in-domain 75.0 to 50.0, out of domain 75.0 to 100.0"
    printed = capsys.readouterr().out
    assert f"as coded, steps 500 to 6500: {told}" in printed
    assert "out of domain, the full model is below 3 % at 1 of 2 checkpoints" in printed
    assert [file.name for file in out.glob("*.html")] == ["effective-size-as-coded.html"]


def test_bad_words_are_refused(finetuned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "no FINETUNED given" in complaint(capsys, "sweep-sparsity")
    assert "no FINETUNED given" in complaint(capsys, "effective-size")
    assert str(tmp_path) in complaint(capsys, "sweep-sparsity", str(tmp_path))
    assert "no checkpoint at step 7; it has [" in complaint(capsys, "effective-size", finetuned, "--steps", "7")
    for words, told in (
        (["--sparsities", "0.3", "0.3"], "all different, got [0.3, 0.3]"),
        (["--sparsities", "1.5"], "1.5"),
        (["--path", "--preset", "paper"], "drop one of them"),
        (["--drop", "3"], "--drop is an accuracy in (0, 1), got 3.0"),
        (["--prune-steps", "0"], "0"),
    ):
        assert told in complaint(capsys, "sweep-sparsity", finetuned, *words)
    assert "not both" in complaint(capsys, "effective-size", finetuned, "--published", str(tmp_path))
    assert "mnli-acc_over_ft.json" in complaint(capsys, "effective-size", "--published", str(tmp_path))


@pytest.mark.parametrize("command", ["sweep", "sweep-sparsity", "effective-size", "emergence"])
def test_every_setting_of_pruning_can_be_given(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    """So that what pruning advises can be followed."""
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    for each in fields(PruneConfig):
        name = each.name.replace("_", "-")
        assert ("--sparsit" if name == "sparsity" else f"--prune-{name}") in told, each.name


def test_settings_change_the_preset_and_nothing_else() -> None:
    assert PruneOptions().config(0.3) == PruneConfig.desk(0.3)
    asked = PruneOptions(preset="paper", prune_lr_multipliers=0.2, prune_bucket=True, prune_steps=100, prune_ramp_steps=40)
    assert asked.config(0.5) == replace(with_steps(PruneConfig.paper(0.5), 100), lr_multipliers=0.2, bucket=True, ramp_steps=40)
    options = {each.name.removeprefix("prune_") for each in fields(PruneOptions)}
    assert options ^ {each.name for each in fields(PruneConfig)} == {"preset", "sparsity"}
    with pytest.raises(ValueError, match="lr_gates: must be positive"):
        PruneOptions(prune_lr_gates=-1.0).config(0.5)


def test_a_sparsity_at_which_every_seed_collapses_is_a_gap_and_not_an_exit(
    finetuned: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def collapsed(self: TrainedGates) -> dict[int, str]:
        return {seed: OPEN for seed in self.seeds if self.config.sparsity == 0.5 or seed == 43}

    monkeypatch.setattr(TrainedGates, "collapsed", collapsed)
    rows = [*GRID[: GRID.index("--max-rows")], "--max-rows", "4", *GRID[GRID.index("--max-rows") + 2 :]]  # not asked before
    out = tmp_path / "sweep"
    with pytest.warns(UserWarning, match="seeds collapsed") as warned:
        assert main(["sweep-sparsity", finetuned, *rows, "--out", str(out)]) == 0
    printed, told = capsys.readouterr(), [str(each.message) for each in warned]
    assert "step 20, sparsity 0.5: 2 of 2 seeds collapsed (42, 43: every gate ended open), which leaves a gap" in told
    assert "step 20, sparsity 0.7: 1 of 2 seeds collapsed (43: every gate ended open), which leaves a gap" in told
    table = pd.read_csv(out / "accuracy_by_sparsity.csv")
    pruned = table[table["subnetwork"] != "full"]
    known = pruned.groupby(["seed", "target"])["accuracy"].agg(lambda column: column.notna().all())
    assert known.to_dict() == {(42, 0.5): False, (43, 0.5): False, (42, 0.7): True, (43, 0.7): False}
    header = next(text for text in printed.out.splitlines() if "group" in text and "full" in text)
    assert "0.5" in header, "the empty column is shown"
    assert (out / "sweep-sparsity.html").exists()
    sizes = ["effective-size", finetuned, *rows, "--path", "--steps", "10", "20", "--out", str(tmp_path / "sizes")]
    with pytest.warns(UserWarning, match=r"sparsity 0\.5\.\.0\.7: 1 of 2 seeds collapsed"):
        assert main(sizes) == 0
