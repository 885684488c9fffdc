"""One sample says which rows are measured, whatever measures them."""

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from hc_lens.analysis import Ablation, ablate, attention_scores, first_order_effects, single_heads
from hc_lens.data import Split, Task, synthetic_nli
from hc_lens.data.synthetic import LABELS, VOCABULARY, synthetic_config, synthetic_tokenizer
from hc_lens.means import ActivationMeans
from hc_lens.metrics import encode_cases, evaluate
from hc_lens.models import Classifier, new_model
from hc_lens.pruning import PruneConfig, Pruned, evaluate_into
from hc_lens.questions import Ablation as AblationQuestion
from hc_lens.questions import Attention, AttentionMap, Dependence, Estimate, Greedy, SparsitySweep
from hc_lens.questions.ablated import single_ablations
from hc_lens.questions.opened import OpenRun
from hc_lens.runs import Run
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.asking import opened

HEADS = ("L0.H0", "L0.H1")


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=40, n_id=20, n_ood_per_case=10)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task) -> ActivationMeans:
    return ActivationMeans.collect(model, task.train)


def margins(ablation: Ablation) -> dict[str, float]:
    """Of the full model, by case."""
    return {case.name: float(ablation.full["margin"][case.start : case.stop].mean()) for case in ablation.cases}


def test_evaluation_ablation_and_estimate_of_one_sample_are_of_the_same_rows_cut_alike(
    model: Classifier, task: Task, means: ActivationMeans
) -> None:
    short = Sample(7, seed=3, cases=list(task.cases)[::2], max_length=6)  # shorter than the pairs
    table = evaluate(model, task, sample=short, trained=False).set_index("case")
    for found in (ablate(model, task, means, [[Head(0, 1)]], short), first_order_effects(model, task, means, short)):
        assert margins(found) == pytest.approx(table["margin"].to_dict(), abs=1e-4)
    longer = ablate(model, task, means, [[Head(0, 1)]], replace(short, max_length=None))
    assert margins(longer) != pytest.approx(margins(found), abs=1e-4), "so the length decides"
    assert set(attention_scores(model, task, short).table()["case"]) == set(short.cases or ())


def test_in_a_run_pairs_are_cut_at_what_it_was_pruned_at(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path
) -> None:
    run = Run.at(tmp_path / "pruned", "prune", {"of": "hand"})
    sub = Subnetwork(torch.ones(means.n_layers, means.n_heads + 1, dtype=torch.bool), means, 1)
    pruned = Pruned(run, replace(PruneConfig.desk(0.5), max_length=6), (sub,), ())
    sample = Sample(7, seed=3)
    kept = single_ablations(opened(pruned, model, task), sample)
    alone = ablate(model, task, means, single_heads(means), replace(sample, max_length=6))
    np.testing.assert_array_equal(kept.rows, alone.rows)
    assert margins(kept) == pytest.approx(margins(alone))
    table = evaluate_into(pruned, model, task, sample, trained=False)
    full = table[table["subnetwork"] == "full"].set_index("case")
    assert margins(kept) == pytest.approx(full["margin"].to_dict(), abs=1e-4)
    longer = replace(sample, max_length=9)
    again = single_ablations(opened(pruned, model, task), longer)
    np.testing.assert_array_equal(again.rows, ablate(model, task, means, single_heads(means), longer).rows)
    table = evaluate_into(pruned, model, task, longer, trained=False)
    full = table[table["subnetwork"] == "full"].set_index("case")
    assert margins(again) == pytest.approx(full["margin"].to_dict(), abs=1e-4)
    assert margins(again) != pytest.approx(margins(kept), abs=1e-4), "kept at one length, it is not the answer at another"


def test_every_question_of_another_length_has_other_options(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path
) -> None:
    run = Run.at(tmp_path / "pruned", "prune", {"of": "hand"})
    sub = Subnetwork(torch.ones(means.n_layers, means.n_heads + 1, dtype=torch.bool), means, 1)
    asked = opened(Pruned(run, replace(PruneConfig.desk(0.5), max_length=16), (sub,), ()), model, task)
    for question in (
        AblationQuestion(HEADS),
        Attention(HEADS),
        AttentionMap(HEADS),
        Dependence(HEADS),
        Estimate(),
        Greedy(heads=HEADS),
    ):
        own, same, other = (question.options(asked, asked.settled(Sample(5, max_length=at))) for at in (None, 16, 9))
        assert own == same != other == {**own, "max_length": 9}, question


@pytest.mark.parametrize(("sample", "told"), [(Sample(cases=["a"]), "cases=['a']"), (Sample(max_length=9), "max_length=9")])
def test_what_a_grid_does_not_heed_is_refused(sample: Sample, told: str, model: Classifier, task: Task, tmp_path: Path) -> None:
    run = OpenRun((), Run.at(tmp_path / "tuned", "finetune", {"of": "hand"}), lambda: (model, task))
    with pytest.raises(ValueError, match=f"leave out {re.escape(told)}"):
        run.ask(SparsitySweep(), sample)


def test_without_a_length_pairs_are_cut_at_the_models_own_limit() -> None:
    config = synthetic_config()
    config.max_position_embeddings = 200
    model = new_model(config, labels=LABELS, tokenizer=synthetic_tokenizer())
    words = " ".join([next(iter(VOCABULARY))] * 150)
    long = Split("long", (words,), (words,), (0,), LABELS, tuple(range(len(LABELS))))
    task = Task("long", LABELS, long, {"long": long}, {})
    assert encode_cases(model, task).data.lengths.tolist() == [200]
    assert encode_cases(model, task, Sample(max_length=128)).data.lengths.tolist() == [128]


def test_a_sample_is_a_value_and_refuses_what_cannot_be_drawn() -> None:
    assert Sample(5, cases=["a", "b"]) == Sample(5, cases=("a", "b"))
    assert len({Sample(cases=["a"]), Sample(cases=("a",)), Sample()}) == 2
    for name in ("max_rows", "max_length", "batch_size"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
            Sample(**{name: 0})


def test_options_tell_what_decides_a_table_as_runs_have_it_on_disk(task: Task) -> None:
    asked = {"task": task.fingerprint, "max_rows": 5, "precision": "fp32", "seed": 2}
    assert Sample(5, 2, max_length=9, batch_size=3).options(task) == asked
    assert Sample(5, 2, cases=["a"]).options(task) == {**asked, "cases": ["a"]}
