"""Numbers that no command can use are refused at once, by option, value and what is allowed, before anything is written."""

import time
from pathlib import Path

import pytest

from hc_lens.cli import main
from hc_lens.cli.options import MOST_SEEDS, TaskChoice, read_seeds

TASK = ["--task", "synthetic"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["finetune", "--limit", "0"], "--limit must be at least 1, got 0"),
        (["finetune", "--eval-rows", "-1"], "--eval-rows must be at least 1, got -1"),
        (["finetune", "--seed", "-1"], "--seed must be at least 0, got -1"),
        (["finetune", "--task-seed", "-1"], "--task-seed must be at least 0, got -1"),
        (["finetune", "--weight-decay", "nan"], "weight_decay must be finite, got nan"),
        (["finetune", "--clip", "inf"], "--clip must be a finite number, got inf"),
        (["prune", "x", *TASK, "--means-rows", "-5"], "--means-rows must be at least 1, got -5"),
        (["prune", "x", *TASK, "--sparsity", "nan"], "sparsity: the target must be in (0, 1), got nan"),
        (["prune", "x", *TASK, "--lr-gates", "nan"], "lr_gates: must be positive and finite, got nan"),
        (["prune", "x", *TASK, "--batch-size", "0"], "batch_size: must be at least 1, got 0"),
        (["prune", "x", *TASK, "--seeds", "-1"], "seeds must not be negative, got -1"),
        (["prune", "x", *TASK, "--seeds", "1..200000000"], "'1..200000000' is too many seeds: at most 10000 in all"),
        (["prune", "x", *TASK, "--seeds", "3", "3"], "seeds must be all different, 3 comes more than once"),
        (["evaluate", "x", "--max-rows", "0"], "--max-rows must be at least 1, got 0"),
        (["evaluate", "x", "--batch-size", "0"], "--batch-size must be at least 1, got 0"),
        (["core", "x", "--permutations", "0"], "--permutations must be at least 1, got 0"),
        (["ablate", "x", "--controls", "-1"], "--controls must be at least 0, got -1"),
        (["attention", "x", "--max-rows", "-1"], "--max-rows must be at least 1, got -1"),
        (["compare", "x", "y", "--k", "0"], "--k must be at least 1, got 0"),
        (["sweep", "x", "--workers", "0"], "--workers must be at least 1, got 0"),
        (["sweep-sparsity", "x", "--drop", "nan"], "--drop must be a finite number, got nan"),
        (["sweep-sparsity", "x", "--sparsities", "0.5", "inf"], "--sparsities must be a finite number, got inf"),
        (["effective-size", "x", "--tolerance", "nan"], "--tolerance must be a finite number, got nan"),
        (["emergence", "x", "--sparsity", "nan"], "--sparsity must be a finite number, got nan"),
        (["export", "x", "--seed", "-1", "--out", "y"], "--seed must be at least 0, got -1"),
        (["modular", "corrupted", "--p", "1000003"], "p must be a prime of at most 1009"),
        (["modular", "icl", "--every", "0"], "--every must be at least 1, got 0"),
        (["relations", "probe", "x", "--folds", "0"], "--folds must be at least 1, got 0"),
        (["demo", "--prune-steps", "0"], "--prune-steps must be at least 1, got 0"),
    ],
)
def test_numbers_that_cannot_be_used_are_refused_by_name(
    words: list[str], says: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    printed = capsys.readouterr().err
    assert says in " ".join(printed.replace("│", " ").replace("|", " ").split())
    assert "Traceback" not in printed
    assert not list(working_directory.iterdir()), "nothing was written"


def test_a_huge_range_of_seeds_is_not_counted_out() -> None:
    start = time.perf_counter()
    for word in ("1..200000000", f"0..{10**30}", f"0..{MOST_SEEDS}"):
        with pytest.raises(ValueError, match="too many seeds"):
            read_seeds([word])
    with pytest.raises(ValueError, match="too many seeds"):
        read_seeds(["0..9998", "10000..10001"])
    assert len(read_seeds([f"0..{MOST_SEEDS - 1}"])) == MOST_SEEDS
    assert time.perf_counter() - start < 1


def test_a_case_named_twice_is_refused_rather_than_the_last_taken(
    working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, label in (("a", "yes"), ("b", "no")):
        rows = "".join(f"{name} {i}\tx\t{('yes', 'no')[i % 2]}\n" for i in range(20))
        (working_directory / f"{name}.tsv").write_text(f"premise\thypothesis\tlabel\n{rows}{name}\tx\t{label}\n")
    words = ["finetune", "--task", "a.tsv", "--label-names", "yes", "no"]
    assert main([*words, "--ood", "x=a.tsv", "x=b.tsv"]) == 2
    assert "--ood: names of cases must be all different, 'x' comes more than once" in capsys.readouterr().err
    assert main([*words, "--ood", "held-out=b.tsv"]) == 2
    assert "['held-out'] are both in-domain and out-of-domain cases" in capsys.readouterr().err
    assert main([*words, "--columns", "premise", "premise", "label"]) == 2
    assert "columns must be all different, 'premise' comes more than once" in capsys.readouterr().err


def test_a_limit_of_nothing_is_no_limit_in_the_library_either() -> None:
    with pytest.raises(ValueError, match="limit must be at least 1, got 0"):
        TaskChoice(task="synthetic", limit=0).load()


@pytest.mark.parametrize("out", ["notes.txt", "notes.txt/below/it"])
@pytest.mark.parametrize(
    "words", [["finetune"], ["prune", "x", *TASK], ["evaluate", "x"], ["ablate", "x"], ["demo"], ["modular", "icl"]]
)
def test_results_cannot_go_into_a_file(
    words: list[str], out: str, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_directory / "notes.txt").write_text("mine")
    assert main([*words, "--out", out]) == 2
    assert f"--out {out}: notes.txt is a file, results need a directory" in capsys.readouterr().err
    assert (working_directory / "notes.txt").read_text() == "mine"
