"""Relations measured as jobs: each part once, and tables that say what the parts say."""

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from hc_lens.models import LanguageModel
from hc_lens.precision import Resolved, settle, settled_in
from hc_lens.pruning import PruneConfig
from hc_lens.relations import measured as measuring
from hc_lens.relations.config import FinetuneConfig, ProbeConfig, RelationConfig, Variant
from hc_lens.relations.facts import fact_states
from hc_lens.relations.finetune import finetune_relation
from hc_lens.relations.inside_runs import carrier_units, gates_before_and_after
from hc_lens.relations.job import ModelSource, RelationJob, measure_relations
from hc_lens.relations.measured import Measured, measure_into, open_measured, relation_spec
from hc_lens.relations.probe import readability
from hc_lens.relations.prompts import encode_prompts
from hc_lens.relations.relation import Relation
from hc_lens.relations.report import Studied, findings, sections
from hc_lens.relations.representations import representations
from hc_lens.relations.scores import above_chance, majority_rate
from hc_lens.relations.study import error_table, fact_table, generalization_table, profile_table, relation_table
from hc_lens.relations.world import Planted, planted_world
from hc_lens.runs import Run, RunError
from hc_lens.sweep import Board, Pool, SweepError
from hc_lens.sweep.worker import work
from tests.contents import content_of
from tests.relations.test_world import SMALL

CONFIG = RelationConfig(
    seeds=(0, 1),
    assignments=(0,),
    others=("fruits",),
    n_shots=0,
    draws=2,
    probe=ProbeConfig(strengths=(0.01, 1.0), folds=2),
    finetune=FinetuneConfig(lr=1e-3, max_epochs=2),
)


def jobs(out: Path, source: ModelSource, relations: Sequence[Relation]) -> list[RelationJob]:
    return [RelationJob(out / "relations", source, relation, CONFIG) for relation in relations]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted_world(SMALL, tmp_path_factory.mktemp("world"))


@pytest.fixture(scope="module")
def source(world: Planted) -> ModelSource:
    return ModelSource.of(world.directory)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def found(world: Planted, source: ModelSource, out: Path) -> list[Measured]:
    return measure_relations(out, jobs(out, source, world.relations))


def test_what_is_measured_is_what_the_parts_give_by_hand(world: Planted, found: list[Measured]) -> None:
    model, first, mine = world.model(), world.relations[0], found[0]
    assert mine.relation == first
    assert mine.config == CONFIG
    resid = representations(model, encode_prompts(model, first, CONFIG.template)).resid
    wanted = readability(resid, first.codes, mine.split(1), replace(CONFIG.probe, seed=1))
    read = mine.probed(1).found
    assert (read.layer, read.strength) == (wanted.layer, wanted.strength)
    assert torch.equal(read.scores, wanted.scores)
    variant = Variant("animals", 0, 1)
    tuned = mine.tuned(variant)
    again = finetune_relation(model, first, mine.split(1), tuned.labels, CONFIG.template, CONFIG.finetune, seed=1)
    torch.testing.assert_close(tuned.scores, again.scores, atol=1e-4, rtol=1e-4)
    assert tuned.train_accuracy == pytest.approx(again.train_accuracy)

    row = relation_table(found).iloc[0]
    held_out = [list(mine.split(seed).held_out) for seed in CONFIG.seeds]
    right = [
        (mine.tuned(Variant("animals", 0, seed)).scores.argmax(1) == first.codes)[places].double().mean().item()
        for seed, places in zip(CONFIG.seeds, held_out, strict=True)
    ]
    majority = [majority_rate(first.codes[places]) for places in held_out]
    assert row["generalization"] == pytest.approx(np.mean([above_chance(a, m) for a, m in zip(right, majority, strict=True)]))
    assert row["readability"] == pytest.approx(np.mean([mine.probed(seed).found.above for seed in CONFIG.seeds]))
    assert row["training subjects"] == len(mine.split(0).train)


def test_tables_have_a_row_for_every_relation_fine_tuning_and_layer(world: Planted, found: list[Measured]) -> None:
    n = len(world.relations)
    assert relation_table(found)["relation"].tolist() == [relation.name for relation in world.relations]
    assert len(generalization_table(found)) == n * 3
    assert set(generalization_table(found)["category"]) == {"animals", "fruits"}
    assert len(profile_table(found)) == n * (SMALL.n_layers + 1)
    facts = fact_table(found)
    assert len(facts) == sum(len(each.split(seed).held_out) for each in found for seed in CONFIG.seeds)
    assert set(fact_states(facts)["times"]) <= {1, 2}


def test_errors_are_the_wrong_labels_of_held_out_facts(found: list[Measured]) -> None:
    errors = error_table(found)
    assert (errors["true"] != errors["given"]).all()
    accuracy = generalization_table(found).query("category == 'animals'").set_index(["relation", "seed"])["accuracy"]
    for each in found:
        for seed in CONFIG.seeds:
            mine = errors[(errors["relation"] == each.relation.name) & (errors["seed"] == seed) & (errors["k"] == 1)]
            wrong = round((1 - accuracy[each.relation.name, seed]) * len(each.split(seed).held_out))
            assert len(mine) in ({wrong} if len(each.relation.answers) > 2 else {0})


def test_the_same_call_again_does_nothing_and_after_a_kill_only_what_is_missing(
    world: Planted, source: ModelSource, out: Path, found: list[Measured], monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[int] = []

    def counted(model: LanguageModel, *args: object, **options: object) -> object:
        done.append(1)
        return finetune_relation(model, *args, **options)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr(measuring, "finetune_relation", counted)
    measure_relations(out, jobs(out, source, world.relations))
    assert not done
    run = found[1].run
    run.unfinish()
    run.file("finetune/fruits-0-seed-0", "json").unlink()
    measure_into(run.path.parent, world.model(), world.relations[1], CONFIG)
    assert len(done) == 1
    assert run.finished


def test_every_part_of_a_relation_that_was_deleted_is_measured_again(
    world: Planted, source: ModelSource, tmp_path: Path, found: list[Measured]
) -> None:
    copy = tmp_path / "relations" / found[0].run.path.name
    shutil.copytree(found[0].run.path, copy)
    files = [file for file in copy.rglob("*") if file.suffix in (".safetensors", ".json") and file.parent != copy]
    files.append(copy / "states.safetensors")
    assert len(files) == 1 + 3 * 2 + 2 + 2 * 3, "states; probes and recall of two seeds; three fine-tunings"
    kinds = {file.parent.name + file.suffix: file for file in files}
    before = {file: content_of(file) for file in files}
    for file in kinds.values():
        file.unlink()
    job = RelationJob(tmp_path / "relations", source, world.relations[0], CONFIG)
    assert not job.whole()
    measure_relations(tmp_path, [job])
    assert job.whole()
    timed = {file for file in files if file.suffix == ".json"}
    assert all(file.exists() for file in files)
    assert all(content_of(file) == before[file] for file in files if file not in timed)


@pytest.mark.slow
def test_workers_measure_relations_as_one_process_does(
    world: Planted, source: ModelSource, tmp_path: Path, found: list[Measured]
) -> None:
    apart = measure_relations(tmp_path, jobs(tmp_path, source, world.relations[:2]), Pool(workers=2, threads=1))
    assert [each.run.digest for each in apart] == [each.run.digest for each in found[:2]]
    for mine, theirs in zip(apart, found, strict=False):
        torch.testing.assert_close(mine.probed(0).found.scores, theirs.probed(0).found.scores)


def test_a_sweep_of_relations_decides_once_what_auto_precision_is(
    world: Planted, source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tuning = FinetuneConfig(lr=1e-3, max_epochs=1, precision="auto")
    short = replace(CONFIG, seeds=(0,), others=(), finetune=tuning)
    made = [RelationJob(tmp_path / "relations", source, relation, short) for relation in world.relations[:2]]
    board = Board.create(tmp_path / "sweep", {"relations": 2}, made)
    decided = Resolved("bf16", 3.0, "cpu")
    settle(board.run, lambda: decided)  # by the machine that was first
    monkeypatch.setattr("hc_lens.machine.bf16_speedup", lambda products: 0.9)
    work(board.run.path, 1, device=torch.device("cpu"))
    assert {state.state for state in board.states()} == {"done"}
    assert [settled_in(job.result().run) for job in made] == [decided, decided]


def test_in_bfloat16_states_are_as_near_as_bfloat16_is(world: Planted) -> None:
    model = world.model()
    prompts = encode_prompts(model, world.relations[0], CONFIG.template)
    full, low = (representations(model, prompts, precision=kind).resid for kind in ("fp32", "bf16"))
    assert low.dtype == torch.float32
    assert torch.equal(low[0], full[0]), "the embedding is no product"
    assert not torch.equal(low[1:], full[1:])
    torch.testing.assert_close(low, full, atol=0.05, rtol=0.05)


def test_a_job_comes_back_from_its_description(world: Planted, source: ModelSource, tmp_path: Path) -> None:
    job = RelationJob(tmp_path / "relations", source, world.relations[0], CONFIG)
    assert RelationJob.from_spec(job.spec(tmp_path), tmp_path) == job


def test_a_model_that_changed_and_a_relation_that_cannot_be_split_are_failures_with_their_reasons(
    world: Planted, source: ModelSource, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=r"was changed since the job was planned"):
        measure_relations(tmp_path, jobs(tmp_path, replace(source, fingerprint="0" * 64), world.relations[:1]))
    few = world.relations[0].only([0, 1, 2])
    with pytest.raises(SweepError, match=r"relation 'rel.*needs 2 to train on and 1 held out|has \d subjects"):
        measure_relations(tmp_path, jobs(tmp_path, source, [few]))
    assert not list((tmp_path / "relations").glob("relation-*")), "before anything is written"


def test_what_is_not_measured_is_not_read(world: Planted, source: ModelSource, tmp_path: Path) -> None:
    spec = relation_spec(source.fingerprint, world.relations[0], CONFIG)
    with pytest.raises(RunError, match="is not a directory"):
        open_measured(tmp_path, spec)
    Run.create(tmp_path, "relation", spec)
    with pytest.raises(RunError, match="is not finished"):
        open_measured(tmp_path, spec)


def test_counts_are_log_means_and_every_subject_needs_one(found: list[Measured]) -> None:
    first = found[0].relation
    counts = dict.fromkeys(first.subjects, 100.0)
    assert relation_table(found[:1], counts)["log frequency"].item() == pytest.approx(np.log(100))
    del counts[first.subjects[3]]
    with pytest.raises(ValueError, match=rf"^counts: subject '{first.subjects[3]}' .* has None"):
        relation_table(found[:1], counts)


@pytest.mark.parametrize(("field", "values"), [("seeds", ()), ("assignments", (1, 1))])
def test_seeds_and_assignments_are_given_once_each(field: str, values: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=rf"^{field} must be at least one, each once, got"):
        replace(CONFIG, **{field: values})


def test_the_report_has_a_section_for_everything_that_was_measured(
    world: Planted, source: ModelSource, found: list[Measured]
) -> None:
    model = world.model()
    kinds = dict(zip(world.how["relation"], world.how["kind"], strict=True))
    gates = replace(PruneConfig.desk(steps=20), gate_mean=0.5, gate_std=2.0)
    studied = Studied(
        "a small world",
        "small",
        found,
        kinds,
        left_out=pd.DataFrame([{"name": "few", "reason": "too small"}]),
        units=pd.concat([carrier_units(each, model) for each in found]),
        gates=gates_before_and_after(found[0], model, gates, (0, 1)),
        otherwise=found,
        how="the same again",
    )
    parts = {section.anchor: section for section in sections(studied)}
    names = ("relations", "partial", "robust", "otherwise", "layers", "recovery", "facts", "units", "gates")
    assert list(parts) == [f"small-{name}" for name in names]
    again = parts["small-otherwise"].shown[0]
    mine, before = (again.columns.index(name) for name in ("generalization", "as in the study"))
    assert all(row[mine] == row[before] for row in again.rows), "the same again is the same"
    judged = {finding.key: finding for finding in findings(studied)}
    assert str(studied.main) in judged["small-predicts"].short
    assert set(judged) >= {"small-predicts", "small-partial"}
