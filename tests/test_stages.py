"""The steps as run directories: they go on where they stopped, and say what is missing or damaged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from hc_lens import stages
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, PruneError
from hc_lens.pruning import trained as trained_gates
from hc_lens.pruning.trained import TrainedGates
from hc_lens.runs import BusyError, RunError
from hc_lens.stages import Pruned, evaluate_into, evaluation, evaluation_of, means_into, open_pruned, prune_into
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
    in_order = ActivationMeans.collect(model, task.train, max_rows=20, max_length=32)
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

    monkeypatch.setattr("hc_lens.stages.seeds.train_seeds", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    with pytest.raises(RunError, match=r"a pruning run that has not finished, seeds \[44\] are missing: start it again"):
        open_pruned(tmp_path / "stopped")
    trained[:] = [()]  # room for one more
    resumed = prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    assert trained == [(), (44,)], "the first two are kept"
    monkeypatch.setattr("hc_lens.stages.seeds.train_seeds", train)
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
    before = evaluate_into(first, model, task, max_rows=5, trained=False)
    more = prune_into(directory, model, task.train, means, _CONFIG, [42, 43])
    evaluated: list[list[int | None]] = []
    measure = evaluation.evaluate

    def watched(model: Any, task: Any, subnetworks: Any, **options: Any) -> Any:
        evaluated.append([sub.seed for sub in subnetworks])
        return measure(model, task, subnetworks, **options)

    monkeypatch.setattr("hc_lens.stages.evaluation.evaluate", watched)
    table = evaluate_into(more, model, task, max_rows=5, trained=False)
    assert evaluated == [[42]]
    assert [sub.seed for sub in open_pruned(directory).subnetworks] == [42, 43]
    assert list(dict.fromkeys(table["subnetwork"])) == ["full", "seed 42", "seed 43"]
    kept = table[table["subnetwork"] != "seed 42"].reset_index(drop=True)
    pd.testing.assert_frame_equal(kept, before, check_exact=True)
    assert prune_into(directory, model, task.train, means, _CONFIG, [43]).subnetworks == first.subnetworks, "as asked"
    evaluate_into(first, model, task, max_rows=4, trained=False)
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


def test_a_seed_whose_gates_collapse_does_not_cost_the_others(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TrainedGates, "collapsed", lambda self: {43: "seed 43: every gate ended closed"})
    with pytest.raises(PruneError, match="seed 43: every gate ended closed"):
        prune_into(tmp_path / "run", model, task.train, means, replace(_CONFIG, memory_gib=4.0), _SEEDS)
    with pytest.raises(RunError, match=r"seeds \[43\] are missing"):
        open_pruned(tmp_path / "run")


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
        stages.open_core(pruned.run)
    with pytest.raises(RunError, match=r"has no evaluation/full yet: evaluate the run first"):
        stages.pruned_evaluation([pruned])
