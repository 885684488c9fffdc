"""Phases by their thresholds, and the table of a small diagram."""

import pytest

from hc_lens.modular.config import CorruptedConfig, FitConfig, MlpConfig
from hc_lens.modular.phases import PHASES, Thresholds, phase_of, phase_table


@pytest.mark.parametrize(
    ("train", "test", "xi", "best", "phase"),
    [
        (0.98, 0.98, 0.35, None, "coexistence"),  # the runs of the protocol
        (0.7855, 1.0, 0.35, None, "partial inversion"),
        (0.6537, 1.0, 0.35, None, "full inversion"),
        (0.009, 0.011, 0.35, 1.0, "forgetting"),
        (0.009, 0.011, 0.35, 0.2, "confusion"),
        (0.009, 0.011, 0.35, None, "confusion"),
        (1.0, 0.3, 0.35, None, "memorisation"),
        (0.95, 0.5, 0.35, 0.95, "memorisation"),
        (0.9, 0.9, 0.35, None, "coexistence"),  # the limits themselves
        (0.701, 0.9, 0.35, None, "partial inversion"),
        (0.699, 0.9, 0.35, None, "full inversion"),
        (0.85, 1.0, 0.1, None, "full inversion"),  # where the two limits cross
        (0.91, 1.0, 0.1, None, "coexistence"),
    ],
)
def test_phases_follow_the_stated_thresholds(train, test, xi, best, phase):
    assert phase_of(train, test, xi, best) == phase


def test_thresholds_can_be_others():
    assert phase_of(0.85, 0.85, 0.35, thresholds=Thresholds(test=0.8, train=0.8)) == "coexistence"


def test_a_table_has_a_row_per_cell_in_order_and_is_read_the_second_time(tmp_path):
    cells = [
        CorruptedConfig(MlpConfig(11, 16, dropout=dropout), xi=xi, fit=FitConfig(10, weight_decay=1.0))
        for xi in (0.0, 0.3)
        for dropout in (0.0, 0.2)
    ]
    table = phase_table(cells, tmp_path)
    assert list(table["xi"]) == [0.0, 0.0, 0.3, 0.3]
    assert list(table["dropout"]) == [0.0, 0.2, 0.0, 0.2]
    assert set(table["phase"]) <= set(PHASES)
    assert table["as_labelled"].isna().tolist() == [True, True, False, False]
    made = {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")}
    assert phase_table(cells, tmp_path).equals(table)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.rglob("*.safetensors")} == made


@pytest.mark.slow
def test_several_workers_give_the_same_table(tmp_path):
    cells = [CorruptedConfig(MlpConfig(11, 16), xi=xi, fit=FitConfig(10)) for xi in (0.0, 0.3)]
    assert phase_table(cells, tmp_path / "two", workers=2).equals(phase_table(cells, tmp_path / "one"))
