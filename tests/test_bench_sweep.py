"""The bench of the sweep engine runs at small size and reports what it promises."""

import json

import pytest

from experiments.bench import sweep_overhead


@pytest.mark.slow
def test_sweep_overhead_reports_what_the_engine_adds():
    found = json.loads(sweep_overhead.measure(steps=3, seeds=1, rounds=1, planned=2, quick=True))
    assert found["bench"] == "sweep_overhead"
    assert found["engine_over_bare"] > 0
    assert set(found["wall_seconds_per_job"]) == {"engine", "bare"}
    assert found["planned_jobs"] == 2
    for name in ("seconds_of_a_sweep_that_is_done", "seconds_to_plan", "seconds_of_a_status"):
        assert found[name] > 0
