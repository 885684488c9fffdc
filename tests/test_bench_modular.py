"""The bench of modular arithmetic runs at a tiny size, reports what it promises, and compares steps that are the same."""

import json

import torch

from experiments.bench import modular_step
from experiments.bench.modular_step import Looked, OneHot, Setting, one_hot, one_hot_loss
from hc_lens.modular.training import loss_of

TINY = Setting(p=11, n_neurons=8, steps=2, rounds=2)


def test_modular_step_reports_ratios_and_times():
    found = json.loads(modular_step.measure(TINY, quick=True).splitlines()[-1])
    assert found["bench"] == "modular_step"
    assert found["quick"] is True
    assert found["one_hot_over_ours"] > 0
    assert found["wall"]["one_hot_over_ours"] > 0
    for clock in ("cpu", "wall"):
        assert set(found[f"{clock}_seconds_per_1000_steps"]) == {"one_hot", "ours"}
    assert found["threads"] == torch.get_num_threads()


def test_both_steps_have_the_same_loss_gradients_and_weights_after():
    ours, theirs = Looked(TINY), OneHot(TINY)
    loss = loss_of(ours.model(ours.numbers), ours.targets)
    other = one_hot_loss(theirs.model, one_hot(theirs.numbers, TINY.p), theirs.targets)
    torch.testing.assert_close(loss, other)
    gradients = torch.autograd.grad(loss, list(ours.model.parameters()))
    for a, b in zip(gradients, torch.autograd.grad(other, list(theirs.model.parameters())), strict=True):
        torch.testing.assert_close(a, b)
    ours.run()
    theirs.run()
    for a, b in zip(ours.model.parameters(), theirs.model.parameters(), strict=True):
        torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-3)
