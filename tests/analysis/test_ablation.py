"""Ablation of planted models: effects, super-additivity and controls come out as they were put in."""

import math

import pandas as pd
import pytest
import torch
from jaxtyping import TypeCheckError

from hc_lens.analysis import ablate, single_heads
from hc_lens.data.batches import encode_tokens
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.metrics import LabelOrderError
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.analysis.planted import N_HEADS, N_LAYERS, A, B, PlantedClassifier, planted_task
from tests.micro import micro_model

TASK = planted_task()
NAME = f"{A} + {B}"


def ablated(model, groups, **options):
    return ablate(model, TASK, ActivationMeans.collect(model, TASK.train, kind="zero"), groups, **options)


def row(table: pd.DataFrame, **where) -> pd.Series:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_effects_are_the_planted_weights_on_the_margin_and_the_rows_they_flip_in_accuracy():
    found = ablated(PlantedClassifier({A: 1.0, B: 2.0}, interaction=3.0), [[A], [B], [A, B]]).table()
    for group, effect, flipped in ((str(A), 1.0, 0.1), (str(B), 2.0, 0.2), (NAME, 6.0, 0.6)):
        margin = row(found, group=group, case="ood", scale="margin")
        assert margin["full"] == pytest.approx(5.0)
        assert margin["effect"] == pytest.approx(effect)
        assert (margin["low"], margin["high"]) == pytest.approx((effect, effect))  # the same on every row
        accuracy = row(found, group=group, case="ood", scale="accuracy")
        assert (accuracy["full"], accuracy["ablated"], accuracy["effect"]) == pytest.approx((1.0, 1 - flipped, flipped))
        assert accuracy["low"] <= flipped <= accuracy["high"]
        assert row(found, group=group, case="dev", scale="accuracy")["effect"] == pytest.approx(flipped)
    assert list(found["group"].unique()) == [str(A), str(B), NAME]
    assert dict(zip(found["case"], found["case_group"], strict=True)) == {"dev": "ID", "ood": "OOD"}


def test_super_additivity_is_the_planted_interaction():
    found = ablated(PlantedClassifier({A: 1.0, B: 2.0}, interaction=3.0), [[A, B]]).super_additivity()
    margin = row(found, set=NAME, case="ood", scale="margin")
    assert (margin["joint"], margin["summed"], margin["excess"]) == pytest.approx((6.0, 3.0, 3.0))
    assert (margin["low"], margin["high"]) == pytest.approx((3.0, 3.0))
    accuracy = row(found, set=NAME, case="ood", scale="accuracy")
    assert (accuracy["joint"], accuracy["summed"], accuracy["excess"]) == pytest.approx((0.6, 0.3, 0.3))
    assert accuracy["low"] < 0.3 < accuracy["high"]
    assert not accuracy["floor_limited"]


def test_additive_heads_have_no_excess():
    found = ablated(PlantedClassifier({A: 1.0, B: 2.0}), [[A, B]]).super_additivity()
    assert list(found["excess"]) == pytest.approx([0.0] * 4, abs=1e-6)


def test_accuracy_hides_behind_its_floor_what_the_margin_shows():
    """Each head alone costs 60 %, 120 % in all: accuracy looks sub-additive though the margin is super-additive."""
    found = ablated(PlantedClassifier({A: 6.0, B: 6.0}, interaction=4.0), [[A, B]]).super_additivity()
    accuracy = row(found, case="ood", scale="accuracy")
    assert accuracy["summed"] == pytest.approx(1.2)
    assert accuracy["excess"] == pytest.approx(-0.2)
    assert accuracy["floor"] == 0
    assert accuracy["floor_limited"]
    margin = row(found, case="ood", scale="margin")
    assert margin["excess"] == pytest.approx(4.0)
    assert not margin["floor_limited"]


def test_the_floor_of_a_balanced_case_is_a_constant_answer():
    found = ablated(PlantedClassifier({A: 1.0, B: 1.0}, interaction=20.0), [[A, B]]).super_additivity()
    assert row(found, case="dev", scale="accuracy")["floor"] == pytest.approx(0.5)
    assert math.isnan(row(found, case="dev", scale="margin")["floor"])


def test_random_sets_of_heads_without_interaction_show_that_the_planted_one_is_special():
    result = ablated(PlantedClassifier({A: 1.0, B: 2.0}, interaction=3.0), [[A, B]], controls=5)
    margin = row(result.super_additivity(), case="ood", scale="margin")
    assert margin["controls"] == 5
    assert (margin["control_mean"], margin["control_low"], margin["control_high"]) == pytest.approx((0, 0, 0), abs=1e-6)
    assert margin["control_p"] == pytest.approx(1 / 6)
    for heads in result.controls[NAME]:
        assert [head.layer for head in heads] == [A.layer, B.layer]
        assert not {A, B} & set(heads)


def test_a_set_larger_than_the_rest_of_the_model_goes_without_controls(caplog):
    most = [Head(layer, index) for layer in range(N_LAYERS) for index in range(3)]
    result = ablated(PlantedClassifier({A: 1.0}), {"most": most}, controls=4)
    assert (result.super_additivity()["controls"] == 0).all()
    assert "it has 9 heads, only 3 are in no set" in caplog.text


def test_without_controls_their_columns_are_missing_values():
    found = ablated(PlantedClassifier({A: 1.0}), [[A, B]]).super_additivity()
    assert (found["controls"] == 0).all()
    assert found[["control_mean", "control_low", "control_high", "control_p"]].isna().all(axis=None)


def test_the_control_row_averages_the_heads_outside_the_core():
    model = PlantedClassifier({A: 1.0, B: 2.0, Head(2, 3): 5.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    found = ablate(model, TASK, means, single_heads(means)).table(core=[A, B])
    others = row(found, group="mean of 10 other heads", case="ood", scale="margin")
    assert others["effect"] == pytest.approx(0.5)
    assert found["group"].nunique() == N_LAYERS * N_HEADS + 1
    with pytest.raises(ValueError, match="no head outside the core"):
        ablated(model, [[A]]).table(core=[A])


def test_every_set_is_run_once_over_all_cases_together():
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    model.calls = 0
    ablate(model, TASK, means, [[A], [A, B], [B, A]], sample=Sample(batch_size=30))
    assert model.calls == 4  # full, A, A + B, B: 30 rows of both cases in one batch


def test_max_rows_takes_the_same_rows_of_a_case_whichever_cases_are_asked_for():
    model = PlantedClassifier({A: 1.0})
    both = ablated(model, [[A]], sample=Sample(4))
    alone = ablated(model, [[A]], sample=Sample(4, cases=["ood"]))
    assert [stop - start for _, _, start, stop, _ in both.cases] == [4, 4]
    assert both.full["margin"][4:].tolist() == alone.full["margin"].tolist()
    other = ablated(model, [[A]], sample=Sample(4, 1, ["ood"]))
    assert other.full["margin"].tolist() != alone.full["margin"].tolist()


def test_a_group_of_one_unit_and_groups_with_mlps():
    result = ablated(PlantedClassifier({A: 1.0}), {"all of layer 0": [A, Mlp(0)], "head": [A]}, controls=3)
    assert list(result.groups) == ["all of layer 0", "head"]
    assert result.controls == {}
    assert list(result.super_additivity()["set"].unique()) == ["all of layer 0"]


def test_only_single_units_give_an_empty_table_with_its_columns():
    found = ablated(PlantedClassifier({A: 1.0}), [[A]]).super_additivity()
    assert found.empty
    assert {"set", "excess", "floor_limited", "control_p"} <= set(found.columns)


def test_a_metric_of_ones_own_on_a_plain_hooked_model():
    """The micro model is linear: with zero ablation a unit costs what it writes, and units are additive.

    On token 1, unit u of layer l writes weights[l, u] * (10 l + u + 1) at each position.
    """
    model = micro_model()
    tokens = torch.tensor([[1, 0, 1], [2, 1, 0], [1, 1, 1]])
    means = ActivationMeans.collect(model, tokens, kind="zero")
    groups = [[Head(0, 0), Head(1, 1), Mlp(0)]]
    result = ablate(model, encode_tokens(tokens), means, groups, metric=lambda logits, batch: logits[:, 0] - logits[:, 1])
    found = row(result.super_additivity(), scale="metric")
    ones = 2 + 3 + 3  # token 2 counts twice
    assert found["joint"] == pytest.approx(ones * (1.0 + 0.2 * 12 + 0.5 * 3) / 3)
    assert found["excess"] == pytest.approx(0, abs=1e-5)
    assert result.cases[0].name == "data"
    assert not found["floor_limited"]
    few = ablate(
        model, tokens, means, groups, metric=lambda logits, batch: batch.input_ids[:, 0].float(), sample=Sample(2, batch_size=1)
    )
    assert sorted(few.full["metric"].tolist()) in ([1.0, 1.0], [1.0, 2.0])


def test_bad_input_names_what_is_wrong():
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    with pytest.raises(ValueError, match=r"L9\.H0 is not in this model: layers are 0\.\.2"):
        ablate(model, TASK, means, [[Head(9, 0)]])
    with pytest.raises(ValueError, match="group to ablate is empty"):
        ablate(model, TASK, means, [[]])
    with pytest.raises(ValueError, match="controls must not be negative, got -1"):
        ablate(model, TASK, means, [[A]], controls=-1)
    with pytest.raises(ValueError, match="no groups"):
        ablate(model, TASK, means, [])
    # A bare Head: refused by the function, and sooner by the type checks of the tests.
    with pytest.raises((ValueError, TypeCheckError)):
        ablate(model, TASK, means, [Head(0, 0)])
    with pytest.raises(ValueError, match="needs metric"):
        ablate(model, encode_tokens(torch.ones(2, 2, dtype=torch.long)), means, [[A]])
    with pytest.raises(ValueError, match="a task is scored by accuracy and margin"):
        ablate(model, TASK, means, [[A]], metric=lambda logits, batch: logits[:, 0])
    with pytest.raises(KeyError, match="no case 'hans'"):
        ablate(model, TASK, means, [[A]], sample=Sample(cases=["hans"]))
    with pytest.raises(MeansError, match="another model"):
        ablate(PlantedClassifier({A: 7.0}), TASK, means, [[A]])
    with pytest.raises(LabelOrderError, match="no label names"):
        ablate(micro_model(), TASK, _of_anything(means), [[A]])


def _of_anything(means):
    class Unchecked:
        n_layers, n_heads = 2, 3
        edits = means.edits

        def require_model(self, model):
            pass

    return Unchecked()
