"""Pairs of heads whose interaction is known: redundant, independent and overlapping ones, per case and across domains."""

import dataclasses

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis import ablate, by_domain, core_pairs, interaction_matrix, interactions
from hc_lens.analysis.domains import places_of
from hc_lens.analysis.effects import Ablation, CaseRows
from hc_lens.means import ActivationMeans
from hc_lens.units import Head, Mlp
from tests.analysis.planted import A, B, PlantedClassifier, planted_task

TASK = planted_task()
C = Head(2, 0)


def pairs(model, heads=(A, B, C), **options) -> Ablation:
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    return ablate(model, TASK, means, core_pairs(heads), **options)


def row(table: pd.DataFrame, **where) -> pd.Series:
    for column, value in where.items():
        table = table[table[column] == value]
    assert len(table) == 1
    return table.iloc[0]


def test_all_pairs_once_in_the_order_of_layers():
    assert core_pairs([C, A, B, A]) == [(A, B), (A, C), (B, C)]
    with pytest.raises(ValueError, match=r"at least two different heads, got \['L0\.H1'\]"):
        core_pairs([A, A])


def test_redundant_heads_cost_nothing_alone_and_all_together():
    """Either of A and B does the work of both: all of the joint effect is interaction, and random pairs have none."""
    found = interactions(pairs(PlantedClassifier({C: 1.0}, interaction=3.0), controls=6))
    redundant = row(found, a=str(A), b=str(B), case="ood", scale="margin")
    assert (redundant["effect_a"], redundant["effect_b"]) == pytest.approx((0, 0), abs=1e-6)
    assert redundant["joint"] == pytest.approx(3.0)
    assert redundant[["interaction", "low", "high"]].tolist() == pytest.approx([3.0] * 3)
    assert redundant["controls"] == 6
    assert redundant[["control_mean", "control_low", "control_high"]].tolist() == pytest.approx([0.0] * 3, abs=1e-6)
    assert redundant["control_p"] == pytest.approx(1 / 7)


def test_independent_heads_do_not_interact():
    found = interactions(pairs(PlantedClassifier({A: 1.0, C: 2.0}, interaction=3.0)))
    margin = found[(found["scale"] == "margin") & (found["b"] == str(C))]
    assert len(margin) == 2 * 5  # pairs, places
    assert (margin[["interaction", "low", "high"]].abs() < 1e-5).all(axis=None)


def test_a_pair_that_the_floor_hides_is_flagged_on_every_place_it_is_part_of():
    found = interactions(pairs(PlantedClassifier({A: 6.0, B: 6.0}, interaction=4.0), heads=(A, B)))
    flags = found[found["scale"] == "accuracy"].set_index("case")["floor_limited"]
    assert flags[["ood", "OOD mean", "OOD - ID"]].all()
    hidden = row(found, case="ood", scale="accuracy")
    assert hidden["interaction"] == pytest.approx(-0.2)
    assert row(found, case="ood", scale="margin")["interaction"] == pytest.approx(4.0)


def test_the_matrix_is_symmetric_with_single_effects_on_its_diagonal():
    found = interactions(pairs(PlantedClassifier({A: 1.0, B: 2.0, C: 0.5}, interaction=3.0)))
    matrix = interaction_matrix(found, "OOD mean")
    names = [str(A), str(B), str(C)]
    assert list(matrix.index) == list(matrix.columns) == names
    assert matrix.to_numpy() == pytest.approx(np.asarray([[1, 3, 0], [3, 2, 0], [0, 0, 0.5]]), abs=1e-5)
    with pytest.raises(ValueError, match=r"no interactions on 'hans' in 'margin': the cases are \['dev', 'ood', 'ID mean'"):
        interaction_matrix(found, "hans")


def test_groups_other_than_pairs_of_heads_are_left_out():
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    groups = [[A], [A, B], [A, B, C], [A, Mlp(1)]]
    assert set(interactions(ablate(model, TASK, means, groups))["b"]) == {str(B)}
    with pytest.raises(ValueError, match=r"no pair of heads among the 1 groups that were ablated: add core_pairs"):
        interactions(ablate(model, TASK, means, [[A]]))


def ablation(effects: dict[str, tuple[str, np.ndarray, np.ndarray]]) -> Ablation:
    """Of A + B on cases given as group, effect of A, effect of both; B alone does nothing."""
    sizes = [len(a) for _, a, _ in effects.values()]
    stops = np.cumsum(sizes)
    cases = tuple(
        CaseRows(name, group, int(stop) - len(a), int(stop), 0.0)
        for (name, (group, a, _)), stop in zip(effects.items(), stops, strict=True)
    )
    full = np.zeros(sum(sizes), dtype=np.float32)
    alone, both = (np.concatenate([case[i] for case in effects.values()]).astype(np.float32) for i in (1, 2))
    values = {(A, B): -both, (A,): -alone, (B,): full}
    return Ablation({"pair": (A, B)}, {}, cases, {"margin": full}, {units: {"margin": v} for units, v in values.items()})


def test_places_are_cases_means_with_equal_weights_and_their_difference():
    cases = tuple(CaseRows(name, group, 0, 1, 0.0) for name, group in (("m", "ID"), ("x", "OOD"), ("y", "OOD")))
    weights = {place.name: place.weights for place in places_of(cases)}
    assert weights["ID mean"] == (1, 0, 0)
    assert weights["OOD mean"] == (0, 0.5, 0.5)
    assert weights["OOD - ID"] == (-1, 0.5, 0.5)
    assert [place.name for place in places_of(cases[1:])] == ["x", "y", "OOD mean"]
    assert [place.name for place in places_of((CaseRows("data", "", 0, 1, 0.0),))] == ["data"]


def test_means_weigh_cases_not_rows_and_the_difference_is_out_of_domain_minus_in():
    found = by_domain(
        ablation(
            {
                "m": ("ID", np.full(3, 1.0), np.full(3, 1.5)),
                "x": ("OOD", np.full(50, 2.0), np.full(50, 5.0)),
                "y": ("OOD", np.full(2, 6.0), np.full(2, 7.0)),
            }
        )
    )

    def value(quantity: str, case: str) -> float:
        return row(found, set="pair", quantity=quantity, case=case)["value"]

    assert value("effect", "OOD mean") == pytest.approx(6.0)
    assert value("effect", "OOD - ID") == pytest.approx(4.5)
    assert value("excess", "x") == pytest.approx(3.0)
    assert value("excess", "OOD - ID") == pytest.approx((3.0 + 1.0) / 2 - 0.5)
    difference = row(found, quantity="effect", case="OOD - ID")
    assert (difference["cases"], difference["case_group"]) == (3, "")


def test_intervals_of_a_case_are_those_of_super_additivity_and_a_mean_has_the_width_of_independent_cases():
    rng = np.random.default_rng(0)
    cases = {name: ("OOD", rng.normal(size=400), rng.normal(size=400)) for name in "wxyz"}
    given = ablation(cases)
    found = by_domain(given)
    excess = given.super_additivity().set_index("case")
    widths = []
    for case in "wxyz":
        here = row(found, quantity="excess", case=case)
        assert here[["low", "high"]].tolist() == pytest.approx(excess.loc[case, ["low", "high"]].tolist())
        widths.append(here["high"] - here["low"])
    mean = row(found, quantity="excess", case="OOD mean")
    assert mean["high"] - mean["low"] == pytest.approx(np.mean(widths) / 2, rel=0.1)  # 1 / sqrt(4 cases)


def test_plain_data_have_one_place():
    given = dataclasses.replace(
        ablation({"data": ("", np.arange(4.0), np.arange(4.0))}), cases=(CaseRows("data", "", 0, 4, float("nan")),)
    )
    assert by_domain(given)["case"].unique().tolist() == ["data"]
