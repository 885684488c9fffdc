"""What `auto` comes to: decided by a measurement, once for a run or a sweep, and obeyed by whoever goes on with it."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import get_args

import pytest
import torch

from hc_lens import machine, precision
from hc_lens.cache import options_of
from hc_lens.cli import main
from hc_lens.data import Task, synthetic_nli
from hc_lens.machine import Products, weights_as_fused
from hc_lens.means import ActivationMeans
from hc_lens.models import Classifier, fused
from hc_lens.models.fused_blocks import FusedPostNorm
from hc_lens.modular.incontext.config import Training
from hc_lens.precision import Resolved, products_of, resolve, resolve_asked, settled, settled_in, told
from hc_lens.pruning import PruneConfig, evaluate_into, prune, prune_into
from hc_lens.relations.config import FinetuneConfig, RelationConfig
from hc_lens.runs import Run
from hc_lens.sample import Measuring, Sample
from hc_lens.study import DEMO, StudyConfig, embedded_model
from hc_lens.sweep import Board, PruneJob
from hc_lens.sweep.worker import work
from hc_lens.train import TrainConfig, finetune
from tests.sweeping import finetuned_source

SMALL = Products(d_model=64, d_head=16, heads=4, d_mlp=128, rows=8, length=16)
PRUNE = replace(PruneConfig.desk(0.5, steps=3), batch_size=4, gate_std=2.0, max_length=32)


@pytest.fixture(scope="module")
def model() -> Classifier:
    return embedded_model()


@pytest.fixture(scope="module")
def task() -> Task:
    return synthetic_nli(n_train=40, n_id=4, n_ood_per_case=2)


@pytest.fixture(scope="module")
def means(model: Classifier, task: Task) -> ActivationMeans:
    return ActivationMeans.collect(model, task.train, sample=Sample(10, max_length=32))


@pytest.fixture
def speedup(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How many times faster bf16 is on the machine that the test is on."""
    found = {"is": 1.0}
    monkeypatch.setattr("hc_lens.machine.bf16_speedup", lambda products: found["is"])
    return found


@pytest.mark.parametrize(("ratio", "wanted"), [(0.02, "fp32"), (1.0, "fp32"), (1.29, "fp32"), (1.3, "bf16"), (4.0, "bf16")])
def test_auto_is_bf16_from_a_third_faster_on(model: Classifier, speedup: dict[str, float], ratio: float, wanted: str) -> None:
    speedup["is"] = ratio
    assert resolve("auto", model) == wanted
    assert (resolve("fp32", model), resolve("bf16", model)) == ("fp32", "bf16"), "asked for by name, it is what was asked"


def test_bf16_by_name_warns_with_the_ratio_where_it_is_slow(model: Classifier, speedup: dict[str, float]) -> None:
    speedup["is"] = 1 / 50
    with pytest.warns(UserWarning, match="products are 50 times slower than in fp32 on this cpu; choose auto or fp32"):
        resolve_asked("bf16", model)


def test_products_are_those_of_the_model(model: Classifier) -> None:
    found = products_of(model, rows=8, length=20)
    cfg = model.cfg
    assert found == (cfg.d_model, cfg.d_head, cfg.n_heads, cfg.d_mlp, 8, 20)


def test_large_products_are_measured_at_a_size_of_milliseconds() -> None:
    large = Products(8192, 128, 64, 28672, rows=1024, length=2048).measurable()
    assert large.weights * large.rows * large.length * 3 < 1e10
    assert SMALL.measurable() == SMALL


def test_weights_are_laid_out_as_in_fused_blocks(model: Classifier) -> None:
    for dtype in (None, torch.bfloat16):
        with fused(model, dtype):
            block = model.blocks[0].forward
            assert isinstance(block, FusedPostNorm)
            weights = block.weights()
        theirs = [weights.qkv, weights.out, weights.mlp_in, weights.mlp_out]
        measured = weights_as_fused(products_of(model, 2, 4), dtype or torch.float32)
        assert [w.shape for w in theirs] == [w.shape for w in measured]
        assert [w.is_contiguous() for w in theirs] == [w.is_contiguous() for w in measured]
        if dtype is not None:
            assert all(w.is_contiguous() for w in theirs), "a transposed bfloat16 matrix is slow to multiply"


def test_each_shape_is_timed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[int] = []
    monkeypatch.setattr(machine, "_fastest", lambda single, half: timed.append(1) or 2.0)
    measure = machine_measurement()
    assert measure(SMALL) == 2.0
    once = len(timed)
    assert measure(SMALL) == 2.0
    assert len(timed) == once > 0


def machine_measurement() -> Callable[[Products], float]:
    """The measurement itself, which other tests replace, with nothing remembered."""
    return cache(_ORIGINAL.__wrapped__)


_ORIGINAL = machine.bf16_speedup


@pytest.mark.slow
def test_without_fast_bfloat16_the_measurement_says_so_and_does_not_take_long() -> None:
    """oneDNN told to leave out AVX-512 and AMX multiplies bfloat16 far slower than float32."""
    code = (
        "import time; from hc_lens.machine import Products, bf16_speedup; t = time.thread_time();"
        "print(bf16_speedup(Products(384, 32, 12, 1536, 32, 64)), time.thread_time() - t)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"ONEDNN_MAX_CPU_ISA": "AVX2", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    ratio, seconds = map(float, done.stdout.split())
    assert ratio < precision.FASTER
    assert seconds < 5


def test_a_run_decides_once_and_others_obey(tmp_path: Path, model: Classifier, speedup: dict[str, float]) -> None:
    run = Run.at(tmp_path / "run", "probe", {"precision": "auto"})
    assert settled_in(run) is None
    assert told(run) == {}
    speedup["is"] = 2.0
    assert settled(run, "auto", model) == "bf16"
    speedup["is"] = 0.5  # another machine goes on
    with pytest.warns(UserWarning, match="2 times slower"):
        assert settled(run, "auto", model) == "bf16"
    assert told(run) == {"auto precision": "bf16 (products in bf16 2 times faster than fp32 on cpu)"}
    assert settled(run, "fp32", model) == "fp32", "by name, it is what was asked"


def test_training_and_pruning_take_what_their_run_decided(
    tmp_path: Path, model: Classifier, task: Task, means: ActivationMeans, speedup: dict[str, float]
) -> None:
    speedup["is"] = 9.0
    short = TrainConfig(steps=1, batch_size=4, max_length=32, checkpoint_every=1)
    assert short.precision == "auto"
    finetune(embedded_model(), task, short, tmp_path / "ft")
    run = Run.open(tmp_path / "ft")
    assert run.spec["config"]["precision"] == "auto"  # type: ignore[index]
    assert settled_in(run) == Resolved("bf16", 9.0, "cpu")

    pruned = prune_into(tmp_path / "pruned", model, task.train, means, PRUNE, [1])
    assert settled_in(pruned.run) == Resolved("bf16", 9.0, "cpu")
    speedup["is"] = 0.5
    with pytest.warns(UserWarning, match="slower"):
        more = prune_into(tmp_path / "pruned", model, task.train, means, PRUNE, [1, 2])
    low = prune(model, task.train, means, replace(PRUNE, precision="bf16"), [2])
    assert torch.equal(more.subnetworks[1].mask, low.subnetworks[0].mask)
    assert torch.equal(more.run.read_tensors("gates/seed-2")["log_alpha"], low.log_alpha[0])
    assert not torch.equal(low.log_alpha, prune(model, task.train, means, replace(PRUNE, precision="fp32"), [2]).log_alpha)


def test_tables_are_kept_under_the_precision_they_were_computed_in(
    tmp_path: Path, model: Classifier, task: Task, means: ActivationMeans, speedup: dict[str, float]
) -> None:
    pruned = prune_into(tmp_path / "pruned", model, task.train, means, replace(PRUNE, precision="fp32"), [1])
    evaluate_into(pruned, model, task, sample=Sample(2, precision="auto"), trained=False)
    assert options_of(pruned.run, "evaluation/full")["precision"] == "fp32"  # type: ignore[index]


def test_a_sweep_decides_once_for_all_its_jobs(tmp_path: Path, speedup: dict[str, float]) -> None:
    source = finetuned_source(tmp_path / "made")
    store = tmp_path / "store"
    jobs = [PruneJob(source, store / f"prune-{seed}", store / "means", PRUNE, (seed,), Measuring(10, 2)) for seed in (1, 2)]
    board = Board.create(store / "sweep", {"seeds": [1, 2]}, jobs)
    decided = Resolved("bf16", 3.0, "cpu")
    precision.settle(board.run, lambda: decided)  # by the machine that was first
    speedup["is"] = 0.9
    work(board.run.path, 1, device=torch.device("cpu"))
    assert {state.state for state in board.states()} == {"done"}
    assert [settled_in(Run.open(job.directory)) for job in jobs] == [decided, decided]


COMPUTING = """demo finetune prune evaluate ablate attention sweep-sparsity sweep effective-size emergence
relations-probe relations-finetune relations-study modular-icl"""


@pytest.mark.parametrize("command", COMPUTING.split())
def test_every_command_that_computes_has_precision(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    group, _, question = command.partition("-")
    words = [group, question] if group in ("relations", "modular") else [command]
    main([*words, "--help"])
    assert "--precision" in capsys.readouterr().out


def test_another_spelling_is_refused() -> None:
    with pytest.raises(ValueError, match="precision must be one of auto, fp32, bf16, got 'float32'"):
        precision.require_precision("float32")


@pytest.mark.parametrize("kind", [TrainConfig, PruneConfig, FinetuneConfig, Training])
def test_every_configuration_has_one_spelling(kind: type) -> None:
    for name in get_args(precision.Precision):
        assert kind(precision=name).precision == name


def test_short_recipes_ask_for_auto_and_published_ones_and_measurements_for_fp32() -> None:
    assert {DEMO.train.precision, *(each.precision for each in DEMO.prune), PruneConfig.desk().precision} == {"auto"}
    published = (TrainConfig.paper_mnli(), TrainConfig.paper_qqp(), PruneConfig.paper(0.5), Training())
    assert {each.precision for each in (*published, Measuring())} == {"fp32"}
    assert StudyConfig(TrainConfig(), (PRUNE,)).precision == "fp32"


def test_relations_of_earlier_versions_are_read() -> None:
    stored = asdict(RelationConfig())
    stored["finetune"]["precision"] = "bfloat16"
    assert RelationConfig.from_dict(stored).finetune.precision == "bf16"
