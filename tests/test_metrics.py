"""Predictions in row order, scores by the split's rule, intervals and divergences against numbers worked out by hand."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hc_lens.data.task import Split, Task
from hc_lens.hooks import Edit, HookError
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.metrics import (
    LabelOrderError,
    agreement,
    calibration_error,
    confidence,
    encode_cases,
    evaluate,
    kl_to_full,
    label_order,
    predict,
    score,
)
from hc_lens.metrics.scores import require_label_order
from hc_lens.models import fingerprint
from hc_lens.sample import Sample
from hc_lens.statistics import wilson_interval
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.analysis.planted import N_HEADS, N_LAYERS, A, B, PlantedClassifier, planted_task, split

TASK = planted_task()
NLI = ("entailment", "neutral", "contradiction")


def hans(labels: list[int]) -> Split:
    rows = tuple("a" for _ in labels)
    return Split("hans", rows, rows, tuple(labels), ("entailment", "non-entailment"), (0, 1, 1))


# Divergence, agreement, calibration


def test_kl_to_full_by_hand():
    """KL((1/2, 1/2) || (1/4, 3/4)) = ln 2 / 2 + ln(2/3) / 2; a constant added to logits changes nothing."""
    full = torch.tensor([[0.0, 0.0], [3.0, 3.0], [1.0, 2.0]])
    sub = torch.tensor([[0.0, math.log(3)], [5.0, 5.0 + math.log(3)], [1.0, 2.0]])
    expected = 0.5 * math.log(2) + 0.5 * math.log(2 / 3)
    assert kl_to_full(full, sub).tolist() == pytest.approx([expected, expected, 0.0], abs=1e-6)


def test_calibration_error_by_hand():
    """Two rows at 0.9 of which one is right (gap 0.4), two at 0.6, both right (gap 0.4, the other way)."""
    correct = np.array([True, False, True, True])
    assert calibration_error(np.array([0.9, 0.9, 0.6, 0.6]), correct, n_bins=10) == pytest.approx(0.4)
    assert calibration_error(np.array([0.75, 0.75, 0.75, 0.75]), np.array([True, True, True, False])) == pytest.approx(0)
    assert calibration_error(np.array([0.0, 1.0]), np.array([False, True])) == 0
    with pytest.raises(ValueError, match=r"must be in \[0, 1\]"):
        calibration_error(np.array([1.5]), np.array([True]))


def test_agreement_counts_equal_predictions():
    assert agreement(np.array([0, 1, 2, 2]), np.array([0, 1, 1, 0])) == 0.5


# Scores


def test_hans_scores_three_logits_as_two_labels():
    """argmax, then collapse: neutral counts as non-entailment, though entailment alone beats each of the two in row 3."""
    logits = torch.log(torch.tensor([[0.5, 0.3, 0.2], [0.2, 0.5, 0.3], [0.4, 0.35, 0.25]]))
    found = score(logits, hans([0, 1, 1]), "hans", "OOD")
    assert found.correct.tolist() == [True, True, False]
    assert found.margin == pytest.approx([0.0, math.log(0.8 / 0.2), math.log(0.6 / 0.4)], abs=1e-6)
    assert confidence(logits, hans([0, 1, 1])) == pytest.approx([0.5, 0.8, 0.4])
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.interval() == wilson_interval(2, 3)


def test_margin_of_two_classes_is_the_logit_difference():
    two = split("s", ["m0", "m1"], ["yes", "no"])
    assert score(torch.tensor([[3.0, 1.0], [3.0, 1.0]]), two, "s", "ID").margin.tolist() == [2.0, -2.0]


def test_scores_refuse_what_cannot_be_scored():
    with pytest.raises(ValueError, match="row 1: logits"):
        score(torch.tensor([[0.0, 1, 2], [float("nan"), 0, 0]]), hans([0, 1]), "hans", "OOD")
    with pytest.raises(ValueError, match="1 rows and 3 classes"):
        score(torch.zeros(2, 3), hans([0]), "hans", "OOD")
    unreachable = Split("odd", ("a",), ("b",), (1,), ("x", "y"), (0, 0))
    with pytest.raises(ValueError, match="label 'y' is what no class of the task collapses to"):
        score(torch.zeros(1, 2), unreachable, "odd", "OOD")
    certain = Split("odd", ("a",), ("b",), (0,), ("x", "y"), (0, 0))
    with pytest.raises(ValueError, match="label 'x' is what every class"):
        score(torch.zeros(1, 2), certain, "odd", "OOD")


# Label order


@given(st.permutations(NLI))
def test_label_order_finds_each_class_by_name(model_labels):
    order = label_order([name.upper() for name in model_labels], NLI)
    assert [model_labels[i] for i in order] == list(NLI)


def test_label_order_names_both_label_sets():
    with pytest.raises(LabelOrderError, match=r"\('yes', 'no'\) are not the task's labels \('entailment'"):
        label_order(("yes", "no"), NLI)


def test_a_model_with_its_labels_in_another_order_gets_the_same_table():
    plain = evaluate(PlantedClassifier({A: 1.0}), TASK)
    other = evaluate(PlantedClassifier({A: 1.0}, label_names=("no", "yes")), TASK)
    assert plain.equals(other)


def three_way(accuracy: float, wrong: dict[int, int], n: int = 300) -> tuple[torch.Tensor, Split]:
    """Predictions right on a share of the rows, then renamed by `wrong`."""
    labels = torch.arange(n) % 3
    predicted = torch.where(torch.arange(n) < accuracy * n, labels, (labels + 1) % 3)
    predicted = torch.tensor([wrong.get(p, p) for p in predicted.tolist()])
    texts = ("a",) * n
    return torch.nn.functional.one_hot(predicted, 3).float(), Split("dev", texts, texts, tuple(labels.tolist()), NLI, (0, 1, 2))


@pytest.mark.parametrize("wrong", [{0: 2, 2: 0}, {0: 1, 1: 2, 2: 0}])
def test_predictions_under_wrong_names_are_an_error_that_says_which(wrong):
    """Two swapped classes leave accuracy at the third's share, near chance; a rotation takes it far below."""
    logits, dev = three_way(0.84, wrong)
    with pytest.raises(LabelOrderError, match=r"would be 0\.840 if .*entailment is really"):
        require_label_order([logits], [dev], NLI)


@pytest.mark.parametrize(("accuracy", "wrong", "n"), [(0.84, {}, 300), (0.4, {}, 300), (0.84, {0: 2, 2: 0}, 12)])
def test_right_poor_and_barely_measured_models_pass(accuracy, wrong, n):
    logits, dev = three_way(accuracy, wrong, n)
    require_label_order([logits], [dev], NLI)


def test_a_constant_answer_is_no_sign_of_swapped_labels():
    """On unbalanced labels the constant minority answer would gain much by renaming, but it carries no information."""
    texts = ("a",) * 100
    dev = Split("qqp", texts, texts, (0,) * 70 + (1,) * 30, ("different", "same"), (0, 1))
    require_label_order([torch.tensor([[0.0, 1.0]]).repeat(100, 1)], [dev], ("different", "same"))


def test_evaluate_refuses_a_trained_model_with_swapped_labels():
    """The task calls "no" what the model was made to call "yes"."""
    dev = split("dev", ["m5"] * 200, ["yes", "no"] * 100)
    swapped = Split("dev", dev.first, dev.second, tuple(1 - label for label in dev.labels), ("yes", "no"), (0, 1))
    task = Task("swapped", ("yes", "no"), swapped, {"dev": swapped}, {})
    with pytest.raises(LabelOrderError, match="label order is probably wrong"):
        evaluate(PlantedClassifier({}), task)
    assert evaluate(PlantedClassifier({}), task, trained=False)["accuracy"].tolist() == [0.0]


# Predictions and the table


def test_predictions_come_in_row_order_whatever_the_lengths_and_batches():
    model = PlantedClassifier({})
    for batch_size in (1, 3, 64):
        logits = predict(model, TASK.ood["ood"], sample=Sample(batch_size=batch_size))
        assert logits[:, 1].tolist() == [i + 0.5 for i in range(10)]
        assert logits.dtype == torch.float32


def test_predict_leaves_the_model_as_it_was_also_on_error():
    model = PlantedClassifier({})
    model.train()
    model.blocks[0].eval()
    training = {name: module.training for name, module in model.named_modules()}
    first = predict(model, TASK.ood["ood"])
    assert torch.equal(first, predict(model, TASK.ood["ood"]))  # dropout is off
    assert not first.requires_grad

    def broken(activation, hook):
        raise RuntimeError("broken edit")

    with pytest.raises(RuntimeError, match="broken edit"):
        predict(model, TASK.ood["ood"], edits=[Edit("blocks.0.attn.hook_z", broken)])
    with pytest.raises(HookError, match=r"blocks\.9"):
        predict(model, TASK.ood["ood"], edits=[Edit("blocks.9.attn.hook_z", broken)])
    assert {name: module.training for name, module in model.named_modules()} == training
    assert torch.is_grad_enabled()
    assert not any(point.fwd_hooks for point in model.hook_dict.values())


def test_cases_evaluated_together_score_as_each_alone():
    model = PlantedClassifier({})
    together = encode_cases(model, TASK)
    logits = predict(model, together.data, sample=Sample(batch_size=4))
    for case, part in zip(together.names, together.parts(logits), strict=True):
        assert torch.equal(part, predict(model, TASK.cases[case]))
    some = encode_cases(model, TASK, sample=Sample(7, cases=["ood"]))
    assert [len(s) for s in some.splits] == [7]
    words = [int(text.split()[0][1:]) for text in some.splits[0].first]
    assert predict(model, some.data)[:, 1].tolist() == [word + 0.5 for word in words]
    with pytest.raises(ValueError, match="max_rows must be at least 1, got 0"):
        encode_cases(model, TASK, sample=Sample(0))
    with pytest.raises(ValueError, match="no cases to evaluate"):
        encode_cases(model, TASK, sample=Sample(cases=[]))


def test_the_table_has_the_full_model_first_and_every_subnetwork_on_every_case():
    model = PlantedClassifier({A: 1.0, B: 2.0}, interaction=3.0)
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    everything = Subnetwork(torch.ones(N_LAYERS, N_HEADS + 1, dtype=torch.bool), means, seed=41)
    pruned = everything.without(A, B)
    table = evaluate(model, TASK, [everything, pruned])
    assert list(table["subnetwork"]) == ["full"] * 2 + ["seed 41"] * 2 + ["subnetwork 1"] * 2
    assert list(table["seed"].fillna(-1)) == [-1, -1, 41, 41, -1, -1]
    assert list(table["case"]) == ["dev", "ood"] * 3
    assert list(table["group"]) == ["ID", "OOD"] * 3
    assert list(table["n"]) == [20, 10] * 3
    assert list(table["accuracy"]) == pytest.approx([1, 1, 1, 1, 0.4, 0.4])
    assert list(table["margin"]) == pytest.approx([5, 5, 5, 5, -1, -1])
    assert list(table["sparsity"]) == pytest.approx([0, 0, 0, 0, 2 / 15, 2 / 15])
    assert list(table["agreement"]) == pytest.approx([1, 1, 1, 1, 0.4, 0.4])
    assert (table["kl"][:4] == 0).all()
    assert (table["kl"][4:] > 0.5).all()
    low, high = wilson_interval(4, 10)
    assert (table["low"].iloc[-1], table["high"].iloc[-1]) == pytest.approx((low, high))
    assert evaluate(model, TASK, [pruned], sample=Sample(cases=["ood"]))["n"].tolist() == [10, 10]


def test_a_subnetwork_of_another_model_is_refused():
    model, other = PlantedClassifier({A: 1.0}), PlantedClassifier({A: 2.0})
    means = ActivationMeans("mean", torch.zeros(N_LAYERS, N_HEADS, 1), torch.zeros(N_LAYERS, 1), 1, fingerprint(other), "data")
    foreign = Subnetwork(torch.ones(N_LAYERS, N_HEADS + 1, dtype=torch.bool), means, 42)
    with pytest.raises(MeansError, match="these means belong to another model"):
        evaluate(model, TASK, [foreign])


def test_a_head_out_of_range_is_named():
    with pytest.raises(ValueError, match=r"L0\.H9"):
        ActivationMeans.collect(PlantedClassifier({}), TASK.train).edits([Head(0, 9)])
