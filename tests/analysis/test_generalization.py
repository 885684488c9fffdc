"""The onset of generalization on curves of a few points, and the claim about the core before it."""

import math

import pandas as pd
import pytest

from hc_lens.analysis import heuristic_core
from hc_lens.analysis.emergence import core_emergence
from hc_lens.analysis.generalization import nearly_best, onset, whole_before_onset
from hc_lens.units import Head
from tests.analysis.masks import sub
from tests.analysis.test_emergence import COURSE, FINAL, FIRST


def course(**cases: list[float]) -> pd.DataFrame:
    """Accuracies of out-of-domain cases at steps 0, 100, ...; `matched` is in-domain."""
    rows = [
        (100 * i, case, "ID" if case == "matched" else "OOD", accuracy)
        for case, values in cases.items()
        for i, accuracy in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["step", "case", "group", "accuracy"])


def test_the_first_checkpoint_above_the_level():
    found = onset(course(a=[0.1, 0.5, 0.9], b=[0.1, 0.5, 0.7], matched=[0.9, 0.9, 0.9]), level=0.75)
    assert (found.step, found.before) == (200, 100)
    assert found.cases == ("a", "b")
    assert list(found.curve["accuracy"]) == pytest.approx([0.1, 0.5, 0.8])
    assert list(found.curve["above"]) == [False, False, True]


def test_reaching_the_level_is_not_passing_it():
    assert onset(course(a=[0.1, 0.75, 0.9]), level=0.75).step == 200


def test_never_and_from_the_start():
    never = onset(course(a=[0.1, 0.2, 0.3]), level=0.75)
    assert (never.step, never.before) == (None, None)
    first = onset(course(a=[0.8, 0.9, 0.9]), level=0.75)
    assert (first.step, first.before) == (0, None)


def test_a_dip_counts_only_if_the_level_must_be_kept():
    dips = course(a=[0.1, 0.8, 0.3, 0.9, 0.95])
    assert (onset(dips, level=0.75).step, onset(dips, level=0.75).before) == (100, 0)
    kept = onset(dips, level=0.75, stays=True)
    assert (kept.step, kept.before) == (300, 200)
    assert onset(course(a=[0.8, 0.9, 0.2]), level=0.75, stays=True).step is None


def test_a_model_of_one_answer_passes_only_on_cases_of_one_label():
    """It calls everything non-entailed, then learns: non-entailed cases pass at once, a balanced set when it generalizes."""
    table = course(entailed=[0.0, 0.0, 0.9], non_entailed=[1.0, 1.0, 0.9], matched=[0.3, 0.6, 0.9])
    assert onset(table, level=0.75, cases=["non_entailed"]).step == 0
    assert onset(table, level=0.75, cases=["entailed", "non_entailed"]).step == 200
    assert onset(table, level=0.5, cases=["matched"]).step == 100
    assert onset(table, level=0.5, group="ID").step == 100


def test_rows_of_subnetworks_do_not_count_and_order_does_not_matter():
    table = course(a=[0.1, 0.2, 0.9]).assign(subnetwork="full")
    others = table.assign(subnetwork="seed 42", accuracy=1.0)
    assert onset(pd.concat([others, table[::-1]]), level=0.75).step == 200


def test_a_level_may_be_the_course_s_own():
    found = onset(course(a=[0.2, 0.5, 0.6, 0.59]), level=nearly_best)
    assert (found.step, found.before, found.level) == (200, 100, pytest.approx(0.56))
    assert onset(course(a=[0.5, 0.4, 0.3]), level=nearly_best).step is None, "a course that never rises has no onset"


@pytest.mark.parametrize("level", [0.0, 1.0, -0.1, 75.0])
def test_a_level_outside_the_open_unit_interval_is_refused(level: float):
    with pytest.raises(ValueError, match=r"must be in \(0, 1\), got"):
        onset(course(a=[0.1]), level=level)


def test_bad_tables_are_refused_by_name():
    table = course(a=[0.1, 0.9], b=[0.2, 0.8])
    with pytest.raises(ValueError, match="no case 'c' was evaluated; the cases are a, b"):
        onset(table, level=0.5, cases=["a", "c"])
    with pytest.raises(ValueError, match=r"no case of group 'ID' to average over: the groups are \['OOD'\]"):
        onset(table, level=0.5, group="ID")
    with pytest.raises(ValueError, match="step 100 has no accuracy on 'b'"):
        onset(table[:3], level=0.5)
    with pytest.raises(ValueError, match=r"\['accuracy'\] missing from"):
        onset(table.drop(columns="accuracy"), level=0.5)
    with pytest.raises(ValueError, match="no case of group 'OOD'"):
        onset(table, level=0.5, cases=[])


WHOLE = {0: FIRST, 100: FINAL, 200: FINAL}


def test_a_core_that_is_there_before_the_onset():
    found = whole_before_onset(core_emergence(WHOLE), onset(course(a=[0.1, 0.2, 0.9]), level=0.75))
    assert (found.step, found.verdict, found.kept_by_all, found.missing) == (100, "whole", 3, ())
    assert found.recall == 1
    assert found.gain == pytest.approx(1 - 2 / 9)
    assert found.gain_interval.low > 0
    assert list(found.runs["kept"]) == [3, 3, 3]
    assert "all 3 subnetworks keep 3 of the 3 core heads." in found.sentence
    assert "+77.8 points" in found.sentence


def test_a_core_that_is_there_in_part():
    found = whole_before_onset(core_emergence(COURSE), onset(course(a=[0.1, 0.2, 0.9]), level=0.75))
    assert (found.verdict, found.kept_by_all, found.missing) == ("partly", 2, (Head(0, 1),))
    assert found.recall == pytest.approx(8 / 9)
    assert found.chance < found.recall
    assert found.ceiling == 1
    assert "some lack L0.H1" in found.sentence


def test_a_core_of_other_seeds_is_measured_at_the_end_too():
    others = heuristic_core([sub("1101.1", "1000.1", seed=50), sub("1101.1", "1010.1", seed=51)])
    found = whole_before_onset(core_emergence(COURSE, core=others), onset(course(a=[0.1, 0.2, 0.9]), level=0.75))
    assert found.final_recall == pytest.approx((3 + 3 + 4) / 12)
    assert "At the final checkpoint, whose seeds are not those of the core, it is 83.3%." in found.sentence
    own = whole_before_onset(core_emergence(COURSE), onset(course(a=[0.1, 0.2, 0.9]), level=0.75))
    assert math.isnan(own.final_recall)
    assert "by construction" in own.sentence


def test_a_core_that_is_not_there():
    found = whole_before_onset(core_emergence(COURSE), onset(course(a=[0.1, 0.9, 0.9]), level=0.75))
    assert (found.step, found.verdict) == (0, "absent")
    assert math.isnan(found.gain), "it is the first checkpoint itself"


def test_a_core_that_may_miss_a_subnetwork_is_whole_by_the_same_rule():
    """Two of three are enough at the end, and before: every core head is kept by two of MIDDLE."""
    found = whole_before_onset(core_emergence(COURSE, k=2), onset(course(a=[0.1, 0.2, 0.9]), level=0.75))
    assert (found.verdict, found.kept_by_all) == ("whole", 2)


@pytest.mark.parametrize(("accuracies", "says"), [([0.1, 0.2, 0.3], "no onset to test"), ([0.9, 0.9, 0.9], "already passes")])
def test_without_a_checkpoint_before_an_onset_nothing_is_claimed(accuracies: list[float], says: str):
    found = whole_before_onset(core_emergence(COURSE), onset(course(a=accuracies), level=0.75))
    assert (found.verdict, found.step) == ("not measured", None)
    assert math.isnan(found.recall)
    assert says in found.sentence


def test_the_checkpoint_tested_is_the_last_that_was_pruned():
    """Evaluated at 0, 100, .. 300, pruned at 0, 100, 300: with the onset at 300, the core is tested at 100."""
    pruned = {0: COURSE[0], 100: COURSE[100], 300: FINAL}
    start = onset(course(a=[0.1, 0.2, 0.3, 0.9]), level=0.75)
    assert start.before == 200
    assert whole_before_onset(core_emergence(pruned), start).step == 100
