"""One run with a rising target gives a subnetwork at each sparsity of the grid."""

from dataclasses import replace

import pytest
import torch

from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PathResult, PruneConfig, prune, prune_path
from hc_lens.pruning.path import cut_steps
from hc_lens.sample import Sample
from hc_lens.study import embedded_model

_GRID = (0.25, 0.5, 0.75)
_CONFIG = replace(PruneConfig.desk(0.75, steps=20), batch_size=8, gate_std=2.0, max_length=32, ramp_steps=18)


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=100, n_id=10, n_ood_per_case=5)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task) -> ActivationMeans:
    return ActivationMeans.collect(model, task.train, sample=Sample(max_length=32))


@pytest.fixture(scope="module")
def path(model: Classifier, task: Task, means: ActivationMeans) -> PathResult:
    return prune_path(model, task.train, means, _CONFIG, _GRID, seeds=(42, 43))


def test_every_sparsity_of_the_grid_is_hit_exactly_for_every_seed(path: PathResult) -> None:
    table = path.table()
    assert list(zip(table["target"], table["seed"], strict=True)) == [(s, seed) for s in _GRID for seed in (42, 43)]
    units = 4 * 9
    assert [round(s * units) for s in table["sparsity"]] == [round(s * units) for s in table["target"]]
    assert [sub.provenance["target"] for sub in path.subnetworks[0.5]] == [0.5, 0.5]


def test_the_last_cut_is_the_pruning_run_at_that_sparsity(
    path: PathResult, model: Classifier, task: Task, means: ActivationMeans
) -> None:
    alone = prune(model, task.train, means, _CONFIG, seeds=(42, 43))
    assert [a == b for a, b in zip(path.subnetworks[0.75], alone.subnetworks, strict=True)] == [True, True]
    torch.testing.assert_close(path.log_alpha[0.75], alone.log_alpha)
    assert path.subnetworks[0.75][0].provenance["trained_sparsity"] == alone.subnetworks[0].provenance["trained_sparsity"]


def test_a_cut_is_the_gates_when_the_target_reached_it_and_not_later_ones(path: PathResult) -> None:
    assert cut_steps(_CONFIG, _GRID) == [5, 11, 19]  # the target rises by 1/24 a step: 6/24, 12/24, and the run's end
    assert not torch.equal(path.log_alpha[0.25], path.log_alpha[0.5])
    by_hand = path.history[(path.history["seed"] == 42) & (path.history["step"] == 5)]["sparsity"].item()
    assert path.subnetworks[0.25][0].provenance["trained_sparsity"] == pytest.approx(by_hand)


@pytest.mark.parametrize("grid", [(), (0.5, 0.25, 0.75), (0.5,), (0.0, 0.75), (0.5, 0.5, 0.75)])
def test_a_grid_that_does_not_rise_to_the_target_is_refused(
    grid: tuple[float, ...], model: Classifier, task: Task, means: ActivationMeans
) -> None:
    with pytest.raises(ValueError, match=r"grid: must rise strictly from above 0 up to config\.sparsity = 0\.75"):
        prune_path(model, task.train, means, _CONFIG, grid, seeds=(42,))


def test_other_cuts_and_missing_seeds_are_refused(model: Classifier, task: Task, means: ActivationMeans) -> None:
    with pytest.raises(ValueError, match="top_k"):
        prune_path(model, task.train, means, replace(_CONFIG, discretisation="two_stage"), _GRID, seeds=(42,))
    with pytest.raises(ValueError, match="seeds"):
        prune_path(model, task.train, means, _CONFIG, _GRID, seeds=())
