"""A killed pruning run goes on from its gates: with the same bits as if nothing had happened, also with dropout and cuts."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hc_lens.atomic import RunError
from hc_lens.means import ActivationMeans
from hc_lens.pruning import GateCheckpoints, PruneConfig, prune, prune_path
from hc_lens.pruning.checkpoint import GateCheckpoint
from hc_lens.pruning.training import GateTraining
from tests.test_pruning import bert, rows

STRETCH = 8  # here, so that few steps have several stretches

CONFIG = PruneConfig(sparsity=0.5, steps=2 * STRETCH + 6, ramp_steps=2 * STRETCH, batch_size=2, max_length=16, gate_std=2.0)


class Killed(BaseException):
    """What a kill does to the code that runs: it ends here."""


@pytest.fixture(autouse=True)
def short_stretches(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("training", "trained"):
        monkeypatch.setattr(f"hc_lens.pruning.{module}.STRETCH", STRETCH)


@pytest.fixture(scope="module")
def setting():
    model, data = bert(), rows()
    return model, data, ActivationMeans.collect(model, data)


@contextmanager
def killed_at(step: int) -> Generator[None]:
    """The process ends in the given step."""
    take = GateTraining.step

    def dying(self: GateTraining) -> None:
        if self.taken == step:
            raise Killed
        take(self)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):  # noqa: PT012  # the caller's statement
        patch.setattr(GateTraining, "step", dying)
        yield


@pytest.mark.parametrize(("at", "dropout"), [(3, False), (STRETCH, False), (2 * STRETCH + 5, False), (STRETCH + 7, True)])
def test_resumed_gates_have_the_bits_of_gates_that_were_never_stopped(setting, tmp_path: Path, monkeypatch, at, dropout):
    model, data, means = setting
    config = replace(CONFIG, dropout=dropout, clip=1.0, schedule="linear", weight_decay=0.01)
    seeds = [42] if dropout else [42, 43]
    whole = prune(model, data, means, config, seeds)
    kept = GateCheckpoints(tmp_path, every=0.0)
    with killed_at(at):
        prune(model, data, means, config, seeds, checkpoints=kept)
    assert kept.groups() == ([] if at < STRETCH else [tuple(seeds)])
    taken = []
    step = GateTraining.step
    monkeypatch.setattr(GateTraining, "step", lambda self: taken.append(self.taken) or step(self))
    resumed = prune(model, data, means, config, seeds, checkpoints=kept)
    assert taken[0] == at // STRETCH * STRETCH, "at most one interval is lost"
    assert torch.equal(resumed.log_alpha, whole.log_alpha)
    assert resumed.history.equals(whole.history)
    assert resumed.subnetworks == whole.subnetworks


def test_a_path_keeps_the_cuts_that_came_before_the_kill(setting, tmp_path: Path, monkeypatch):
    model, data, means = setting
    grid = (0.1, 0.3, 0.5)
    whole = prune_path(model, data, means, CONFIG, grid, [42])
    kept = GateCheckpoints(tmp_path, every=0.0)
    with killed_at(STRETCH + 3):
        prune_path(model, data, means, CONFIG, grid, [42], checkpoints=kept)
    resumed = prune_path(model, data, means, CONFIG, grid, [42], checkpoints=kept)
    for target in grid:
        assert torch.equal(resumed.log_alpha[target], whole.log_alpha[target])


def test_a_checkpoint_of_another_recipe_is_not_taken_up(setting, tmp_path: Path, monkeypatch):
    model, data, means = setting
    kept = GateCheckpoints(tmp_path, every=0.0)
    prune(model, data, means, CONFIG, [42], checkpoints=kept)
    other = replace(CONFIG, lr_gates=0.05)
    again = prune(model, data, means, other, [42], checkpoints=kept)
    assert torch.equal(again.log_alpha, prune(model, data, means, other, [42]).log_alpha)


def test_a_finished_training_is_not_repeated(setting, tmp_path: Path, monkeypatch):
    model, data, means = setting
    kept = GateCheckpoints(tmp_path)
    first = prune(model, data, means, CONFIG, [42], checkpoints=kept)
    monkeypatch.delattr(GateTraining, "step")
    assert torch.equal(prune(model, data, means, CONFIG, [42], checkpoints=kept).log_alpha, first.log_alpha)


def test_checkpoints_come_at_their_interval(setting, tmp_path: Path, monkeypatch):
    model, data, means = setting
    saved = []
    save = GateCheckpoint.save
    monkeypatch.setattr(GateCheckpoint, "save", lambda self, t, cuts: saved.append(t.taken) or save(self, t, cuts))
    prune(model, data, means, CONFIG, [42], checkpoints=GateCheckpoints(tmp_path, every=3600.0))
    assert saved == [CONFIG.steps]
    prune(model, data, means, replace(CONFIG, lr_gates=0.2), [42], checkpoints=GateCheckpoints(tmp_path, every=0.0))
    assert saved[1:] == [STRETCH, 2 * STRETCH, CONFIG.steps]


def test_a_damaged_checkpoint_is_named(setting, tmp_path: Path):
    model, data, means = setting
    kept = GateCheckpoints(tmp_path)
    prune(model, data, means, CONFIG, [42], checkpoints=kept)
    kept.file([42]).write_bytes(b"not a checkpoint")
    with pytest.raises(RunError, match=r"seed-42\.safetensors"):
        kept.groups()
    with pytest.raises(RunError, match=r"seed-42\.safetensors"):
        prune(model, data, means, CONFIG, [42], checkpoints=kept)


def test_a_negative_interval_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"every: .* must not be negative, got -1"):
        GateCheckpoints(tmp_path, every=-1.0)
