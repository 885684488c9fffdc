"""Attention scores and ablation effects of core heads over checkpoints, joined."""

import math

import pandas as pd
import pytest

from hc_lens.analysis import core_head_development
from hc_lens.units import Head

HEADS = (Head(1, 0), Head(0, 2))

ATTENTION = pd.DataFrame(
    [
        (step, layer, head, relation, 0.1 * layer + 0.01 * head + step / 1000, 0.0, 1.0)
        for step in (100, 0)
        for layer in (0, 1)
        for head in (0, 1, 2)
        for relation in ("overlap", "previous")
    ],
    columns=["step", "layer", "head", "relation", "score", "low", "high"],
)

ABLATION = pd.DataFrame(
    [
        (step, group, case, case_group, scale, effect, effect - 0.03, effect + 0.04)
        for step in (0, 100)
        for group in ("L0.H2", "L1.H0", "core")
        for case, case_group, effect in (("matched", "ID", 0.01), ("a", "OOD", 0.1), ("b", "OOD", 0.3 + step / 1000))
        for scale in ("accuracy", "margin")
    ],
    columns=["step", "group", "case", "case_group", "scale", "effect", "low", "high"],
)


def test_one_row_per_head_quantity_and_step_in_the_order_of_the_heads():
    table = core_head_development(HEADS, ATTENTION, ABLATION)
    assert len(table) == 2 * 3 * 2
    assert list(dict.fromkeys(table["unit"])) == ["L1.H0", "L0.H2"]
    assert set(table["quantity"]) == {"overlap attention", "ablation effect ID", "ablation effect OOD"}
    score = table[(table["unit"] == "L0.H2") & (table["quantity"] == "overlap attention")]
    assert list(score["step"]) == [0, 100]
    assert list(score["value"]) == pytest.approx([0.02, 0.12])
    assert (score["layer"] == 0).all()
    assert (score["head"] == 2).all()


def test_the_effect_of_a_group_is_the_mean_over_its_cases_and_their_errors_add_in_quadrature():
    table = core_head_development(HEADS, ablation=ABLATION)
    later = table[(table["unit"] == "L1.H0") & (table["quantity"] == "ablation effect OOD") & (table["step"] == 100)].iloc[0]
    assert later["value"] == pytest.approx((0.1 + 0.4) / 2)
    assert later["low"] == pytest.approx(0.25 - math.hypot(0.03, 0.03) / 2)
    assert later["high"] == pytest.approx(0.25 + math.hypot(0.04, 0.04) / 2)
    inside = table[table["quantity"] == "ablation effect ID"].iloc[0]
    assert (inside["low"], inside["high"]) == pytest.approx((-0.02, 0.05)), "of one case: its own"


def test_several_relations_and_another_scale():
    table = core_head_development(HEADS, ATTENTION, ABLATION, relations=("overlap", "previous"), scale="margin")
    assert {"overlap attention", "previous attention"} < set(table["quantity"])


def test_bad_input_names_what_is_wrong():
    with pytest.raises(ValueError, match="no heads to follow"):
        core_head_development((), ATTENTION)
    with pytest.raises(ValueError, match="neither attention scores nor ablation effects"):
        core_head_development(HEADS)
    with pytest.raises(ValueError, match="no relation 'next'; it has overlap, previous"):
        core_head_development(HEADS, ATTENTION, relations=("next",))
    with pytest.raises(ValueError, match="no scale 'metric'; it has accuracy, margin"):
        core_head_development(HEADS, ablation=ABLATION, scale="metric")
    with pytest.raises(ValueError, match=r"the attention table has no row for L3\.H1"):
        core_head_development([Head(3, 1)], ATTENTION)
    with pytest.raises(ValueError, match=r"the ablation table has no row for L0\.H1"):
        core_head_development([Head(0, 1)], ablation=ABLATION)
    with pytest.raises(ValueError, match=r"several rows for unit L0\.H2, step 100"):
        core_head_development(HEADS, pd.concat([ATTENTION, ATTENTION]))
    with pytest.raises(ValueError, match=r"the attention table needs the columns .*'step'"):
        core_head_development(HEADS, ATTENTION.drop(columns="step"))
