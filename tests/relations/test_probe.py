"""Probes find what is planted where it is planted, choose without held-out facts, and find nothing in shuffled answers."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import NearestCentroid
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from hc_lens.relations.config import ProbeConfig
from hc_lens.relations.fits import affine_map, logistic, nearest_mean
from hc_lens.relations.probe import _Facts, control_task, readability
from hc_lens.relations.scores import above_chance, majority_rate, margins
from hc_lens.relations.split import Split

CONFIG = ProbeConfig(strengths=(1e-3, 1e-1, 1e1), folds=3)


def planted(n_answers=4, per_answer=12, d=48, signals=(0.0, 0.0, 1.5, 0.3), seed=0):
    """Residual streams whose layers hold the answer with these strengths, and a split of two thirds for training."""
    generator = torch.Generator().manual_seed(seed)
    codes = torch.arange(n_answers * per_answer) % n_answers
    means = torch.randn(n_answers, d, generator=generator)
    noise = torch.randn(len(signals), len(codes), d, generator=generator)
    resid = noise + torch.tensor(signals)[:, None, None] * means[codes]
    n_train = 2 * len(codes) // 3
    return resid, codes, Split(tuple(range(n_train)), tuple(range(n_train, len(codes))))


def test_the_layer_that_holds_the_answer_is_chosen_and_reads_it_for_new_subjects():
    resid, codes, split = planted()
    found = readability(resid, codes, split, CONFIG)
    assert found.layer == 2
    assert found.accuracy == found.above == 1
    assert found.majority == 0.25
    assert float(found.held_out[0]) < 0.6
    assert torch.equal(found.codes, codes[list(split.held_out)])
    assert torch.equal(found.scores.argmax(1), found.codes)
    assert torch.allclose(found.scores.exp().sum(1), torch.ones(16, dtype=torch.float64))
    assert (found.margins > 0).all()


def test_held_out_facts_choose_nothing():
    resid, codes, split = planted(signals=(0.2, 0.4, 0.3))
    other = resid.clone()
    other[:, list(split.held_out)] = torch.randn(3, 16, 48)
    first, second = (readability(r, codes, split, CONFIG) for r in (resid, other))
    assert (first.layer, first.strength) == (second.layer, second.strength)
    assert torch.equal(first.inner, second.inner)
    assert not torch.equal(first.scores, second.scores)


@pytest.mark.parametrize("n_answers", [2, 4])
def test_a_probe_is_the_pipeline_without_a_change_of_axes(n_answers):
    resid, codes, split = planted(n_answers, signals=(0.4,))
    found = readability(resid, codes, split, ProbeConfig(strengths=(0.1,)))
    train, held_out = list(split.train), list(split.held_out)
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, tol=1e-8, max_iter=5_000))
    plain.fit(resid[0, train].double().numpy(), codes[train].numpy())
    expected = plain.predict_proba(resid[0, held_out].double().numpy())
    assert found.scores.exp().numpy() == pytest.approx(expected, abs=1e-3)


def test_strengths_come_out_as_if_each_was_fitted_alone():
    resid, codes, _ = planted(signals=(0.5,))
    features = resid[0].double().numpy()
    together = logistic(features, codes.numpy(), features, (1e-3, 1e-1, 1e1))
    for strength, scores in zip((1e-3, 1e-1, 1e1), together, strict=True):
        alone = logistic(features, codes.numpy(), features, (strength,))[0]
        assert scores.exp().numpy() == pytest.approx(alone.exp().numpy(), abs=5e-3)


def test_one_subject_is_never_on_both_sides_of_a_fold():
    """Pure noise, each subject under four templates with the same features: a careless fold reads the answer off the copy."""
    resid, codes, _ = planted(per_answer=8, signals=(0.0,))
    resid, codes = torch.cat([resid] * 4, dim=1), codes.repeat(4)
    names = [f"subject {place % 32}" for place in range(128)]
    train = [place for place in range(128) if place % 32 < 24]
    split = Split(tuple(train), tuple(place for place in range(128) if place % 32 >= 24))
    careless = readability(resid, codes, split, CONFIG)
    careful = readability(resid, codes, split, CONFIG, subjects=names)
    assert float(careless.inner[0]) > 0.8
    assert float(careful.inner[0]) < 0.45


def test_a_subject_trained_on_and_held_out_is_named_whatever_its_spelling():
    resid, codes, split = planted()
    names = [f"city {place}" for place in range(48)]
    names[40] = "City 3."
    with pytest.raises(ValueError, match="'city 3' is trained on and held out"):
        readability(resid, codes, split, CONFIG, subjects=names)


def test_answers_that_cannot_be_validated_are_refused():
    resid, codes, split = planted()
    with pytest.raises(ValueError, match="two answers with two training subjects"):
        readability(resid, codes, Split(split.train[:7], split.train[7:]), CONFIG)
    with pytest.raises(ValueError, match="two answers with two training subjects"):
        readability(resid, torch.zeros_like(codes), split, CONFIG)


def test_the_control_task_is_memorised_and_not_read():
    resid, codes, split = planted(per_answer=30, signals=(0.0, 1.5))
    found = readability(resid, codes, split, CONFIG)
    control = control_task(resid, codes, split, CONFIG, found, draws=4)
    assert (found.layer, found.accuracy) == (1, 1)
    assert 0.1 < float(control.held_out.mean()) < 0.4
    assert control.selectivity == pytest.approx(1 - float(control.held_out.mean()))
    assert float(control.train.mean()) > 0.5
    with pytest.raises(ValueError, match="at least one draw"):
        control_task(resid, codes, split, CONFIG, found, draws=0)


def test_shuffled_answers_keep_their_numbers_on_each_side_and_one_answer_a_subject():
    codes = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 0, 1, 2, 0])
    names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "i"]
    facts = _Facts.of(codes, Split(tuple(range(8)), tuple(range(8, 12))), names)
    shuffled = [facts.shuffled(np.random.default_rng(seed)).codes for seed in range(6)]
    assert all(torch.equal(each[:8].bincount(), codes[:8].bincount()) for each in shuffled)
    assert all(each[8] == each[11] and sorted(each[8:11].tolist()) == [0, 1, 2] for each in shuffled)
    assert len({tuple(each.tolist()) for each in shuffled}) > 3


def test_nearest_means_are_those_of_scikit_learn():
    resid, codes, split = planted(signals=(0.3, 0.8))
    found = readability(resid, codes, split, CONFIG, fit=nearest_mean)
    train, held_out = list(split.train), list(split.held_out)
    plain = make_pipeline(StandardScaler(), NearestCentroid()).fit(resid[found.layer, train].double(), codes[train])
    assert found.scores.argmax(1).tolist() == plain.predict(resid[found.layer, held_out].double()).tolist()


def test_an_affine_map_reads_answers_that_are_a_linear_function_of_the_subject():
    generator = torch.Generator().manual_seed(1)
    resid, codes, split = planted(n_answers=5, signals=(0.0, 1.5))
    answers = torch.randn(5, 20, generator=generator)
    found = readability(resid, codes, split, CONFIG, fit=affine_map(answers))
    assert (found.layer, found.accuracy) == (1, 1)
    assert found.scores.abs().max() <= 1 + 1e-12
    with pytest.raises(ValueError, match="representations of 4 answers; the facts have 5"):
        readability(resid, codes, split, CONFIG, fit=affine_map(answers[:4]))


def test_scores_worked_by_hand():
    scores = torch.tensor([[3.0, 1.0, 0.0], [2.0, 5.0, 4.0]])
    assert margins(scores, torch.tensor([0, 2])).tolist() == [2.0, -1.0]
    assert majority_rate(torch.tensor([0, 2, 2, 1])) == 0.5
    assert [above_chance(accuracy, 0.5) for accuracy in (1.0, 0.75, 0.5, 0.0)] == [1, 0.5, 0, -1]
    with pytest.raises(ValueError, match="all facts have the same answer"):
        above_chance(1.0, 1.0)


@pytest.mark.parametrize("strengths", [(), (0.0, 1.0), (1.0, 0.1), (1.0, 1.0)])
def test_strengths_ascend(strengths):
    with pytest.raises(ValueError, match="positive and ascending"):
        ProbeConfig(strengths=strengths)


def test_folds_are_two_at_least():
    with pytest.raises(ValueError, match="got 1"):
        ProbeConfig(folds=1)
