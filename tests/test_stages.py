"""The steps as run directories: they go on where they stopped, and say what is missing or damaged."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from hc_lens import pruning, stages
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig
from hc_lens.runs import RunError
from hc_lens.stages import Pruned, means_into, open_pruned, prune_into
from hc_lens.study import embedded_model
from hc_lens.subnetwork import SubnetworkError

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
    train = pruning.prune

    def interrupted(model: Any, data: Any, means: Any, config: Any, seeds: Sequence[int], loss: Any) -> Any:
        if len(trained) == 2:
            raise KeyboardInterrupt
        trained.append(tuple(seeds))
        return train(model, data, means, config, seeds, loss)

    monkeypatch.setattr("hc_lens.stages.pruned.prune", interrupted)
    with pytest.raises(KeyboardInterrupt):
        prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    with pytest.raises(RunError, match="stopped holds a pruning run that has not finished: start it again"):
        open_pruned(tmp_path / "stopped")
    trained[:] = [()]  # room for one more
    resumed = prune_into(tmp_path / "stopped", model, task.train, means, _CONFIG, _SEEDS)
    assert trained == [(), (44,)], "the first two are kept"
    monkeypatch.setattr("hc_lens.stages.pruned.prune", train)
    whole = prune_into(tmp_path / "whole", model, task.train, means, _CONFIG, _SEEDS)
    for one, other in zip(resumed.subnetworks, whole.subnetworks, strict=True):
        assert one.seed == other.seed
        assert torch.equal(one.mask, other.mask)
    assert set(resumed.history()["seed"]) == set(_SEEDS)
    assert resumed.devices == ("cpu",)


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
    with pytest.raises(RunError, match=r"has no evaluation.parquet yet: evaluate the run first"):
        stages.pruned_evaluation([pruned])
