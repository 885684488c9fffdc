"""A result is of certain subnetworks, rows and options: of others it is computed anew or refused, never shown beside them."""

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
import torch

from hc_lens.cli import main
from hc_lens.data import Task, synthetic_nli
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, Pruned, evaluate_into, evaluation_of, means_into, open_pruned
from hc_lens.questions import Ablation, Removal
from hc_lens.questions.ablated import single_ablations
from hc_lens.questions.kept_core import core_into, core_of, open_core, open_core_of
from hc_lens.questions.opened import OpenRun
from hc_lens.questions.page import run_article
from hc_lens.report import Article
from hc_lens.runs import Run, RunError
from hc_lens.sample import Sample
from hc_lens.study import embedded_model
from hc_lens.subnetwork import Subnetwork
from hc_lens.train import TrainConfig, evaluations, finetune
from hc_lens.units import Head
from tests.asking import opened

CONFIG = PruneConfig.desk(0.5, steps=10)


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=40, n_id=6, n_ood_per_case=3)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task, tmp_path_factory: pytest.TempPathFactory) -> ActivationMeans:
    return means_into(tmp_path_factory.mktemp("means"), model, task.train, rows=10, max_length=32)


def pruned_run(directory: Path, means: ActivationMeans, kept: Mapping[int, set[Head]], sparsity: float = 0.5) -> Pruned:
    """The run of these seeds, each of which keeps these heads and all MLPs; further seeds are added to what is there."""
    config = CONFIG.as_dict() | {"sparsity": sparsity}
    run = Run.at(directory, "prune", {"config": config, "model": means.model, "means": means.digest})
    asked = run.read_json("seeds") if run.file("seeds", "json").exists() else []
    assert isinstance(asked, list)
    for seed, heads in kept.items():
        mask = torch.zeros(means.n_layers, means.n_heads + 1, dtype=torch.bool)
        mask[:, -1] = True
        for head in heads:
            mask[head.layer, head.index] = True
        Subnetwork(mask, means, seed).save(run.path / "subnetworks" / f"seed-{seed}.safetensors")
        run.write_json(f"outcome/seed-{seed}", {"warnings": [], "device": "cpu"})
    run.write_json("seeds", sorted({*asked, *kept}))
    run.finish()
    return open_pruned(directory)


A, B, C = Head(0, 0), Head(1, 1), Head(2, 2)
THREE = {42: {A, B}, 43: {A, B}, 44: {A, B, C}}


def complaint(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(list(words)) == 2
    return capsys.readouterr().err


def test_a_core_of_fewer_seeds_than_the_run_holds_is_refused_by_all_that_read_it(
    means: ActivationMeans, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    core_into([pruned_run(run, means, THREE)], permutations=10)
    assert open_core(Run.open(run)).heads == (A, B)
    grown = pruned_run(run, means, {45: {A}, 46: {A}})
    says = "core.json is of seeds 42..44, and now there are seeds 42..46: run hc-lens core again"
    for words in (["ablate", str(run)], ["attention", str(run)]):
        assert says in complaint(capsys, *words)
    assert main(["show", str(run)]) == 0
    assert says in capsys.readouterr().out
    with pytest.raises(RunError, match=r"and now there are seeds 42\.\.46"):
        open_core_of([grown])
    assert main(["core", str(run), "--permutations", "10"]) == 0
    assert open_core(Run.open(run)).heads == (A,)


def test_a_core_of_subnetworks_that_were_made_again_otherwise_is_refused(means: ActivationMeans, tmp_path: Path) -> None:
    core_into([pruned_run(tmp_path / "run", means, THREE)], permutations=10)
    pruned_run(tmp_path / "run", means, {44: {A}})
    with pytest.raises(RunError, match=r"is of seeds 42\.\.44, and some of them are others now: run hc-lens core again"):
        open_core(Run.open(tmp_path / "run"))
    pruned_run(tmp_path / "run", means, THREE)
    assert open_core(Run.open(tmp_path / "run")).n == 3, "the same again is the same"


def test_a_core_of_two_runs_is_not_that_of_one(means: ActivationMeans, tmp_path: Path) -> None:
    first = pruned_run(tmp_path / "first", means, THREE)
    second = pruned_run(tmp_path / "second", means, {1: {A}}, 0.7)
    core = core_into([first, second], permutations=10)
    assert open_core(first.run) == open_core_of([first, second]) == core
    with pytest.raises(RunError, match=r"is of seeds 42\.\.44 of .*first and seeds 1 of .*second, and now there are seeds"):
        open_core_of([first])
    more = pruned_run(tmp_path / "second", means, {2: {A}}, 0.7)
    with pytest.raises(RunError, match="run hc-lens core again"):
        open_core(first.run)
    core_into([first, more], permutations=10)
    shutil.rmtree(tmp_path / "second")
    with pytest.warns(UserWarning, match="second, too, which is not there: whether it has changed is unknown"):
        open_core(first.run)


def test_a_core_of_an_earlier_version_opens_with_a_warning_and_not_for_another_number(
    means: ActivationMeans, tmp_path: Path
) -> None:
    pruned = pruned_run(tmp_path / "run", means, THREE)
    core = core_into([pruned], permutations=10)
    file = tmp_path / "run" / "core.json"
    file.write_text(json.dumps({name: value for name, value in json.loads(file.read_text()).items() if name != "of"}))
    with pytest.warns(UserWarning, match="is of an earlier version, which did not tell the subnetworks"):
        assert open_core(pruned.run) == core
    with pytest.warns(UserWarning, match="earlier version"):
        assert open_core_of([pruned]) == core
    grown = pruned_run(tmp_path / "run", means, {45: {A}})
    for reads in (lambda: open_core(grown.run), lambda: open_core_of([grown])):
        with pytest.raises(RunError, match="is of 3 subnetworks, not of 4: run hc-lens core again"):
            reads()


def test_a_run_given_twice_is_refused_however_it_is_spelled(
    means: ActivationMeans, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pruned = pruned_run(tmp_path / "run", means, THREE)
    core_into([pruned], permutations=10)
    before = (tmp_path / "run" / "core.json").read_text()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to("run")
    for command in ("core", "report", "compare", "evaluate"):
        for again in ("run", "./run/", str(tmp_path / "run"), "link"):
            assert "is given twice" in complaint(capsys, command, "run", again), (command, again)
    assert (tmp_path / "run" / "core.json").read_text() == before
    with pytest.raises(ValueError, match="run is given twice"):
        core_of([pruned, pruned])
    shutil.copytree("run", "copy")
    assert "copy holds the subnetwork of seed 42 that run holds, too" in complaint(capsys, "core", "run", "copy")


@pytest.fixture
def measured(model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path) -> Pruned:
    """A run that was evaluated, with its core, which was ablated."""
    pruned = pruned_run(tmp_path / "run", means, THREE)
    evaluate_into(pruned, model, task, sample=Sample(2), trained=False)
    core_into([pruned], permutations=10)
    opened(pruned, model, task).ask(Ablation(controls=1), Sample(2))
    return pruned


def article(pruned: Pruned, model: Classifier, task: Task) -> Article:
    return run_article(opened(pruned, model, task), title="t")


def anchors(page: Article) -> set[str]:
    return {section.anchor for section in page.sections}


def test_the_report_leaves_out_an_ablation_of_another_core(
    measured: Pruned, model: Classifier, task: Task, means: ActivationMeans
) -> None:
    before = article(measured, model, task)
    assert {"ablation", "additivity"} <= anchors(before)
    assert before.notes == ()
    grown = pruned_run(measured.run.path, means, {45: {A}})
    evaluate_into(grown, model, task, sample=Sample(2), trained=False)
    with pytest.raises(RunError, match="run hc-lens core again"):
        article(grown, model, task)
    core_into([grown], permutations=10)
    after = article(grown, model, task)
    assert not {"ablation", "additivity"} & anchors(after)
    assert after.notes == ("The ablation kept in the run is of another core, L0.H0 L1.H1: hc-lens ablate measures this one.",)
    opened(grown, model, task).ask(Ablation(controls=1), Sample(2))
    assert "ablation" in anchors(article(grown, model, task))


def test_the_report_mixes_neither_tasks_nor_rows(measured: Pruned, model: Classifier, task: Task) -> None:
    run = opened(measured, model, task)
    before = Ablation().kept(run)
    assert before is not None
    assert before["effects"]["group"].str.startswith("mean of").any()
    single_ablations(run, Sample(3))
    after = Ablation().kept(run)
    assert after is not None
    assert not after["effects"]["group"].str.startswith("mean of").any(), "single heads on other rows are not their control"
    fewer = replace(task, ood=dict(list(task.ood.items())[:2]))
    evaluate_into(measured, model, fewer, sample=Sample(2), trained=False)
    mixed = article(measured, model, task)
    assert "ablation" not in anchors(mixed)
    assert "of another task than the evaluation" in mixed.notes[0]


def test_removal_from_subnetworks_is_measured_anew_for_others(
    measured: Pruned, model: Classifier, task: Task, means: ActivationMeans
) -> None:
    first = opened(measured, model, task).ask(Removal((A,)), Sample(2))["removal"]
    grown = pruned_run(measured.run.path, means, {45: {A}})
    second = opened(grown, model, task).ask(Removal((A,)), Sample(2))["removal"]
    assert set(first["subnetworks"]) == {3}
    assert set(second["subnetworks"]) == {4}


def test_a_subnetwork_that_was_made_again_otherwise_is_evaluated_again(
    measured: Pruned, model: Classifier, task: Task, means: ActivationMeans
) -> None:
    before = evaluate_into(measured, model, task, sample=Sample(2), trained=False)
    other = pruned_run(measured.run.path, means, {44: {C}})
    with pytest.raises(RunError, match="evaluation/seed-44 is of another subnetwork than the run holds"):
        evaluation_of(other)
    after = evaluate_into(other, model, task, sample=Sample(2), trained=False)
    same = [table[table["seed"] != 44].reset_index(drop=True) for table in (before, after)]
    assert same[0].equals(same[1])
    assert not before[before["seed"] == 44]["margin"].equals(after[after["seed"] == 44]["margin"])


TRAIN = TrainConfig(steps=4, batch_size=8, warmup_steps=1, checkpoint_every=2, max_length=32)


def test_checkpoints_are_evaluated_again_on_other_rows_and_only_then(task: Task, tmp_path: Path) -> None:
    finetune(
        embedded_model(), task, TRAIN, tmp_path, evaluate=partial(evaluate, trained=False, sample=Sample(2, max_length=32))
    )
    assert set(evaluations(tmp_path)["n"]) == {2}
    trained = embedded_model()
    finetune(trained, task, TRAIN, tmp_path, evaluate=partial(evaluate, trained=False, sample=Sample(3, max_length=32)))
    table = evaluations(tmp_path)
    assert set(table["n"]) == {3}
    assert set(table["step"]) == {0, 2, 4}
    last = table[table["step"] == 4].drop(columns="step").reset_index(drop=True)
    pd.testing.assert_frame_equal(last, evaluate(trained, task, sample=Sample(3, max_length=32), trained=False))

    def never(*args: object, **options: object) -> pd.DataFrame:
        raise AssertionError("evaluated again")

    finetune(embedded_model(), task, TRAIN, tmp_path, evaluate=partial(never, trained=False, sample=Sample(3, max_length=32)))
    finetune(embedded_model(), task, TRAIN, tmp_path, evaluate=never)  # of which nothing can be told


def test_evaluations_of_different_rows_are_not_one_table(task: Task, tmp_path: Path) -> None:
    finetune(
        embedded_model(), task, TRAIN, tmp_path, evaluate=partial(evaluate, trained=False, sample=Sample(2, max_length=32))
    )
    (tmp_path / "evaluation" / "step-000002.options.json").unlink()
    with pytest.raises(RunError, match="evaluation/step-000002 and step-000004 are of different rows or options"):
        evaluations(tmp_path)
    finetune(
        embedded_model(), task, TRAIN, tmp_path, evaluate=partial(evaluate, trained=False, sample=Sample(2, max_length=32))
    )
    assert len(evaluations(tmp_path)) == 3 * len(task.cases)


def test_checkpoints_are_evaluated_in_the_precision_that_auto_came_to_in_the_run(task: Task, tmp_path: Path) -> None:
    score = partial(evaluate, trained=False, sample=Sample(2, max_length=32, precision="auto"))
    finetune(embedded_model(), task, TRAIN, tmp_path, evaluate=score)
    kept = json.loads((tmp_path / "precision.json").read_text())["precision"]
    assert json.loads((tmp_path / "evaluation" / "step-000002.options.json").read_text())["precision"] == kept


def test_of_several_runs_the_core_is_that_of_those_with_subnetworks(
    model: Classifier, task: Task, means: ActivationMeans, tmp_path: Path
) -> None:
    alive = [pruned_run(tmp_path / f"run-{seed}", means, {seed: {A, B}}, sparsity) for seed, sparsity in ((42, 0.4), (43, 0.5))]
    gone = replace(pruned_run(tmp_path / "gone", means, {44: {A}}, 0.9), subnetworks=(), collapsed={44: "every gate closed"})
    core = core_into(alive, permutations=10)
    run = OpenRun((gone, *alive), None, lambda: (model, task))
    assert run.core == core
    assert run.core.heads == (A, B)


def test_the_mean_of_other_heads_is_told_of_chosen_cases_too(measured: Pruned, model: Classifier, task: Task) -> None:
    one = next(iter(task.ood))
    answer = opened(measured, model, task).ask(Ablation(controls=1), Sample(2, cases=[one]))
    others = answer["effects"][answer["effects"]["group"].str.startswith("mean of")]
    assert set(others["case"]) == {one}
