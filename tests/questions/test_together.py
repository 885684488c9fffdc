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
from hc_lens.pruning import PruneConfig, Pruned
from hc_lens.questions import Dependence, Greedy, Pairs, Removal
from hc_lens.runs import Run
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.asking import opened

CORE = (Head(0, 1), Head(1, 2), Head(2, 5))
ROWS = Sample(max_rows=4)


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=40, n_id=6, n_ood_per_case=4)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task) -> ActivationMeans:
    return ActivationMeans.collect(model, task.train, sample=Sample(max_length=32))


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
    tables = opened(pruned, model, task).ask(Pairs(CORE, controls=0), ROWS)
    singles, pairs_and_core = 32, 3 + 1
    assert sets_run == [singles, pairs_and_core]
    assert set(zip(tables["interactions"]["a"], tables["interactions"]["b"], strict=True)) == {
        ("L0.H1", "L1.H2"),
        ("L0.H1", "L2.H5"),
        ("L1.H2", "L2.H5"),
    }
    assert {"core", "L0.H1", "L0.H1 + L1.H2"} <= set(tables["domains"]["set"])
    sets_run.clear()
    path = opened(pruned, model, task).ask(Greedy(2, heads=CORE, controls=0), ROWS)["greedy"]
    assert sets_run == [0, 0, 0], "single heads and pairs are known"
    assert path["size"].max() == 2
    sets_run.clear()
    again = opened(pruned, model, task).ask(Pairs(CORE, controls=0), ROWS)
    pd.testing.assert_frame_equal(again["interactions"], tables["interactions"])
    pd.testing.assert_frame_equal(opened(pruned, model, task).ask(Greedy(2, heads=CORE, controls=0), ROWS)["greedy"], path)
    assert sets_run == []


def test_another_question_is_answered_anew(pruned: Pruned, model: Classifier, task: Task, sets_run: list[int]) -> None:
    opened(pruned, model, task).ask(Pairs(CORE, controls=0), ROWS)
    sets_run.clear()
    few = opened(pruned, model, task).ask(Pairs(CORE[:2], controls=2), ROWS)
    assert sets_run == [2], "only the random pairs are new"
    assert (few["interactions"]["controls"] == 2).all()
    sets_run.clear()
    other = opened(pruned, model, task).ask(Pairs(CORE[:2], controls=0), Sample(max_rows=3))
    assert sets_run == [32, 1], "other rows: everything again"
    assert (other["domains"]["cases"].max(), len(other["interactions"]["case"].unique())) == (13, 16)


def test_removal_and_dependence_tables_hold_every_group(pruned: Pruned, model: Classifier, task: Task) -> None:
    removal = opened(pruned, model, task).ask(Removal(CORE), ROWS)["removal"]
    assert removal["head"].unique().tolist() == [*map(str, CORE), "all together"]
    assert (removal["subnetworks"] == 2).all()
    depends = opened(pruned, model, task).ask(Dependence(CORE, controls=2), ROWS)["dependence"]
    assert set(zip(depends["case_group"], depends["through"], strict=True)) == {
        (group, through) for group in ("ID", "OOD") for through in ("all paths", "direct path")
    }
    assert (depends["n"] == 4).all()
    pd.testing.assert_frame_equal(opened(pruned, model, task).ask(Removal(CORE), ROWS)["removal"], removal)
    pd.testing.assert_frame_equal(opened(pruned, model, task).ask(Dependence(CORE, controls=2), ROWS)["dependence"], depends)


def test_a_kill_before_the_last_table_leaves_the_question_open(
    pruned: Pruned, model: Classifier, task: Task, sets_run: list[int]
) -> None:
    before = opened(pruned, model, task).ask(Pairs(CORE, controls=0), ROWS)
    pruned.run.file("domains.options", "json").unlink()
    sets_run.clear()
    after = opened(pruned, model, task).ask(Pairs(CORE, controls=0), ROWS)
    assert sets_run == [0], "the rows were kept"
    pd.testing.assert_frame_equal(after["domains"], before["domains"])
