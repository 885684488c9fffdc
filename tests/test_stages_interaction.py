"""Heads ablated together, kept in the run: nothing is measured twice, and other questions are answered anew."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from hc_lens.analysis import ablation, measure
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig
from hc_lens.runs import Run
from hc_lens.stages import Pruned
from hc_lens.stages.interaction import dependence_into, greedy_into, interactions_into, removal_into
from hc_lens.stages.rows import Rows
from hc_lens.study import embedded_model
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head

CORE = (Head(0, 1), Head(1, 2), Head(2, 5))
ROWS = Rows(max_rows=4)


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=40, n_id=6, n_ood_per_case=4)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task) -> ActivationMeans:
    return ActivationMeans.collect(model, task.train, max_length=32)


@pytest.fixture
def pruned(means: ActivationMeans, tmp_path: Path) -> Pruned:
    """A run whose subnetworks keep the core and a random half of the rest."""
    masks = torch.rand(2, means.n_layers, means.n_heads + 1) > 0.5
    subs = tuple(Subnetwork(mask, means, seed).having(*CORE) for seed, mask in enumerate(masks))
    run = Run.at(tmp_path / "pruned", "prune", {"of": "hand"})
    return Pruned(run, PruneConfig.desk(0.5), subs, ())


@pytest.fixture
def sets_run(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many sets of units each ablation ran."""
    counted: list[int] = []

    def counting(model: Any, measured: Any, edit_sets: Sequence[Any], precision: Any) -> Any:
        counted.append(len(edit_sets))
        return measure.run_sets(model, measured, edit_sets, precision)

    monkeypatch.setattr(ablation, "run_sets", counting)
    return counted


def test_pairs_are_kept_and_greedy_sets_start_from_them(
    pruned: Pruned, model: Classifier, task: Task, sets_run: list[int]
) -> None:
    tables = interactions_into(pruned, model, task, CORE, ROWS, controls=0)
    singles, pairs_and_core = 32, 3 + 1
    assert sets_run == [singles, pairs_and_core]
    assert set(zip(tables.pairs["a"], tables.pairs["b"], strict=True)) == {
        ("L0.H1", "L1.H2"),
        ("L0.H1", "L2.H5"),
        ("L1.H2", "L2.H5"),
    }
    assert {"core", "L0.H1", "L0.H1 + L1.H2"} <= set(tables.domains["set"])
    sets_run.clear()
    path = greedy_into(pruned, model, task, CORE, 2, ROWS, controls=0)
    assert sets_run == [0, 0, 0], "single heads and pairs are known"
    assert path["size"].max() == 2
    sets_run.clear()
    again = interactions_into(pruned, model, task, CORE, ROWS, controls=0)
    pd.testing.assert_frame_equal(again.pairs, tables.pairs)
    pd.testing.assert_frame_equal(greedy_into(pruned, model, task, CORE, 2, ROWS, controls=0), path)
    assert sets_run == []


def test_another_question_is_answered_anew(pruned: Pruned, model: Classifier, task: Task, sets_run: list[int]) -> None:
    interactions_into(pruned, model, task, CORE, ROWS, controls=0)
    sets_run.clear()
    few = interactions_into(pruned, model, task, CORE[:2], ROWS, controls=2)
    assert sets_run == [2], "only the random pairs are new"
    assert (few.pairs["controls"] == 2).all()
    sets_run.clear()
    other = interactions_into(pruned, model, task, CORE[:2], Rows(max_rows=3), controls=0)
    assert sets_run == [32, 1], "other rows: everything again"
    assert (other.domains["cases"].max(), len(other.pairs["case"].unique())) == (13, 16)


def test_removal_and_dependence_tables_hold_every_group(pruned: Pruned, model: Classifier, task: Task) -> None:
    removal = removal_into(pruned, model, task, CORE, ROWS)
    assert removal["head"].unique().tolist() == [*map(str, CORE), "all together"]
    assert (removal["subnetworks"] == 2).all()
    depends = dependence_into(pruned, model, task, CORE, ROWS, controls=2)
    assert set(zip(depends["case_group"], depends["through"], strict=True)) == {
        (group, through) for group in ("ID", "OOD") for through in ("all paths", "direct path")
    }
    assert (depends["n"] == 4).all()
    pd.testing.assert_frame_equal(removal_into(pruned, model, task, CORE, ROWS), removal)
    pd.testing.assert_frame_equal(dependence_into(pruned, model, task, CORE, ROWS, controls=2), depends)


def test_a_kill_before_the_last_table_leaves_the_question_open(
    pruned: Pruned, model: Classifier, task: Task, sets_run: list[int]
) -> None:
    before = interactions_into(pruned, model, task, CORE, ROWS, controls=0)
    pruned.run.file("domains.options", "json").unlink()
    sets_run.clear()
    after = interactions_into(pruned, model, task, CORE, ROWS, controls=0)
    assert sets_run == [0], "the rows were kept"
    pd.testing.assert_frame_equal(after.domains, before.domains)
