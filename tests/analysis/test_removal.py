"""Effects in the full model against those in subnetworks: planted so that a head matters in one and not in the other."""

import math

import pandas as pd
import pytest
import torch

from hc_lens.analysis import in_subnetworks
from hc_lens.means import ActivationMeans
from hc_lens.metrics import predict
from hc_lens.models import new_model
from hc_lens.sample import Sample
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.analysis.planted import A, B, PlantedClassifier, planted_task, tokenizer
from tests.analysis.relay import LOUD_BERT

TASK = planted_task()
C = Head(2, 0)


def subnetwork(means: ActivationMeans, *closed: Head, seed: int = 0) -> Subnetwork:
    return Subnetwork(torch.ones(means.n_layers, means.n_heads + 1, dtype=torch.bool), means, seed).without(*closed)


def row(table: pd.DataFrame, **where) -> pd.Series:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_a_head_whose_stand_in_was_pruned_away_matters_more_in_the_subnetwork():
    """A and B stand in for each other (interaction 3): A costs 1 in the full model, 4 where B is gone."""
    model = PlantedClassifier({A: 1.0}, interaction=3.0)
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    subs = [subnetwork(means, B), subnetwork(means, B, C)]
    found = in_subnetworks(model, TASK, subs, [A])
    margin = row(found, head=str(A), case="ood", scale="margin")
    assert margin[["full_effect", "full_low", "full_high"]].tolist() == pytest.approx([1.0] * 3)
    assert margin[["within", "within_min", "within_max"]].tolist() == pytest.approx([4.0] * 3)
    assert margin[["difference", "low", "high"]].tolist() == pytest.approx([-3.0] * 3)
    assert (margin["n"], margin["subnetworks"]) == (10, 2)
    assert set(found["case"]) == {"dev", "ood", "ID mean", "OOD mean", "OOD - ID"}


def test_subnetworks_that_lack_the_head_do_not_count_and_their_spread_widens_the_interval():
    model = PlantedClassifier({A: 1.0}, interaction=3.0)
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    subs = [subnetwork(means, B), subnetwork(means, C), subnetwork(means, A)]
    found = row(in_subnetworks(model, TASK, subs, [A]), case="ood", scale="margin")
    assert found["subnetworks"] == 2
    assert found["within"] == pytest.approx(2.5)
    assert (found["within_low"], found["within_high"]) == pytest.approx((1.0, 4.0)), "either subnetwork drawn twice"
    assert (found["within_min"], found["within_max"]) == pytest.approx((1.0, 4.0))
    lacking = row(in_subnetworks(model, TASK, subs[2:], [A]), case="ood", scale="margin")
    assert lacking["full_effect"] == pytest.approx(1.0)
    assert lacking["subnetworks"] == 0
    assert math.isnan(lacking["within"])
    assert math.isnan(lacking["difference"])


def test_several_heads_are_also_removed_together():
    model = PlantedClassifier({A: 1.0, C: 0.5}, interaction=3.0)
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    found = in_subnetworks(model, TASK, [subnetwork(means)], [C, A, B])
    assert found["head"].unique().tolist() == [str(A), str(B), str(C), "all together"]
    together = row(found, head="all together", case="OOD mean", scale="margin")
    assert together["full_effect"] == pytest.approx(4.5)
    assert together["difference"] == pytest.approx(0.0)


def test_a_subnetwork_at_the_floor_is_flagged():
    """B gone costs 9 of margins up to 9.5: one row of ten is right, and A has nothing left to lose there."""
    model = PlantedClassifier({A: 2.0, B: 9.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    found = in_subnetworks(model, TASK, [subnetwork(means, B)], [A])
    accuracy = row(found, case="ood", scale="accuracy")
    assert accuracy["within"] == pytest.approx(0.1)
    assert accuracy["floor_limited"]
    assert not row(found, case="ood", scale="margin")["floor_limited"]
    assert not row(in_subnetworks(model, TASK, [subnetwork(means)], [A]), case="ood", scale="accuracy")["floor_limited"]


def test_blocks_that_a_subnetwork_shares_with_its_ablations_change_no_number():
    """On a BERT, where passes resume within the subnetwork: as `Subnetwork.without` evaluated from the start."""
    model = new_model(LOUD_BERT, labels=("yes", "no"), tokenizer=tokenizer())
    means = ActivationMeans.collect(model, TASK.train)
    sub = subnetwork(means, Head(0, 0), Head(1, 2), Head(2, 3))
    heads = [Head(0, 1), Head(1, 0), Head(2, 2)]
    found = in_subnetworks(model, TASK, [sub], heads, sample=Sample(batch_size=8))
    ood = TASK.ood["ood"]  # always "no", label 1
    margin = {
        name: float((lambda logits: logits[:, 1] - logits[:, 0])(predict(model, ood, edits=edits)).mean())
        for name, edits in {
            "full": [],
            "sub": sub.edits(),
            **{str(head): sub.without(head).edits() for head in heads},
            **{f"full - {head}": means.edits([head]) for head in heads},
        }.items()
    }
    for head in heads:
        here = row(found, head=str(head), case="ood", scale="margin")
        assert here["within"] == pytest.approx(margin["sub"] - margin[str(head)], abs=1e-5)
        assert here["full_effect"] == pytest.approx(margin["full"] - margin[f"full - {head}"], abs=1e-5)
        assert abs(here["within"]) > 1e-3


def test_bad_input_names_what_is_wrong():
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    sub = subnetwork(means)
    with pytest.raises(ValueError, match="no subnetworks to remove heads from"):
        in_subnetworks(model, TASK, [], [A])
    with pytest.raises(ValueError, match="no heads given"):
        in_subnetworks(model, TASK, [sub], [])
    with pytest.raises(ValueError, match="different means"):
        in_subnetworks(model, TASK, [sub, subnetwork(ActivationMeans.collect(model, TASK.train))], [A])
    with pytest.raises(ValueError, match="another model"):
        in_subnetworks(PlantedClassifier({A: 2.0}), TASK, [sub], [A])
