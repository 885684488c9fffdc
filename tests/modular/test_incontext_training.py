"""Training in context: resumed bit-equal, stopped and gone on with, evaluated by shot; phases of made tables."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hc_lens.modular.incontext.config import Data, InContextConfig, ModelConfig, Training
from hc_lens.modular.incontext.evaluation import (
    PHASES,
    SETS,
    accuracy_by_shot,
    evaluation_sequences,
    last_shot,
    over_training,
    phase_of,
    predicted_answers,
    transience,
)
from hc_lens.modular.incontext.sequences import examples_of
from hc_lens.modular.incontext.training import InContextRun, adamw, learning_rate, train_in_context

CONFIG = InContextConfig(
    Data(p=5, n_tasks=8, fraction=0.7, n_shots=4),
    ModelConfig(depth=1, width=16, heads=2, init_std=0.1),
    Training(steps=12, batch_size=16, lr=1e-2, weight_decay=0.1, warmup_steps=2, checkpoint_every=4, log_every=3, evaluate=40),
)


class KilledError(Exception):
    pass


def test_a_run_that_was_killed_ends_bit_equal_to_one_that_was_not(tmp_path: Path) -> None:
    whole = train_in_context(CONFIG, tmp_path / "whole")
    calls = 0

    def kill(found: InContextRun) -> bool:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KilledError
        return False

    with pytest.raises(KilledError):
        train_in_context(CONFIG, tmp_path / "killed", until=kill)
    assert InContextRun(whole.run.open(tmp_path / "killed"), CONFIG).steps == [0, 4, 8]
    resumed = train_in_context(CONFIG, tmp_path / "killed")
    assert resumed.run.finished
    for (name, one), (_, other) in zip(whole.model().state_dict().items(), resumed.model().state_dict().items(), strict=True):
        assert torch.equal(one, other), name
    pd.testing.assert_frame_equal(whole.evaluations(), resumed.evaluations())
    losses = [run.run.metrics()["loss"].dropna().tolist() for run in (whole, resumed)]
    assert losses[0] == losses[1]
    assert losses[0][-1] < losses[0][0]


def test_a_kill_between_a_row_and_its_checkpoint_leaves_one_row_a_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise KilledError

    with monkeypatch.context() as patched:
        patched.setattr("hc_lens.modular.incontext.training.keep", dies)
        with pytest.raises(KilledError):
            train_in_context(CONFIG, tmp_path)
    timed = train_in_context(CONFIG, tmp_path).run.metrics().dropna(subset="seconds")
    assert timed["step"].tolist() == [0, 4, 8, 12]


@pytest.mark.parametrize("name", ["checkpoints/step-000004.safetensors", "evaluation/step-000008.parquet"])
@pytest.mark.filterwarnings("ignore:.*step-000004.safetensors is gone")
def test_what_is_deleted_of_a_finished_run_is_made_again(name: str, tmp_path: Path) -> None:
    before = train_in_context(CONFIG, tmp_path)
    tables, weights = before.evaluations(), before.model(4).state_dict()
    (tmp_path / name).unlink()
    again = train_in_context(CONFIG, tmp_path)
    assert again.run.finished
    pd.testing.assert_frame_equal(again.evaluations(), tables)
    assert all(torch.equal(weights[key], value) for key, value in again.model(4).state_dict().items())


def test_a_run_stops_where_it_is_told_to_and_goes_on_later(tmp_path: Path) -> None:
    stopped = train_in_context(CONFIG, tmp_path, until=lambda found: found.steps[-1] >= 4)
    assert stopped.steps == [0, 4]
    assert not stopped.run.finished
    assert train_in_context(CONFIG, tmp_path).steps == [0, 4, 8, 12]
    assert stopped.seconds > 0


def test_learning_rate_rises_from_a_hundredth_and_falls_to_a_tenth() -> None:
    training = Training(steps=1_000, lr=1.0, warmup_steps=100)
    assert learning_rate(training, 0) == pytest.approx(0.01)
    assert learning_rate(training, 100) == pytest.approx(1.0)
    assert learning_rate(training, 550) == pytest.approx(0.55)
    assert learning_rate(training, 1_000) == pytest.approx(0.1)


def test_matrices_decay_and_norms_do_not() -> None:
    groups = adamw(CONFIG.new_model(), CONFIG.training).param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert {weight.ndim for weight in groups[1]["params"]} == {1}
    assert all(weight.ndim > 1 for weight in groups[0]["params"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda c: replace(c, training=replace(c.training, batch_size=12)),
            r"batch_size must be a multiple of n_tasks.*got 12",
        ),
        (lambda c: replace(c, training=replace(c.training, lr=0.0)), "lr must be positive"),
        (lambda c: replace(c, training=replace(c.training, warmup_steps=12)), "warmup_steps must be in"),
    ],
)
def test_a_setting_that_cannot_be_is_refused_by_name(
    change: Callable[[InContextConfig], InContextConfig], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        change(CONFIG)


def test_what_the_data_cannot_give_is_refused_before_anything_is_drawn() -> None:
    for wrong, message in (
        ({"n_shots": 18}, r"n_shots must be in 2\.\.17"),
        ({"p": 6}, "p must be a prime"),
        ({"n_tasks": 7}, "n_tasks must be a multiple of 4"),
        ({"n_tasks": 25, "rule": "random"}, r"n_tasks must be in 1\.\.24"),
        ({"fraction": 1.0}, "fraction, the share of 25 pairs"),
    ):
        with pytest.raises(ValueError, match=message):
            replace(CONFIG.data, **wrong)


def test_sequences_of_a_set_are_of_its_tasks_and_its_examples_only() -> None:
    tasks, examples = CONFIG.data.tasks(), CONFIG.data.examples()
    for of in SETS:
        tokens, _ = evaluation_sequences(tasks, examples, of, n_shots=30, n=40, seed=0)
        pool = {tuple(pair) for pair in getattr(examples, of.examples).tolist()}
        coefficients = getattr(tasks, of.tasks)
        shots = examples_of(tokens)
        assert shots.shape[1] == len(pool)  # as long as the examples allow
        assert {tuple(pair) for row in shots.tolist() for pair in row} == pool
        z = tokens[:, 2::3]
        could_be = ((coefficients[:, None, None] * shots).sum(-1) % 5 == z).all(-1)
        assert could_be.any(0).all()


def test_accuracy_is_that_of_the_predictions() -> None:
    model = CONFIG.new_model()
    tasks, examples = CONFIG.data.tasks(), CONFIG.data.examples()
    table = accuracy_by_shot(model, tasks, examples, n_shots=4, n=30, seed=1)
    assert len(table) == 4 * 4
    tokens, _ = evaluation_sequences(tasks, examples, SETS[2], 4, 30, 1)
    right = (predicted_answers(model, tokens) == tokens[:, 2::3]).float().mean(0)
    rows = table[(table["tasks"] == "unseen") & (table["examples"] == "train")]
    np.testing.assert_allclose(rows["accuracy"], right)
    assert (rows["low"] <= rows["accuracy"]).all()


def _expected(solved: tuple[bool, ...]) -> str:
    if not solved[0]:
        return "none"
    if all(solved):
        return "OOD generalization"
    if solved[2]:
        return "OOD memorisation"
    return "ID generalization" if solved[1] else "ID memorisation"


@pytest.mark.parametrize("solved", list(product([False, True], repeat=4)))
def test_phases_of_made_tables(solved: tuple[bool, ...]) -> None:
    rows = [
        {**of._asdict(), "shot": shot, "accuracy": (0.8 if is_solved else 0.7) if shot == 3 else 0.99}
        for of, is_solved in zip(SETS, solved, strict=True)
        for shot in (1, 2, 3)
    ]
    accuracies = last_shot(pd.DataFrame(rows))
    assert phase_of(accuracies) == _expected(solved)
    assert phase_of(accuracies, threshold=0.65) == "OOD generalization"
    assert phase_of(accuracies, threshold=0.9) == "none"


def test_a_phase_needs_all_four_sets_and_a_threshold_that_can_be() -> None:
    rows = pd.DataFrame([{**of._asdict(), "shot": 1, "accuracy": 1.0} for of in SETS[:3]])
    with pytest.raises(ValueError, match="none on unseen tasks, test examples"):
        last_shot(rows)
    with pytest.raises(ValueError, match=r"got 75\.0"):
        phase_of(dict.fromkeys(SETS, 1.0), threshold=75.0)
    assert PHASES[0] == "none"


def test_generalization_that_is_lost_again() -> None:
    rows = [
        {**of._asdict(), "step": step, "shot": shot, "n": 10, "accuracy": value * shot / 2, "low": 0.0, "high": 1.0}
        for step, value in ((0, 0.1), (100, 0.9), (200, 0.3))
        for of in SETS
        for shot in (1, 2)
    ]
    found = transience(pd.DataFrame(rows))
    assert (found.best_step, found.best, found.final) == (100, 0.9, 0.3)
    assert found.lost == pytest.approx(0.6)
    assert len(over_training(pd.DataFrame(rows))) == 3 * 4
