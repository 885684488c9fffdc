"""Limits of 0 or below are refused by the library where they are given, by name and value, before anything is computed."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from hc_lens.cli.options import TaskChoice
from hc_lens.data.sampling import sample, some_rows
from hc_lens.data.task import Split
from hc_lens.limits import require_at_least_one, require_different, require_not_negative, require_positive
from hc_lens.modular.incontext.config import Training
from hc_lens.sample import Measuring, Sample
from hc_lens.study import StudyConfig
from hc_lens.train import TrainConfig

SPLIT = Split("s", ("a", "b"), ("c", "d"), (0, 1), ("no", "yes"), (0, 1))


@pytest.mark.parametrize("value", [0, -1, -5])
@pytest.mark.parametrize(
    ("name", "takes"),
    [
        ("limit", lambda n: TaskChoice(task="synthetic", limit=n).load()),
        ("max_rows", lambda n: some_rows(10, n, 0)),
        ("rows of a sample of split 's'", lambda n: sample(SPLIT, n, 0)),
        ("max_rows", Sample),
        ("batch_size", lambda n: Sample(None, batch_size=n)),
        ("means_rows", lambda n: Measuring(means_rows=n)),
        ("max_rows", lambda n: Measuring(max_rows=n)),
        ("batch_size", lambda n: Measuring(batch_size=n)),
    ],
)
def test_a_limit_below_one_is_refused(name: str, takes: Callable[[int], object], value: int) -> None:
    with pytest.raises(ValueError, match=f"^{name} must be at least 1, got {value}$"):
        takes(value)


def test_a_study_refuses_its_limits_before_it_trains(study_config: StudyConfig) -> None:
    for name in ("checkpoint_rows", "evaluation_rows", "ablation_rows", "means_rows"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            replace(study_config, **{name: 0})
    with pytest.raises(ValueError, match="controls must not be negative, got -1"):
        replace(study_config, controls=-1)


@pytest.fixture
def study_config() -> StudyConfig:
    from hc_lens.pruning import PruneConfig

    return StudyConfig(TrainConfig(), (PruneConfig.desk(),))


@pytest.mark.parametrize("config", [TrainConfig, Training])
def test_rates_must_be_numbers(config: Callable[..., Any]) -> None:
    for value in (math.nan, math.inf, -0.1):
        with pytest.raises(ValueError, match=f"weight_decay must .*, got {value}"):
            config(weight_decay=value)
        with pytest.raises(ValueError, match=f"lr must be positive.*, got {value}"):
            config(lr=value)


def test_what_passes_and_what_does_not() -> None:
    for passing in (
        partial(require_at_least_one, "n", None),
        partial(require_at_least_one, "n", 1),
        partial(require_positive, "x", 1e-300),
        partial(require_not_negative, "x", 0.0),
        partial(require_different, "names", ["a", "b"]),
    ):
        passing()
    with pytest.raises(ValueError, match="names must be all different, 'a', 'c' comes more than once"):
        require_different("names", ["a", "c", "b", "a", "c"])
