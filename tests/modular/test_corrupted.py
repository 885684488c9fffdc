"""Corrupted labels: accuracies by hand, a network that memorises and generalizes at once, what pruning and gates make of it."""

import math

import pandas as pd
import pytest
import torch

from hc_lens.modular.config import CorruptedConfig, FitConfig, MlpConfig, TransformerConfig
from hc_lens.modular.corrupted import CorruptedPairs, corrupted_pairs, directory_of, neuron_ipr, train_corrupted, two_stages
from hc_lens.modular.curves import (
    HIGH,
    LOW,
    RANDOM,
    accuracies_of,
    norm_weights,
    periodic_neurons,
    pruning_curves,
    random_neurons,
    threshold_table,
)
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.neuron_gates import gate_neurons, separation
from hc_lens.modular.neurons import Neurons
from hc_lens.modular.phases import phase_of_run
from hc_lens.modular.spectrum import discrete_logs
from hc_lens.pruning import PruneConfig
from hc_lens.runs import RunError

CONFIG = CorruptedConfig(MlpConfig(31, 200), alpha=0.85, xi=0.1, fit=FitConfig(400, measure_every=100))


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """About three seconds: p = 31 is the smallest at which memorising and generalizing coexist."""
    return train_corrupted(CONFIG, tmp_path_factory.mktemp("runs") / "run")


class Always(ModularMlp):
    """Answers n whatever is asked."""

    def __init__(self, p, n):
        super().__init__(MlpConfig(p, 1))
        self.n = n

    def forward(self, numbers):
        return torch.nn.functional.one_hot(torch.full((len(numbers),), self.n), self.config.p).float()


def test_accuracies_by_hand():
    data = corrupted_pairs(CorruptedConfig(MlpConfig(3, 1), alpha=0.7, xi=0.5))  # 6 of 9 pairs, 3 corrupted
    labels = data.true_labels.clone()
    corrupted = torch.tensor([True, True, True, False, False, False])
    labels[:3] = (labels[:3] + 1) % 3  # none of them true by chance
    data = CorruptedPairs(data.pairs, data.split, labels, corrupted)
    found = data.accuracies(Always(3, 2))
    true, test = data.true_labels, data.pairs.target[data.split.test]
    assert found.train == pytest.approx(float((labels == 2).double().mean()))
    assert found.as_labelled == pytest.approx(sum(label == 1 for label in true[:3].tolist()) / 3)
    assert found.as_true == pytest.approx(sum(label == 2 for label in true[:3].tolist()) / 3)
    assert found.clean == pytest.approx(sum(label == 2 for label in true[3:].tolist()) / 3)
    assert found.test == pytest.approx(sum(label == 2 for label in test.tolist()) / 3)


def test_without_corruption_there_is_no_accuracy_on_it():
    data = corrupted_pairs(CorruptedConfig(MlpConfig(5, 4), xi=0.0))
    found = data.accuracies(ModularMlp(MlpConfig(5, 4)))
    assert math.isnan(found.as_labelled)
    assert math.isnan(found.as_true)
    assert found.train == found.clean


def test_ipr_is_the_mean_over_the_tables_in_the_basis_of_the_operation():
    p, k = 13, 4
    numbers, logs = torch.arange(p), discrete_logs(p)
    wave = torch.cos(2 * torch.pi * k * numbers / p)
    flat = torch.zeros(p)
    flat[3] = 1.0  # IPR 1/7
    model = ModularMlp.with_weights(torch.stack([wave, wave]).unsqueeze(2), flat.unsqueeze(0))
    assert float(neuron_ipr(model)) == pytest.approx((1 + 1 + 1 / 7) / 3, abs=1e-5)
    wave = torch.where(numbers > 0, torch.cos(2 * torch.pi * k * logs / (p - 1)), 0)
    model = ModularMlp.with_weights(torch.stack([wave, wave]).unsqueeze(2), wave.unsqueeze(0))
    assert float(neuron_ipr(model, "multiply")) == pytest.approx(1, abs=1e-5)
    assert float(neuron_ipr(model)) < 0.6


def test_memorising_and_generalizing_coexist(trained):
    found = trained.accuracies
    assert found.as_labelled > 0.9
    assert found.test > 0.85
    assert found.as_true < 0.1
    assert list(trained.history["step"]) == [0, 100, 200, 300, 400]
    assert trained.history["ipr"].iloc[-1] > trained.history["ipr"].iloc[0] + 0.1
    assert found == trained.data.accuracies(trained.model)


def test_without_the_neurons_of_low_ipr_the_corrupted_labels_are_gone(trained):
    table = threshold_table(trained, draws=3).set_index("neurons")
    periodic, random = table.loc["IPR >= 0.5"], table.loc["random"]
    assert table.loc["all", "removed"] == 0
    assert periodic["as_labelled"] < 0.25
    assert periodic["as_true"] > 0.7
    assert periodic["test"] > table.loc["all", "test"] - 0.02
    assert (random["removed"] == periodic["removed"]).all()
    assert random["test"].max() < 0.7
    assert periodic_neurons(trained).closed == frozenset((trained.ipr < 0.5).nonzero().flatten().tolist())


def test_curves_start_and_end_alike_and_go_by_ipr(trained):
    curves = pruning_curves(trained, [0.0, 0.3, 1.0], draws=2)
    assert list(curves.groupby("order").size().loc[[LOW, HIGH, RANDOM]]) == [3, 3, 6]
    full = curves[curves["share"] == 0]
    assert (full["test"] == trained.accuracies.test).all()
    assert (curves[curves["share"] == 1.0]["train"] < 0.1).all()  # nothing left: one answer to everything
    at = curves[curves["share"] == 0.3].set_index("order")
    assert at.loc[HIGH, "test"] < 0.3 < 0.8 < at.loc[LOW, "test"]
    assert at.loc[HIGH, "as_labelled"] > 0.8
    lowest = trained.ipr.argsort(stable=True)[:60]
    mask = torch.ones(200, dtype=torch.bool)
    mask[lowest] = False
    assert accuracies_of(trained, Neurons.of(trained.model, mask)).test == at.loc[LOW, "test"]


def test_random_removal_draws_as_many_as_asked(trained):
    assert len(random_neurons(trained, 17, seed=0).closed) == 17
    assert random_neurons(trained, 17, seed=0) == random_neurons(trained, 17, seed=0)
    assert random_neurons(trained, 17, seed=0) != random_neurons(trained, 17, seed=1)
    with pytest.raises(ValueError, match="201 of 200 neurons cannot be removed"):
        random_neurons(trained, 201, seed=0)


def test_gates_against_the_true_answers_keep_the_periodic_neurons(trained):
    sparsity = float((trained.ipr < 0.5).double().mean())
    before = {name: weight.clone() for name, weight in trained.model.named_parameters()}
    gated = gate_neurons(trained, PruneConfig.desk(sparsity, 60))
    assert gated.auc > 0.8
    assert gated.neurons.sparsity == pytest.approx(sparsity, abs=1e-6)
    assert accuracies_of(trained, gated.neurons).as_labelled < 0.3
    for name, weight in trained.model.named_parameters():
        assert torch.equal(weight, before[name])
        assert weight.grad is None
    assert torch.equal(gate_neurons(trained, PruneConfig.desk(sparsity, 5), seed=4).log_alpha.isfinite(), torch.ones(200) > 0)


def test_separation_is_the_area_under_the_curve():
    ipr = torch.tensor([0.9, 0.8, 0.1, 0.2])
    assert separation(torch.tensor([3.0, 2.0, 0.0, 1.0]), ipr) == 1
    assert separation(torch.tensor([0.0, 1.0, 3.0, 2.0]), ipr) == 0
    assert separation(torch.tensor([3.0, 0.0, 1.0, 2.0]), ipr) == 0.5
    assert separation(torch.zeros(4), ipr) == 0.5
    assert math.isnan(separation(torch.zeros(2), torch.ones(2)))


def test_the_phase_of_the_run(trained):
    expected = "coexistence" if trained.accuracies.test >= 0.9 else "memorisation"
    assert phase_of_run(trained) == expected


def test_a_second_call_reads_and_another_configuration_is_refused(trained):
    again = train_corrupted(CONFIG, trained.run.path)
    assert torch.equal(again.model.U, trained.model.U)
    assert again.history.equals(trained.history)
    with pytest.raises(RunError, match=r"xi is 0\.1 there, 0\.2 asked"):
        train_corrupted(CorruptedConfig(CONFIG.network, alpha=0.85, xi=0.2, fit=CONFIG.fit), trained.run.path)


def test_directories_tell_configurations_apart(tmp_path):
    other = CorruptedConfig(TransformerConfig(31), alpha=0.85, xi=0.1, fit=CONFIG.fit)
    assert directory_of(CONFIG, tmp_path) != directory_of(other, tmp_path)
    assert directory_of(CONFIG, tmp_path).name.startswith("corrupted-")


def history(test, as_labelled):
    return pd.DataFrame({"step": range(0, 10 * len(test), 10), "test": test, "as_labelled": as_labelled})


def test_the_two_stages_by_hand():
    stages = two_stages(history([0.0, 0.2, 0.95, 1.0, 1.0], [0.05, 0.9, 0.7, 0.3, 0.05]))
    assert stages == (20, 10, 40)
    assert two_stages(history([0.0, 0.5], [0.0, 0.95])) == (None, 10, None)
    nothing = [float("nan")] * 2
    assert two_stages(history([0.0, 0.95], nothing)) == (10, None, None)
    with pytest.raises(ValueError, match="level must be in"):
        two_stages(history([0.0], [0.0]), level=0.3)
    with pytest.raises(ValueError, match=r"\['as_labelled'\] missing"):
        two_stages(history([0.0], [0.0]).drop(columns="as_labelled"))


def test_batch_norm_weights_stand_beside_ipr(tmp_path, trained):
    config = CorruptedConfig(MlpConfig(11, 12, batch_norm=True), fit=FitConfig(5, batch_size=16))
    run = train_corrupted(config, tmp_path / "run")
    table = norm_weights(run)
    assert table["weight"].tolist() == run.model.norm.weight.detach().abs().tolist()
    assert table["ipr"].tolist() == pytest.approx(run.ipr.tolist())
    with pytest.raises(ValueError, match="only an MLP with batch_norm=True"):
        norm_weights(trained)


@pytest.mark.parametrize(("fields", "told"), [({"alpha": 1.5}, "alpha, the share"), ({"xi": -0.1}, "xi, the share")])
def test_impossible_settings_are_refused_before_training(fields, told):
    with pytest.raises(ValueError, match=told):
        CorruptedConfig(MlpConfig(5, 4), **fields)
