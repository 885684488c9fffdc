"""The whole line as one run: nothing is computed twice, and the choices it makes from the data are the stated ones."""

import logging
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch

from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.pruning import PruneConfig, Pruned
from hc_lens.questions.ablation import costliest
from hc_lens.questions.kept_core import open_core_of
from hc_lens.runs import Run
from hc_lens.study import StudyConfig, embedded_model, run_study, strictest_core
from hc_lens.subnetwork import Subnetwork
from hc_lens.train import TrainConfig
from hc_lens.units import Head

_PRUNE = replace(PruneConfig.desk(0.5, steps=20), batch_size=8, gate_std=2.0, max_length=32)
_CONFIG = StudyConfig(
    train=TrainConfig(steps=10, batch_size=16, lr=3e-4, checkpoint_every=5, max_length=32, decay="constant"),
    prune=(_PRUNE, replace(_PRUNE, sparsity=0.7)),
    seeds=(42, 43),
    checkpoint_rows=5,
    evaluation_rows=8,
    ablation_rows=5,
    means_rows=50,
    controls=2,
    smallest_core=2,
    top=2,
)


def _task() -> Task:
    return synthetic_nli(n_train=200, n_id=20, n_ood_per_case=10)


def test_a_second_call_computes_nothing_twice_and_tells_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = run_study(embedded_model(), _task(), _CONFIG, tmp_path, notes=lambda evaluation: [f"{len(evaluation)} rows"])

    def never(*args: object, **kwargs: object) -> None:
        raise AssertionError("computed again")

    steps = ("pruning.missing_seeds.train_seeds", "metrics.evaluate", "analysis.ablate")
    for place in (*steps, "means.ActivationMeans.collect"):
        monkeypatch.setattr(f"hc_lens.{place}", never)
    monkeypatch.setattr("hc_lens.train.loop._Training.finish", never)
    again = run_study(embedded_model(), _task(), _CONFIG, tmp_path, notes=lambda evaluation: [f"{len(evaluation)} rows"])
    assert again.headline == first.headline
    assert again.core == first.core
    pd.testing.assert_frame_equal(again.run.tables()["evaluation/full"], first.run.tables()["evaluation/full"])
    assert again.article.notes == ("65 rows",), "13 cases of the full model and 4 subnetworks"
    assert again.article.config["task"]["training rows"] == 200  # type: ignore[index]
    assert first.report == tmp_path / "report.html"


def test_another_study_is_not_started_in_the_same_directory(tmp_path: Path) -> None:
    Run.at(tmp_path / "finetune", "finetune", {"config": {"steps": 1}})
    with pytest.raises(ValueError, match="finetune holds a run with another specification"):
        run_study(embedded_model(), _task(), _CONFIG, tmp_path)


def _pruned(directory: Path, kept: list[list[tuple[int, int]]]) -> Pruned:
    """Subnetworks of a model of two layers with four heads, which keep these heads."""
    means = ActivationMeans("mean", torch.zeros(2, 4, 1), torch.zeros(2, 1), 10, "model", "data")
    subnetworks = []
    for seed, heads in enumerate(kept):
        mask = torch.zeros(2, 5, dtype=torch.bool)
        for layer, index in heads:
            mask[layer, index] = True
        subnetworks.append(Subnetwork(mask, means, seed))
    return Pruned(Run.at(directory, "prune", {}), _PRUNE, tuple(subnetworks), ())


_TWO_SHARED = [[(0, 0), (0, 1), (1, 2)], [(0, 0), (0, 1), (1, 2)], [(0, 0), (0, 1), (1, 3)]]


def test_the_core_is_what_all_keep_if_that_is_large_enough(tmp_path: Path) -> None:
    core = strictest_core([_pruned(tmp_path, _TWO_SHARED)], smallest=2)
    assert (core.k, core.n, core.heads) == (3, 3, (Head(0, 0), Head(0, 1)))
    assert core.chosen_for is None


def test_else_the_largest_k_that_gives_as_many_heads_is_taken_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pruned, nulls = _pruned(tmp_path, _TWO_SHARED), []
    from hc_lens.analysis import Core

    compute = Core.null
    monkeypatch.setattr(Core, "null", lambda self, **options: nulls.append(self.k) or compute(self, **options))
    with caplog.at_level(logging.WARNING, "hc_lens"):
        core = strictest_core([pruned], smallest=3)
    assert (core.k, core.heads) == (2, (Head(0, 0), Head(0, 1), Head(1, 2)))
    assert core.chosen_for == 3
    assert open_core_of([pruned]) == core
    assert nulls == [2], "one null, for the k that was chosen"
    assert "no 3 heads are kept by all 3 subnetworks: the core is what 2 of them keep" in caplog.text


def test_a_core_that_no_k_gives_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no k gives a core of 5 heads: lower smallest_core"):
        strictest_core([_pruned(tmp_path, _TWO_SHARED)], smallest=5)


def test_the_costliest_heads_are_those_of_the_core_that_lower_the_margin_most_out_of_domain() -> None:
    rows = [
        ("L0.H0", "OOD", "margin", 1.0),
        ("L0.H0", "OOD", "margin", 2.0),
        ("L0.H1", "OOD", "margin", 3.0),
        ("L0.H1", "OOD", "margin", 0.2),
        ("L1.H2", "OOD", "margin", -1.0),
        ("L1.H3", "OOD", "margin", 9.0),  # not in the core
        ("L1.H2", "ID", "margin", 99.0),  # in-domain
        ("L1.H2", "OOD", "accuracy", 99.0),  # another scale
    ]
    singles = pd.DataFrame(rows, columns=["group", "case_group", "scale", "effect"])
    core = (Head(0, 0), Head(0, 1), Head(1, 2))
    assert costliest(singles, core, top=2) == (Head(0, 1), Head(0, 0))
