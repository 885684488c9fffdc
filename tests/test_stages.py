"""The steps as run directories: they go on where they stopped, and say what is missing or damaged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from hc_lens import metrics, pruning
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, Pruned, evaluate_into, evaluation_of, means_into, open_pruned, prune_into
from hc_lens.pruning import trained as trained_gates
from hc_lens.pruning.advice import CLOSED
from hc_lens.pruning.trained import TrainedGates
from hc_lens.questions import kept_core
from hc_lens.runs import BusyError, RunError
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.subnetwork import Subnetwork, SubnetworkError

# So little memory that every seed has a forward pass of its own, and is kept before the next one starts.
_CONFIG = replace(PruneConfig.desk(0.5, steps=10), batch_size=8, gate_std=2.0, max_length=32, memory_gib=1e-6)
_SEEDS = (42, 43, 44)


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=100, n_id=10, n_ood_per_case=5)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task, tmp_path_factory: pytest.TempPathFactory) -> ActivationMeans:
    return means_into(tmp_path_factory.mktemp("means"), model, task.train, rows=20, max_length=32)


@pytest.fixture
def pruned(model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path) -> Pruned:
    return prune_into(tmp_path / "pruned", model, task.train, means, _CONFIG, _SEEDS[:1])


def test_means_are_of_random_rows_and_collected_once(
    model: Classifier, task: Task, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = means_into(tmp_path / "means", model, task.train, rows=20, max_length=32)
    in_order = ActivationMeans.collect(model, task.train, sample=Sample(20, max_length=32))
    assert not torch.allclose(first.head, in_order.head), "the first rows may all come from one source"

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("collected again")

    monkeypatch.setattr(ActivationMeans, "collect", never)
    assert means_into(tmp_path / "means", model, task.train, rows=20, max_length=32).digest == first.digest
    with pytest.raises(RunError, match=r"rows is 20 there, 30 asked"):
        means_into(tmp_path / "means", model, task.train, rows=30, max_length=32)


def test_pruning_goes_on_with_the_seeds_that_an_interruption_left_out(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained: list[tuple[int, ...]] = []
    train = trained_gates.train_seeds

    def interrupted(model: Any, encoded: Any, means: Any, config: Any, seeds: Sequence[int], *rest: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(tuple(seeds))
        return train(model, encoded, means, config, seeds, *rest)

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    with pytest.raises(RunError, match=r"a pruning run that has not finished, seeds \[44\] are missing: start it again"):
        open_pruned(tmp_path / "stopped")
    trained[:] = [()]  # room for one more
    resumed = prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    assert trained == [(), (44,)], "the first two are kept"
    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", train)
    whole = prune_into(tmp_path / "whole", model, task.train, means, _CONFIG, _SEEDS)
    for one, other in zip(resumed.subnetworks, whole.subnetworks, strict=True):
        assert one.seed == other.seed
        assert torch.equal(one.mask, other.mask)
    assert set(resumed.history()["seed"]) == set(_SEEDS)
    assert resumed.devices == ("cpu",)
    assert resumed.run.finished


def test_a_run_takes_further_seeds_and_trains_and_evaluates_only_those(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "pruned"
    first = prune_into(directory, model, task.train, means, _CONFIG, [43])
    before = evaluate_into(first, model, task, sample=Sample(5), trained=False)
    more = prune_into(directory, model, task.train, means, _CONFIG, [42, 43])
    evaluated: list[list[int | None]] = []
    measure = metrics.evaluate

    def watched(model: Any, task: Any, subnetworks: Any, *rest: Any, **options: Any) -> Any:
        evaluated.append([sub.seed for sub in subnetworks])
        return measure(model, task, subnetworks, *rest, **options)

    monkeypatch.setattr("hc_lens.metrics.evaluate", watched)
    table = evaluate_into(more, model, task, sample=Sample(5), trained=False)
    assert evaluated == [[42]]
    assert [sub.seed for sub in open_pruned(directory).subnetworks] == [42, 43]
    assert list(dict.fromkeys(table["subnetwork"])) == ["full", "seed 42", "seed 43"]
    kept = table[table["subnetwork"] != "seed 42"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before, check_exact=True)
    assert prune_into(directory, model, task.train, means, _CONFIG, [43]).subnetworks == first.subnetworks, "as asked"
    evaluate_into(first, model, task, sample=Sample(4), trained=False)
    with pytest.raises(RunError, match="are of different rows: evaluate the run again"):
        evaluation_of(more)


def test_a_group_that_a_kill_left_half_kept_is_completed_with_its_own_bits(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    together = replace(_CONFIG, memory_gib=4.0)
    whole = prune_into(tmp_path / "whole", model, task.train, means, together, _SEEDS)
    save, saved = Subnetwork.save, []

    def killed(self: Subnetwork, path: Path) -> Path:
        if len(saved) == 1:
            raise KeyboardInterrupt
        saved.append(self.seed)
        return save(self, path)

    with monkeypatch.context() as patch:
        patch.setattr(Subnetwork, "save", killed)
        with pytest.raises(KeyboardInterrupt):
            prune_into(tmp_path / "stopped", model, task.train, means, together, _SEEDS)
    resumed = prune_into(tmp_path / "stopped", model, task.train, means, together, _SEEDS)
    for seed in _SEEDS:
        assert torch.equal(*(p.run.read_tensors(f"gates/seed-{seed}")["log_alpha"] for p in (whole, resumed)))
    assert not list((tmp_path / "stopped" / "training").iterdir()), "what is done leaves no checkpoint"


def collapsing(monkeypatch: pytest.MonkeyPatch, *seeds: int) -> None:
    """Let these seeds end as if all their gates had closed."""
    monkeypatch.setattr(TrainedGates, "collapsed", lambda self: {seed: CLOSED for seed in seeds if seed in self.seeds})


def test_a_collapsed_seed_is_an_outcome_that_is_kept_beside_the_others(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, config = tmp_path / "run", replace(_CONFIG, memory_gib=4.0)
    collapsing(monkeypatch, 43)
    pruned = prune_into(directory, model, task.train, means, config, _SEEDS)
    assert ([sub.seed for sub in pruned.subnetworks], dict(pruned.collapsed)) == ([42, 44], {43: CLOSED})
    assert pruned.collapse == "1 of 3 seeds collapsed (43: every gate ended closed)"
    assert pruned.warnings[0].startswith(pruned.collapse)
    assert pruned.run.finished
    assert not list((directory / "training").iterdir())
    assert set(pruned.history()["seed"]) == set(_SEEDS)
    again = open_pruned(directory)
    assert ([sub.seed for sub in again.subnetworks], again.warnings) == ([42, 44], pruned.warnings)
    table = evaluate_into(again, model, task, sample=Sample(5), trained=False)
    assert list(dict.fromkeys(table["subnetwork"])) == ["full", "seed 42", "seed 44"]
    assert kept_core.core_into([again], 1, 10).n == 2
    assert [sub.seed for sub in prune_into(directory, model, task.train, means, config, [42, 44]).subnetworks] == [42, 44]
    with pytest.raises(RunError, match=r"1 of 1 seeds collapsed \(43: every gate ended closed\), so there is no subnetwork"):
        open_pruned(directory, seeds=[43])
    with pytest.raises(RunError, match=r"has no seed 99: it has 42, 43, 44$"):
        open_pruned(directory, seeds=[99])


def test_a_collapsed_seed_is_trained_again_only_without_its_outcome(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = tmp_path / "run"
    with monkeypatch.context() as patch:
        collapsing(patch, *_SEEDS)
        none = prune_into(directory, model, task.train, means, _CONFIG, [42, 43])
    assert (none.subnetworks, list(none.collapsed)) == ((), [42, 43])
    train = trained_gates.train_seeds

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("trained again")

    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", never)
    assert list(prune_into(directory, model, task.train, means, _CONFIG, [42, 43]).collapsed) == [42, 43]
    file = directory / "outcome" / "seed-42.json"
    assert f"delete {file} to train it again" in pruning.kept_outcome(none.run)
    file.unlink()
    monkeypatch.setattr("hc_lens.pruning.missing_seeds.train_seeds", train)
    redone = prune_into(directory, model, task.train, means, _CONFIG, [42, 43])
    assert ([sub.seed for sub in redone.subnetworks], list(redone.collapsed)) == ([42], [43])
    assert file.exists()


def test_a_collapsed_seed_of_a_rising_target_has_no_subnetwork_at_any_sparsity(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collapsing(monkeypatch, 43)
    grid = [0.2, 0.5]
    path = pruning.prune_path_into(tmp_path / "path", model, task.train, means, _CONFIG, grid, [42, 43])
    assert {target: [sub.seed for sub in subs] for target, subs in path.by_target.items()} == {0.2: [42], 0.5: [42]}
    assert path.collapse == "1 of 2 seeds collapsed (43: every gate ended closed)"
    assert pruning.open_path(tmp_path / "path").collapsed == {43: CLOSED}
    empty = pruning.prune_path_into(tmp_path / "path", model, task.train, means, _CONFIG, grid, [43])
    assert set(evaluate_into(empty, model, task, sample=Sample(5), trained=False)["subnetwork"]) == {"full"}


def test_runs_of_earlier_versions_open(pruned: Pruned) -> None:
    """Their outcomes hold warnings and no word of a collapse; a deleted one costs nothing but the device's name."""
    file = pruned.run.path / "outcome" / "seed-42.json"
    file.write_text('{"warnings": ["seed 42: something"], "device": "cpu"}')
    opened = open_pruned(pruned.run.path)
    assert (opened.collapsed, opened.warnings, opened.devices) == ({}, pruned.warnings, ("cpu",))
    file.unlink()
    assert open_pruned(pruned.run.path).devices == ()


def test_only_subnetworks_have_a_target(pruned: Pruned, model: Classifier, task: Task) -> None:
    table = evaluate_into(pruned, model, task, sample=Sample(5), trained=False)
    full = table["subnetwork"] == "full"
    assert table.loc[full, "target"].isna().all()
    assert set(table.loc[~full, "target"]) == {0.5}
    stored = pruned.run.read_table("evaluation/full")
    pruned.run.write_table("evaluation/full", stored.assign(target=0.5))  # as an earlier version kept it
    assert evaluation_of(pruned).loc[full, "target"].isna().all()


def test_a_seed_that_another_process_trains_is_busy_and_others_are_not(
    model: Classifier, task: Task, means: ActivationMeans, pruned: Pruned
) -> None:
    with pruned.run.locked("seed-43"):
        with pytest.raises(BusyError, match=r"being worked on by another process .*\.lock-seed-43"):
            prune_into(pruned.run.path, model, task.train, means, _CONFIG, [43])
        prune_into(pruned.run.path, model, task.train, means, _CONFIG, [44])


def test_a_damaged_subnetwork_is_named(pruned: Pruned) -> None:
    file = pruned.run.path / "subnetworks" / "seed-42.safetensors"
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(SubnetworkError, match=r"seed-42\.safetensors"):
        open_pruned(pruned.run.path)


def test_a_damaged_outcome_is_named(pruned: Pruned) -> None:
    (pruned.run.path / "outcome" / "seed-42.json").write_text("{")
    with pytest.raises(RunError, match=r"seed-42\.json is not a whole JSON file"):
        open_pruned(pruned.run.path)


def test_a_run_without_its_means_is_refused(pruned: Pruned) -> None:
    for file in (pruned.run.path / "subnetworks" / "means").iterdir():
        file.unlink()
    with pytest.raises(ValueError, match=r"no means at .* nothing is loaded"):
        open_pruned(pruned.run.path)


def test_the_report_s_steps_name_the_command_that_comes_first(pruned: Pruned) -> None:
    with pytest.raises(RunError, match=r"has no core\.json yet: find the core first"):
        kept_core.open_core(pruned.run)
    with pytest.raises(RunError, match=r"has no evaluation/full yet: evaluate the run first"):
        pruning.pruned_evaluation([pruned])
