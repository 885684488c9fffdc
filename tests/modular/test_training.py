"""Training: AdamW's own step by hand, killed runs that go on bit-equal, batches that cover the pairs, a run that learns."""

import pandas as pd
import pytest
import torch

from hc_lens.atomic import read_tensors
from hc_lens.modular.arithmetic import all_pairs, split_pairs
from hc_lens.modular.config import FitConfig, MlpConfig, TransformerConfig
from hc_lens.modular.mlp import ModularMlp
from hc_lens.modular.networks import answers, neuron_count, new_network
from hc_lens.modular.training import fit, loss_of, rows_at_once, targets_of, training_step
from hc_lens.runs import Run
from hc_lens.train import TrainingError

P = 7
PAIRS = all_pairs(P)


def nothing(model):
    return {}


def fitted(directory, config, network=None, measure=nothing):
    model = new_network(network or MlpConfig(P, 20), seed=0)
    history = fit(model, PAIRS.numbers, PAIRS.target, P, config, Run.at(directory, "test", {}), measure)
    return model, history


def test_losses_are_those_of_the_definitions():
    logits, labels = torch.randn(4, P), torch.tensor([0, 3, 6, 3])
    squared = sum(((logits[i] - torch.eye(P)[labels[i]]) ** 2).sum() for i in range(4)) / (4 * P)
    torch.testing.assert_close(loss_of(logits, targets_of(labels, P, "mse")), squared)
    entropy = -sum(logits[i].log_softmax(0)[labels[i]] for i in range(4)) / 4
    torch.testing.assert_close(loss_of(logits, targets_of(labels, P, "cross_entropy")), entropy)


def test_a_step_is_adamw_with_decoupled_decay_by_hand():
    """At the first step both moments are corrected to g and g^2: w - lr (decay w + g / (|g| + eps))."""
    model = ModularMlp(MlpConfig(P, 20), seed=0)
    targets = targets_of(PAIRS.target, P, "mse")
    before = {name: w.detach().clone() for name, w in model.named_parameters()}
    g = torch.autograd.grad(loss_of(model(PAIRS.numbers), targets), [model.U, model.W])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=2.0, fused=True)
    training_step(model, optimizer, PAIRS.numbers, targets)
    for (name, after), gradient in zip(model.named_parameters(), g, strict=True):
        expected = before[name] * (1 - 0.01 * 2.0) - 0.01 * gradient / (gradient.abs() + 1e-8)
        torch.testing.assert_close(after.detach(), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy"])
@pytest.mark.parametrize("network", [MlpConfig(P, 20), TransformerConfig(P, 8, 2)])
def test_pairs_in_parts_give_the_gradients_of_all_at_once(monkeypatch, network, loss):
    model, targets = new_network(network, seed=0), targets_of(PAIRS.target, P, loss)
    whole = torch.autograd.grad(loss_of(answers(model, PAIRS.numbers), targets), list(model.parameters()), allow_unused=True)
    monkeypatch.setattr("hc_lens.modular.training._IN_CACHE", 10 * neuron_count(model))  # 49 pairs: 10 at a time, then 9
    assert rows_at_once(model, 49) == 10
    training_step(model, torch.optim.AdamW(model.parameters(), lr=0.0), PAIRS.numbers, targets)
    for weight, gradient in zip(model.parameters(), whole, strict=True):
        if gradient is not None:
            torch.testing.assert_close(weight.grad, gradient, atol=1e-7, rtol=1e-4)


def test_batch_norm_sees_all_pairs_at_once():
    assert rows_at_once(new_network(MlpConfig(P, 20, batch_norm=True), seed=0), 10**9) == 10**9
    assert rows_at_once(new_network(MlpConfig(P, 512), seed=0), 10**9) == 1024


@pytest.mark.parametrize(
    ("network", "loss"),
    [(MlpConfig(P, 20, dropout=0.3, batch_norm=True), "mse"), (TransformerConfig(P, 8, 2), "cross_entropy")],
)
def test_a_killed_run_goes_on_bit_equal(tmp_path, network, loss):
    config = FitConfig(30, loss=loss, weight_decay=1.0, batch_size=16, measure_every=7, checkpoint_every=10, seed=3)
    whole, history = fitted(tmp_path / "whole", config, network)
    calls = []

    def dies(model):
        calls.append(1)
        if len(calls) == 4:  # at step 21, after the checkpoint at 20
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "killed", config, network, dies)
    resumed, again = fitted(tmp_path / "killed", config, network)
    assert again.equals(history)
    assert list(history["step"]) == [0, 7, 14, 21, 28, 30]
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name
    assert not (tmp_path / "killed" / "resume.safetensors").exists()
    assert sorted(file.stem for file in (tmp_path / "killed" / "checkpoints").iterdir()) == [
        "step-000010",
        "step-000020",
        "step-000030",
    ]


def test_a_finished_run_is_only_loaded(tmp_path):
    trained, history = fitted(tmp_path / "run", FitConfig(5))

    def refused(model):
        raise AssertionError("measured again")

    loaded, again = fitted(tmp_path / "run", FitConfig(5), measure=refused)
    assert torch.equal(trained.U, loaded.U)
    assert again.equals(history)


def test_training_leaves_mode_random_state_and_gradients_as_they_were(tmp_path):
    torch.manual_seed(1)
    expected = torch.rand(1)
    torch.manual_seed(1)
    model, _ = fitted(tmp_path / "run", FitConfig(3), MlpConfig(P, 20, dropout=0.5))
    assert torch.equal(torch.rand(1), expected)
    assert model.training
    assert all(weight.grad is None for weight in model.parameters())


def test_batches_see_each_pair_once_in_a_pass(monkeypatch, tmp_path):
    seen = []
    monkeypatch.setattr("hc_lens.modular.training.training_step", lambda model, opt, numbers, targets: seen.append(numbers))
    fitted(tmp_path / "run", FitConfig(12, batch_size=8))  # 49 pairs: 6 batches of 8 in a pass, one pair left out
    passes = [torch.cat(seen[:6]), torch.cat(seen[6:])]
    for rows in passes:
        assert len({tuple(row) for row in rows.tolist()}) == 48
    assert not torch.equal(*passes)


def test_modular_addition_is_learned_in_seconds(tmp_path):
    pairs = all_pairs(23)
    split = split_pairs(pairs, 0.8, seed=0)
    model = new_network(MlpConfig(23, 60), seed=0)
    history = fit(
        model,
        pairs.numbers[split.train],
        pairs.target[split.train],
        23,
        FitConfig(100, weight_decay=5.0, measure_every=50),
        Run.at(tmp_path / "run", "test", {}),
        lambda net: {"test": float((net(pairs.numbers).argmax(1) == pairs.target)[split.test].double().mean())},
    )
    assert list(history["step"]) == [0, 50, 100]
    assert history["test"].iloc[0] < 0.2
    assert history["test"].iloc[-1] > 0.9


def test_a_loss_that_explodes_is_told_with_its_step(tmp_path):
    with pytest.raises(TrainingError, match=r"the loss is .* at step 4 of 8; lower lr \(1e\+20\)"):
        fitted(tmp_path / "run", FitConfig(8, lr=1e20, measure_every=4))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"steps": 0}, "steps must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"lr": 0.0}, "lr must be positive, got 0.0"),
        ({"weight_decay": -1.0}, "weight_decay must not be negative, got -1.0"),
    ],
)
def test_impossible_settings_are_refused(fields, told):
    with pytest.raises(ValueError, match=told):
        FitConfig(**fields)


def test_a_run_killed_before_its_first_checkpoint_logs_each_step_once(tmp_path):
    config = FitConfig(steps=6, measure_every=2, checkpoint_every=6)
    calls = []

    def dies(model):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return {}

    with pytest.raises(KeyboardInterrupt):
        fitted(tmp_path / "killed", config, measure=dies)
    _, again = fitted(tmp_path / "killed", config)
    assert again["step"].tolist() == [0, 2, 4, 6]


@pytest.mark.parametrize("step", [4, 8])
def test_a_checkpoint_that_was_deleted_is_made_again_and_nothing_is_logged_twice(step, tmp_path):
    config = FitConfig(steps=8, checkpoint_every=4, measure_every=2)
    _, history = fitted(tmp_path, config)
    file = tmp_path / "checkpoints" / f"step-00000{step}.safetensors"
    before = read_tensors(file)
    file.unlink()
    with pytest.warns(UserWarning, match=rf"step-00000{step}\.safetensors is gone: .* is trained again from the start"):
        _, again = fitted(tmp_path, config)
    after = read_tensors(file)
    assert all(torch.equal(before[name], after[name]) for name in before)
    pd.testing.assert_frame_equal(again, history, check_exact=True)
