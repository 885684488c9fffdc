"""How much of the final core each checkpoint holds, on masks small enough to count by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hc_lens.analysis import heuristic_core, spearman
from hc_lens.analysis.emergence import core_emergence
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.analysis.masks import of_mask, sub

# Two layers of four heads. The core of the last checkpoint is L0.H0, L0.H1, L1.H0; each seed keeps one more.
FINAL = [sub("1110.1", "1000.1", seed=42), sub("1100.1", "1100.1", seed=43), sub("1101.1", "1000.1", seed=44)]
FIRST = [sub("1000.1", "0011.1", seed=42), sub("0010.1", "1010.1", seed=43), sub("0011.1", "0110.1", seed=44)]
MIDDLE = [sub("1100.1", "1001.1", seed=42), sub("1100.1", "1010.1", seed=43), sub("1001.1", "1010.1", seed=44)]
COURSE = {0: FIRST, 100: MIDDLE, 200: FINAL}


def row(table: pd.DataFrame, step: int) -> pd.Series:
    return table[table["step"] == step].iloc[0]


def test_recall_of_the_final_core_by_hand():
    found = core_emergence(COURSE)
    assert found.core.heads == (Head(0, 0), Head(0, 1), Head(1, 0))
    assert found.final == 200
    assert list(found.runs["kept"]) == [1, 1, 0, 3, 3, 2, 3, 3, 3]
    assert list(found.runs["recall"]) == pytest.approx([1 / 3, 1 / 3, 0, 1, 1, 2 / 3, 1, 1, 1])
    assert list(found.steps["recall"]) == pytest.approx([2 / 9, 8 / 9, 1])
    assert list(found.steps["n"]) == [3, 3, 3]
    assert list(found.steps["by_construction"]) == [False, False, True]


def test_a_core_of_other_seeds_makes_the_final_recall_a_measurement():
    others = [sub("1011.1", "1000.1", seed=50), sub("1010.1", "1001.1", seed=51)]
    found = core_emergence(COURSE, core=heuristic_core(others))
    assert found.core.heads == (Head(0, 0), Head(0, 2), Head(1, 0))
    assert list(found.runs["kept"]) == [1, 2, 1, 2, 2, 2, 3, 2, 2]
    assert list(found.steps["by_construction"]) == [False, False, False]
    own = core_emergence(COURSE)
    # What is about the final subnetworks themselves stays: the core found without a seed, and the ranks.
    pd.testing.assert_series_equal(found.runs["held_out"], own.runs["held_out"])
    pd.testing.assert_series_equal(found.steps["rank"], own.steps["rank"])
    with pytest.raises(ValueError, match=r"the core is of masks of shape \(1, 5\)"):
        core_emergence(COURSE, core=heuristic_core([sub("1100.1", seed=50)]))


def test_the_interval_over_seeds_is_student_s_within_the_scale():
    """1, 1 and 2/3: standard error 1/9, and 4.303 of them either side (two degrees of freedom), no further than 1."""
    middle = row(core_emergence(COURSE).steps, 100)
    assert (middle["low"], middle["high"]) == pytest.approx((8 / 9 - 4.3027 / 9, 1), abs=1e-4)


def test_chance_is_the_core_heads_mean_keep_rate_of_their_layers():
    """FIRST, seed 42, keeps 1 of 4 heads in layer 0 (two core heads) and 2 of 4 in layer 1 (one): (2 * 1/4 + 2/4) / 3."""
    found = core_emergence(COURSE)
    assert list(found.runs["chance"])[:3] == pytest.approx([1 / 3, 1 / 3, 1 / 2])
    assert row(found.steps, 0)["chance"] == pytest.approx(7 / 18)
    assert row(found.steps, 0)["chance_low"] < 7 / 18 < row(found.steps, 0)["chance_high"]
    assert row(found.steps, 0)["p_value"] > 0.5
    assert row(found.steps, 100)["p_value"] < 0.05
    assert math.isnan(row(found.steps, 200)["p_value"]), "the final recall is no evidence of anything"


def test_the_least_p_value_is_that_of_keeping_the_whole_core():
    """Each of three subnetworks keeps just the core: by chance 1 / (6 * 4) each (2 of 4 heads, and 1 of 4)."""
    whole = [sub("1100.1", "1000.1", seed=seed) for seed in (42, 43, 44)]
    found = core_emergence({0: whole, 100: FINAL})
    assert row(found.steps, 0)["p_value"] == pytest.approx((1 / 24) ** 3)


def test_held_out_recall_is_of_the_core_of_the_other_seeds():
    """Seeds 43 and 44 share L0.H0 L0.H1 L1.H0 and so do all other pairs, at the end; so the held-out recall is 1 here too."""
    found = core_emergence(COURSE)
    assert list(found.runs["held_out"])[-3:] == [1, 1, 1]
    # Now seed 42 lacks L0.H1, which 43 and 44 share; its own head L0.H2 does not count.
    lacking = [sub("1010.1", "1000.1", seed=42), *FINAL[1:]]
    found = core_emergence({0: FIRST, 200: lacking})
    final = found.runs[found.runs["step"] == 200]
    assert list(final["recall"]) == [1, 1, 1], "of the whole core by construction"
    assert list(final["held_out"]) == pytest.approx([2 / 3, 1, 1])
    assert row(found.steps, 200)["held_out"] == pytest.approx(8 / 9)
    # Seed 42 keeps 2 of 4 heads in layer 0 and 1 of 4 in layer 1; the others' core has two heads in layer 0, one in layer 1.
    assert final["held_out_chance"].iloc[0] == pytest.approx((2 / 4 + 2 / 4 + 1 / 4) / 3)


def test_held_out_cores_may_miss_a_head_as_often_as_the_whole_one():
    """k = 2 of 3 allows one miss: of two others a head kept by one is enough."""
    found = core_emergence({0: FIRST, 200: FINAL}, k=2)
    assert found.core.heads == (Head(0, 0), Head(0, 1), Head(1, 0))
    # Others of seed 42 keep, in one or both: L0 H0 H1 H3, L1 H0 H1: seed 42 has three of these five.
    assert found.runs[found.runs["step"] == 200]["held_out"].iloc[0] == pytest.approx(3 / 5)


def test_jaccard_with_the_core_and_with_the_final_subnetworks_of_other_seeds():
    """MIDDLE, seed 42, keeps L0.H0 L0.H1 L1.H0 L1.H3: 3 of 4 with the core, 3 of 5 with the final 43 and the final 44."""
    found = core_emergence(COURSE)
    middle = found.runs[(found.runs["step"] == 100) & (found.runs["seed"] == 42)].iloc[0]
    assert middle["jaccard_core"] == pytest.approx(3 / 4)
    assert middle["jaccard_final"] == pytest.approx(3 / 5)
    assert row(found.steps, 200)["jaccard_final"] < 1, "two seeds' subnetworks differ at the end, too"


def test_rank_correlation_is_with_the_final_frequencies():
    found = core_emergence(COURSE)
    assert list(found.steps["rank"]) == pytest.approx([spearman(subs, FINAL).rho for subs in COURSE.values()])
    assert row(found.steps, 200)["rank"] == pytest.approx(1)
    middle = row(found.steps, 100)
    assert -1 <= middle["rank_low"] <= middle["rank"] <= middle["rank_high"] <= 1


def test_the_core_of_each_checkpoint_itself():
    """FIRST shares only L1.H2, MIDDLE L0.H0 and L1.H0, and with one miss allowed also L0.H1 and L1.H2."""
    found = core_emergence(COURSE)
    assert list(found.cores["size"]) == [1, 2, 3]
    assert list(found.cores["shared"]) == [0, 2, 3]
    assert list(found.cores["heads"]) == ["L1.H2", "L0.H0 L1.H0", "L0.H0 L0.H1 L1.H0"]
    assert list(found.cores["recall"]) == pytest.approx([0, 2 / 3, 1])
    assert list(found.cores["precision"]) == [0, 1, 1]
    nothing = core_emergence({0: [sub("0000.1", "0000.1", seed=seed) for seed in (42, 43, 44)], 200: FINAL}).cores
    assert (nothing["size"].iloc[0], nothing["recall"].iloc[0], nothing["heads"].iloc[0]) == (0, 0, "")
    assert math.isnan(nothing["precision"].iloc[0])
    loose = core_emergence(COURSE, k=2).cores
    assert list(loose["heads"])[1] == "L0.H0 L0.H1 L1.H0 L1.H2"
    assert list(loose["precision"])[1] == pytest.approx(3 / 4)
    assert list(loose["jaccard"])[1] == pytest.approx(3 / 4)


def test_every_core_head_is_counted_at_every_checkpoint():
    heads = core_emergence(COURSE).heads
    assert len(heads) == 3 * 3
    assert list(heads["count"]) == [1, 0, 1, 3, 2, 3, 3, 3, 3]
    assert set(heads["of"]) == {3}


def test_order_of_the_checkpoints_does_not_matter_and_an_earlier_one_can_be_final():
    shuffled = core_emergence({200: FINAL, 0: FIRST, 100: MIDDLE})
    pd.testing.assert_frame_equal(shuffled.steps, core_emergence(COURSE).steps)
    assert core_emergence(COURSE, final=100).core.heads == (Head(0, 0), Head(1, 0))


def test_one_seed_has_no_interval_and_nothing_held_out():
    found = core_emergence({0: FIRST[:1], 100: FINAL[:1]})
    assert found.steps[["low", "high", "held_out", "jaccard_final", "rank_low"]].isna().all().all()
    assert found.steps["recall"].notna().all()


def test_subnetworks_without_a_seed_are_told_apart_by_their_place():
    nameless = {step: [of_mask(s.mask, None) for s in subs] for step, subs in COURSE.items()}
    ours, named = core_emergence(nameless), core_emergence(COURSE)
    pd.testing.assert_frame_equal(ours.steps, named.steps)


masks = st.lists(st.lists(st.booleans(), min_size=10, max_size=10), min_size=1, max_size=4)


@given(masks, masks)
@settings(max_examples=40)
def test_recall_is_a_share_the_final_one_is_whole_and_jaccard_is_one_with_itself(first, last):
    def subs(rows: list[list[bool]]) -> list[Subnetwork]:
        # L0.H0 stays everywhere, so that the core is not empty.
        return [of_mask(torch.tensor([True, *row[1:]]).view(2, 5), i) for i, row in enumerate(rows)]

    found = core_emergence({0: subs(first), 1: subs(last)}, permutations=3)
    for column in ("recall", "chance", "jaccard_core"):
        assert found.runs[column].between(0, 1).all()
    assert row(found.steps, 1)["recall"] == 1
    assert row(found.cores, 1)["jaccard"] == 1
    assert row(found.steps, 0)["chance_low"] <= row(found.steps, 0)["chance_high"]
    if len(last) > 1:
        assert found.runs["held_out"].between(0, 1).all()
        held_out, recall = (found.runs.loc[found.runs["step"] == 1, name] for name in ("held_out", "recall"))
        assert (held_out <= recall).all(), "leaving a seed out can only add heads that it lacks"


def test_random_checkpoints_hold_the_core_as_often_as_chance_says():
    generator = np.random.default_rng(0)
    values, recalls, chances = [], [], []
    for _ in range(60):
        kept = generator.random((6, 6, 9)) < 0.5
        kept[:3, :, 0] = True
        subs = [of_mask(torch.from_numpy(mask), seed) for seed, mask in enumerate(kept)]
        steps = core_emergence({0: subs[3:], 1: subs[:3]}, permutations=2).steps
        values.append(steps["p_value"].iloc[0])
        recalls.append(steps["recall"].iloc[0])
        chances.append(steps["chance"].iloc[0])
    assert np.mean(recalls) == pytest.approx(np.mean(chances), abs=0.04)
    assert 0.3 < np.mean(values) < 0.75
    assert np.mean(np.array(values) < 0.1) < 0.25


def test_bad_input_names_what_is_wrong():
    with pytest.raises(ValueError, match=r"at least two checkpoints, got those of \[200\]"):
        core_emergence({200: FINAL})
    with pytest.raises(ValueError, match=r"the final step 300 is not among the checkpoints \[0, 100, 200\]"):
        core_emergence(COURSE, final=300)
    with pytest.raises(ValueError, match=r"step 100 has masks of shape \(1, 4\)"):
        core_emergence({0: FIRST, 100: [sub("110.1", seed=42)], 200: FINAL})
    with pytest.raises(ValueError, match="step 0 has several subnetworks of seed 42"):
        core_emergence({0: [*FIRST, FIRST[0]], 200: FINAL})
    with pytest.raises(ValueError, match="no head is kept by 2 of the 2 subnetworks at step 1"):
        core_emergence({0: FINAL, 1: [sub("1000.1", "0000.1", seed=42), sub("0100.1", "0000.1", seed=43)]})
    with pytest.raises(ValueError, match=r"k must be in 1\.\.3"):
        core_emergence(COURSE, k=4)
    with pytest.raises(ValueError, match="no subnetworks"):
        core_emergence({0: [], 200: FINAL})
