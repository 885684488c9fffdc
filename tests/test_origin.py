"""What a run was made from: kept beside it, the same however the run was made, and never exchanged without a word."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from hc_lens.cli import main
from hc_lens.data import Split, Task, load_task, synthetic_nli
from hc_lens.data.sampling import limited
from hc_lens.data.stored import load_stored_task
from hc_lens.data.synthetic import LABELS, synthetic_config, synthetic_tokenizer
from hc_lens.models import new_model
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig, evaluation_of, means_into, open_pruned, prune_into
from hc_lens.runs import Run, RunError
from hc_lens.sample import Measuring
from hc_lens.study import StudyConfig, embedded_model, run_study
from hc_lens.sweep import chosen_checkpoints, prune_checkpoints_into
from hc_lens.train import TrainConfig, finetune

TRAIN = ["--steps", "6", "--batch-size", "8", "--warmup-steps", "1", "--checkpoint-every", "3", "--eval-rows", "4"]
SHORT = ["--steps", "12", "--gate-std", "2", "--batch-size", "8", "--seeds", "42..43", "--means-rows", "20"]


def write_pairs(file: Path, split: Split, labels: tuple[str, ...] = LABELS) -> None:
    rows = zip(split.first, split.second, split.labels, strict=True)
    lines = "".join(f"{first}\t{second}\t{labels[label]}\n" for first, second, label in rows)
    file.write_text(f"premise\thypothesis\tlabel\n{lines}")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a file of pairs, one of cases, a small model, and what `finetune` and `prune` made of them."""
    root = tmp_path_factory.mktemp("made")
    task = synthetic_nli(n_train=80, n_id=10, n_ood_per_case=10)
    write_pairs(root / "pairs.tsv", task.train)
    write_pairs(root / "swap.tsv", next(iter(task.ood.values())))
    config = synthetic_config(LABELS)
    config.update({"num_hidden_layers": 2, "hidden_size": 16, "num_attention_heads": 4, "intermediate_size": 24})
    new_model(config, tokenizer=synthetic_tokenizer()).save_pretrained(root / "start")
    assert main(finetuning(root)) == 0
    assert main(["prune", str(root / "ft"), *SHORT, "--out", str(root / "pruned")]) == 0
    return root


def finetuning(root: Path) -> list[str]:
    task = ["--task", str(root / "pairs.tsv"), "--ood", f"swap={root / 'swap.tsv'}", "--label-names", *LABELS]
    return ["finetune", "--model", str(root / "start"), *TRAIN, *task, "--out", str(root / "ft")]


@pytest.fixture
def root(made: Path, tmp_path: Path) -> Path:
    """A copy of the same, whose data files are its own, too: moved as a whole, nothing is noticed."""
    copy = tmp_path / "copy"
    shutil.copytree(made, copy)
    for file in (copy / "ft" / "task" / "task.json",):
        file.write_text(file.read_text().replace(str(made), str(copy)))
    return copy


def evaluated(run: Path) -> pd.DataFrame:
    assert main(["evaluate", str(run)]) == 0
    return evaluation_of(open_pruned(run))


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    error = capsys.readouterr().err
    assert "Traceback" not in error
    return error


def warned(recwarn: pytest.WarningsRecorder) -> str:
    """What was warned of so far, but for what others warn of."""
    return "\n".join(str(each.message) for each in recwarn.list if each.category is UserWarning)


def test_the_rows_of_a_run_outlive_a_change_of_the_files_which_is_told(root: Path, recwarn: pytest.WarningsRecorder) -> None:
    before = evaluated(root / "pruned")
    assert warned(recwarn) == ""
    shutil.rmtree(root / "pruned" / "evaluation")
    swapped = synthetic_nli(n_train=80, n_id=10, n_ood_per_case=10)
    write_pairs(root / "swap.tsv", next(iter(swapped.ood.values())).take(range(5)), tuple(reversed(LABELS)))
    after = evaluated(root / "pruned")
    pd.testing.assert_frame_equal(after, before, check_exact=True)
    told = warned(recwarn)
    assert f"{root / 'swap.tsv'} had" in told
    assert f"kept in {root / 'ft' / 'task'}, are used" in told
    assert str(root / "pairs.tsv") not in told, "what has not changed is not told"


def test_appended_rows_do_not_redraw_the_held_out_split(root: Path, recwarn: pytest.WarningsRecorder) -> None:
    kept = load_stored_task(root / "ft" / "task")
    more = synthetic_nli(n_train=120, n_id=10, n_ood_per_case=10, seed=1)
    with (root / "pairs.tsv").open("a") as file:
        file.writelines(f"{a}\t{b}\t{LABELS[label]}\n" for a, b, label in zip(*_columns(more.train), strict=True))
    redrawn = load_task(root / "pairs.tsv", label_names=LABELS)
    assert set(redrawn.in_domain["held-out"].first) & set(kept.train.first), "read again, trained pairs would be evaluated"
    assert main(["prune", str(root / "ft"), *SHORT, "--sparsity", "0.6", "--out", str(root / "more")]) == 0
    assert f"{root / 'pairs.tsv'} had" in warned(recwarn)
    assert Origin.of(Run.open(root / "more")).load_task().fingerprint == kept.fingerprint
    assert not set(kept.in_domain["held-out"].first) & set(kept.train.first)


def _columns(split: Split) -> tuple[tuple[str, ...], tuple[str, ...], tuple[int, ...]]:
    return split.first, split.second, split.labels


def test_fine_tuning_on_changed_files_into_the_same_run_is_refused_naming_them(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(finetuning(root)) == 0, "as it was, it is only loaded"
    text = (root / "pairs.tsv").read_text().splitlines()
    (root / "pairs.tsv").write_text("\n".join(text[: len(text) // 2]) + "\n")
    told = complaint(capsys, *finetuning(root))
    assert "holds a run with another specification" in told
    assert f"{root / 'pairs.tsv'} had" in told
    assert "swap.tsv" not in told


def test_a_fine_tuned_model_with_other_weights_is_refused_and_made_again_by_fine_tuning(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = evaluated(root / "pruned")
    other = new_model(synthetic_config(LABELS), tokenizer=synthetic_tokenizer(), seed=9)
    other.save_pretrained(root / "ft" / "model")
    for words in (["evaluate", str(root / "pruned")], ["prune", str(root / "ft"), *SHORT, "--out", str(root / "x")]):
        assert "model was changed since: its weights had SHA-256" in complaint(capsys, *words)
    assert not (root / "x").exists()
    assert main(finetuning(root)) == 0
    pd.testing.assert_frame_equal(evaluated(root / "pruned"), before, check_exact=True)


def test_damaged_rows_are_refused_and_kept_again_by_fine_tuning(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = root / "ft" / "task" / "pairs.parquet"
    table = pd.read_parquet(rows)
    table.assign(label=0).to_parquet(rows)
    assert "task was changed: its rows have fingerprint" in complaint(capsys, "evaluate", str(root / "pruned"))
    rows.unlink()
    assert "pairs.parquet does not exist" in complaint(capsys, "evaluate", str(root / "pruned"))
    assert main(finetuning(root)) == 0
    pd.testing.assert_frame_equal(pd.read_parquet(rows), table)
    assert main(["evaluate", str(root / "pruned")]) == 0


def test_rows_are_kept_once_for_all_runs_and_the_whole_can_be_moved(root: Path, tmp_path: Path) -> None:
    assert main(["prune", str(root / "ft"), *SHORT, "--sparsity", "0.6", "--out", str(root / "other")]) == 0
    assert len(list(root.rglob("pairs.parquet"))) == 1
    root.rename(tmp_path / "elsewhere")
    assert main(["evaluate", str(tmp_path / "elsewhere" / "other")]) == 0


def test_a_model_directory_is_pruned_with_rows_kept_beside_its_runs(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--task", str(root / "pairs.tsv"), "--label-names", *LABELS, *SHORT, "--seeds", "42"]
    assert main(["prune", str(root / "ft" / "model"), *words, "--out", str(root / "alone" / "pruned")]) == 0
    before = evaluated(root / "alone" / "pruned")
    (root / "pairs.tsv").write_text("premise\thypothesis\tlabel\n")
    pd.testing.assert_frame_equal(evaluated(root / "alone" / "pruned"), before)
    assert len(list((root / "alone").glob("task-*/pairs.parquet"))) == 1


def test_options_of_a_task_that_is_not_named_are_refused(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["prune", str(root / "ft"), *SHORT, "--limit", "10", "--out", str(root / "x")]
    assert "has its own task" in complaint(capsys, *words)


def small_study() -> StudyConfig:
    pruning = replace(PruneConfig.desk(0.5, steps=8), batch_size=8, gate_std=2.0, max_length=32)
    return StudyConfig(
        train=TrainConfig(steps=6, batch_size=8, lr=3e-4, warmup_steps=1, checkpoint_every=3, max_length=32),
        prune=(pruning,),
        seeds=(42, 43),
        checkpoint_rows=2,
        evaluation_rows=2,
        ablation_rows=2,
        means_rows=20,
        controls=1,
        smallest_core=1,
        top=2,
    )


def test_a_study_of_the_library_goes_on_at_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task = synthetic_nli(n_train=80, n_id=8, n_ood_per_case=4, seed=3)
    run_study(embedded_model(), task, small_study(), tmp_path)
    assert main(["evaluate", str(tmp_path / "prune-0.5"), "--max-rows", "3"]) == 0
    assert main(["report", str(tmp_path / "prune-0.5")]) == 0
    assert "fine-tuning.config.steps" in (tmp_path / "prune-0.5" / "report.md").read_text().replace("\\", "")
    assert main(["prune", str(tmp_path / "finetune"), *SHORT, "--out", str(tmp_path / "more")]) == 0
    assert Origin.of(Run.open(tmp_path / "more")).load_task().fingerprint == task.fingerprint
    assert len(list(tmp_path.rglob("pairs.parquet"))) == 1


def test_a_run_of_the_command_line_opens_in_the_library(root: Path) -> None:
    pruned = open_pruned(root / "pruned")
    model, task = Origin.of(pruned.run).load()
    pruned.means.require_model(model)
    assert [file.path for file in task.files] == [str(root / "pairs.tsv"), str(root / "swap.tsv")]
    assert task.fingerprint == Run.open(root / "ft").spec["task"]["fingerprint"]  # type: ignore[index]


def test_fine_tuning_in_the_library_is_enough_for_the_command_line(tmp_path: Path) -> None:
    task = synthetic_nli(n_train=80, n_id=8, n_ood_per_case=4)
    finetune(embedded_model(), task, small_study().train, tmp_path / "ft")
    assert main(["prune", str(tmp_path / "ft"), *SHORT, "--out", str(tmp_path / "pruned")]) == 0
    assert main(["evaluate", str(tmp_path / "pruned"), "--max-rows", "2"]) == 0


def test_a_pruned_checkpoint_is_evaluated_with_its_own_weights(root: Path) -> None:
    task, chosen = load_stored_task(root / "ft" / "task"), chosen_checkpoints(root / "ft", [3])
    measuring = Measuring(means_rows=20, max_rows=4)
    (at,) = prune_checkpoints_into(root / "grid", task, chosen, small_study().prune, [42], measuring)
    run = root / "grid" / "step-000003" / "prune-0.5"
    assert main(["evaluate", str(run), "--max-rows", "5"]) == 0
    full = evaluation_of(open_pruned(run))
    assert Origin.of(Run.open(run)).step == 3
    assert set(full["n"]) == {5}
    assert len(list(root.rglob("pairs.parquet"))) == 1, "the fine-tuning run's rows serve the checkpoints, too"
    assert at.step == 3


def test_pruning_in_memory_leaves_no_origin_and_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    task, model = synthetic_nli(n_train=40, n_id=4, n_ood_per_case=2), embedded_model()
    means = means_into(tmp_path / "means", model, task.train, rows=10, max_length=32)
    config = replace(PruneConfig.desk(0.5, steps=4), batch_size=4, gate_std=2.0, max_length=32)
    prune_into(tmp_path / "pruned", model, task.train, means, config, [1])
    assert "has no origin.json: it was made of a model and rows in memory" in complaint(
        capsys, "evaluate", str(tmp_path / "pruned")
    )


def earlier(run: Path, choice: dict[str, object], model: str, finetuned: str) -> None:
    """What earlier versions stored beside a run: the choice of the task, no rows, no fingerprints."""
    (run / "origin.json").write_text(json.dumps({"model": model, "task": choice, "finetuned": finetuned}))


@pytest.fixture
def old(root: Path) -> Path:
    """The same runs as an earlier version left them."""
    choice: dict[str, object] = {
        "task": str(root / "pairs.tsv"),
        "ood": [f"swap={root / 'swap.tsv'}"],
        "label_names": list(LABELS),
        "columns": ["premise", "hypothesis", "label"],
        "validation": None,
        "drop_unlabelled": False,
        "limit": None,
        "minority": 0.03,
        "task_seed": 0,
    }
    shutil.rmtree(root / "ft" / "task")
    earlier(root / "ft", choice, "model", ".")
    earlier(root / "pruned", choice, "../ft/model", "../ft")
    return root


def test_runs_of_an_earlier_version_open_and_their_rows_are_checked(
    old: Path, capsys: pytest.CaptureFixture[str], recwarn: pytest.WarningsRecorder
) -> None:
    assert main(["evaluate", str(old / "pruned")]) == 0
    assert warned(recwarn) == "", "the fine-tuning run tells the fingerprint of its task"
    text = (old / "pairs.tsv").read_text().splitlines()
    (old / "pairs.tsv").write_text("\n".join(text[: len(text) // 2]) + "\n")
    for words in (["evaluate", str(old / "pruned")], ["prune", str(old / "ft"), *SHORT, "--out", str(old / "x")]):
        assert f"{old / 'pairs.tsv'} was changed since {old / 'ft'} was trained on it" in complaint(capsys, *words)


def test_runs_of_an_earlier_version_whose_rows_cannot_be_checked_say_so(old: Path, recwarn: pytest.WarningsRecorder) -> None:
    stored = json.loads((old / "pruned" / "origin.json").read_text())
    (old / "pruned" / "origin.json").write_text(json.dumps(stored | {"finetuned": None}))
    assert main(["evaluate", str(old / "pruned")]) == 0
    assert "was made by an earlier version, which kept no rows" in warned(recwarn)


def test_fine_tuning_again_brings_a_run_of_an_earlier_version_up_to_date(old: Path) -> None:
    assert main(finetuning(old)) == 0
    assert Origin.of(Run.open(old / "ft")).load_task().fingerprint == Run.open(old / "ft").spec["task"]["fingerprint"]  # type: ignore[index]
    assert main(["prune", str(old / "ft"), *SHORT, "--out", str(old / "pruned")]) == 0
    assert Origin.of(Run.open(old / "pruned")).finetuned == old / "ft"


def test_a_damaged_origin_is_named(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (root / "pruned" / "origin.json").write_text('{"model": "../ft/model"}')
    assert "origin.json is damaged" in complaint(capsys, "evaluate", str(root / "pruned"))
    with pytest.raises(RunError, match=r"origin\.json is damaged"):
        Origin.of(Run.open(root / "pruned"))


def test_rows_know_the_files_they_were_read_from_and_are_the_same_rows_without(root: Path, tmp_path: Path) -> None:
    task = load_task(root / "pairs.tsv", label_names=LABELS, ood={"swap": root / "swap.tsv"})
    task = limited(task, 0, train=20, in_domain=20, ood=20)
    assert [Path(file.path).name for file in task.files] == ["pairs.tsv", "swap.tsv"]
    assert task == replace(task, files=())
    assert task.changed_files == []
    assert isinstance(task, Task)
    (root / "swap.tsv").unlink()
    assert task.changed_files == [], "what is not there cannot be compared"


def test_an_origin_comes_back_from_its_description_and_from_that_of_earlier_sweeps(root: Path, tmp_path: Path) -> None:
    whole = Origin.of(Run.open(root / "pruned"))
    assert Origin.from_json(json.loads(json.dumps(whole.as_json(tmp_path))), tmp_path) == whole
    at = whole.with_checkpoint(chosen_checkpoints(root / "ft", [3])[0])
    described = at.as_json(tmp_path)
    assert set(described) == {"model", "task", "checkpoint", "step", "weights", "rows"}, "as sweeps have always planned it"
    assert Origin.from_json(described, tmp_path) == at
    assert (at.step, at.finetuned) == (3, root / "ft")
    named = replace(whole, model="someone/model", weights=None)
    assert Origin.from_json(named.as_json(tmp_path), tmp_path) == named
