"""The benches run, report what they promise, and compare workloads that compute the same thing."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import BertConfig

from experiments.bench import batches, import_time, masks, memory, prune_step
from experiments.bench.arithmetic import step_flops
from experiments.bench.masks import overlap
from experiments.bench.timing import Cost, medians, ratio
from experiments.bench.workloads import Floor, OurStep, Published, bert
from hc_lens.data import Encoded
from hc_lens.means import ActivationMeans
from hc_lens.models import load_model
from hc_lens.pruning import GateTraining, PruneConfig
from hc_lens.pruning.objective import kl_to_full
from hc_lens.pruning.training import data_order, stream

ROOT = Path(__file__).parents[1]


def small(dropout: float = 0.0) -> BertConfig:
    """Two layers of four heads; weights large enough that closing a gate moves the logits."""
    return BertConfig(
        vocab_size=60,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=128,
        initializer_range=0.5,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Encoded:
    """A few drawn pairs, wherever the bench asks for MNLI's."""
    monkeypatch.delenv("HC_LENS_DATA", raising=False)
    monkeypatch.setattr(batches, "ROWS", 96)
    return batches.drawn_pairs(60, 96)


def test_prune_step_reports_ratios_threads_and_machine(pairs, monkeypatch):
    monkeypatch.setattr(batches, "drawn_pairs", lambda vocab: pairs)
    monkeypatch.setattr(prune_step, "mask_change", lambda train, prune: {"steps": [train, prune]})
    setting = prune_step.Setting(batches=2, rounds=2, batch=8, hf_config=small(dropout=0.1), mask_steps=(2, 3))
    found = json.loads(prune_step.measure(setting, quick=True).splitlines()[-1])
    assert found["bench"] == "prune_step"
    assert found["quick"] is True
    for name in ("published_over_ours", "published_over_ours_bf16", "ours_over_floor", "ours_over_floor_bf16"):
        assert found[name] > 0
        assert found["wall"][name] > 0
    assert found["threads"] == torch.get_num_threads()
    assert found["machine"]
    examples = {name: n for name, n in found["examples"].items() if "gemm" not in name}
    assert examples == {"published": 16, "ours": 32, "floor": 32, "ours_bf16": 32, "floor_bf16": 32}
    assert set(found["cpu_seconds_per_example"]) == set(found["examples"])
    for clock in ("cpu", "wall"):
        assert 0 < found["share_of_gemm_peak"][clock]["fp32"] < 1
    for kind in ("fp32", "bf16"):
        assert 0 < sum(found["profile"][kind].values()) <= 1.01
        assert found["share_of_gemm_peak"]["wall"][kind] > 0
    assert set(found["gemm_gflops"]) == {"gemm", "gemm_bf16"}
    assert found["masks"] == {"steps": [2, 3]}
    assert found["rounds"] == 2
    assert "random tokens" in found["lengths"]
    assert found["layers"] == 2


def test_published_recipe_and_our_step_compute_the_same_gradients(pairs):
    """Same gates, same noise, no dropout: KL + Lagrangian and its gradient agree, padded to 128 with eager attention or not."""
    hf_model = bert(attention="eager", config=small())
    model = load_model(hf_model=hf_model)
    means = ActivationMeans.collect(model, pairs)
    config = PruneConfig(steps=4, ramp_steps=2, batch_size=8, gate_mean=0.5, gate_std=0.5, estimate="sampled")
    order = data_order(pairs, config, 1)
    ours = GateTraining(model, pairs, means, config, [1], kl_to_full(model, pairs, torch.arange(len(pairs))), [order])
    published = Published(hf_model, pairs, order[:1], means)
    published.log_alpha = ours.log_alpha.detach()[0].clone().requires_grad_()
    u = published.concrete.noise((64, 1, 2, 5), stream(1, None, 1))[0, 0]  # the run's own noise: its first chunk, first step
    published.multipliers = torch.tensor([0.3, 2.0], requires_grad=True)
    with torch.no_grad():
        ours.multipliers.copy_(published.multipliers)
    expected = published.loss(published.padded(order[0]), u, target=0.25)
    expected.backward()
    with ours:
        kl, sparsity = ours._micro(0, 0, 0.25)
    gap = 0.25 - sparsity
    assert kl.item() > 1e-3, "the gates do something"
    torch.testing.assert_close(kl + 0.3 * gap + 2.0 * gap**2, expected.detach().view(1), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ours.log_alpha.grad[0], published.log_alpha.grad, atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(ours.multipliers.grad[0], published.multipliers.grad, atol=1e-6, rtol=1e-5)


def test_floor_reaches_the_first_layers_context_and_no_weight(pairs):
    model = bert(attention="sdpa", config=small())
    floor = Floor(model, pairs, batches.epoch(pairs.lengths, 8)[:1])
    leaves = []
    attention = model.bert.encoder.layer[0].attention.self
    attention.register_forward_hook(lambda module, inputs, output: leaves.append(output[0]))
    floor.run()
    assert leaves[0].is_leaf
    assert leaves[0].grad.abs().sum() > 0
    assert all(weight.grad is None for weight in model.parameters())


def test_our_step_starts_from_a_teacher_that_is_already_computed(pairs):
    model = load_model(hf_model=bert(attention="sdpa", config=small()))
    rows = batches.epoch(pairs.lengths, 8)[:2]
    ours = OurStep(model, pairs, rows, "fp32", 2, ActivationMeans.collect(model, pairs))
    forwards = []
    model.register_forward_hook(lambda *call: forwards.append(0))
    with ours.ready():
        ours.run()
    assert ours.training.taken == 2
    assert len(forwards) == 2, "one forward pass a step: the teacher's is done"


@pytest.mark.parametrize("kind", ["fp32", "bf16"])
def test_counted_operations_are_those_of_a_step(pairs, kind):
    """The formula against torch's own count of a real step, but for the head and the gates that it leaves out.

    On the CPU torch does not count its fused attention: all of it in fp32, the first block's forward in bf16.
    """
    config = small()
    config.num_hidden_layers, config.hidden_size, config.intermediate_size = 3, 64, 128
    model = load_model(hf_model=bert(attention="sdpa", config=config))
    rows = batches.epoch(pairs.lengths, 8)[:1]
    ours = OurStep(model, pairs, rows, kind, 1, ActivationMeans.collect(model, pairs))
    with ours.ready(), FlopCounterMode(display=False) as counter:
        ours.run()
    width = int(batches.widths(rows, pairs.lengths))
    matrices, attention = step_flops(config, 8, width)
    counted = matrices if kind == "fp32" else matrices + attention - 8 * 4 * width**2 * 64
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.003)


@pytest.mark.slow
def test_masks_of_both_precisions_are_compared_with_those_of_other_seeds():
    found = masks.mask_change(300, 100)
    for name in ("fp32_bf16", "fp32_seeds", "bf16_seeds"):
        assert 0 < found[name] <= 1
    assert found["fp32_bf16"] > found["fp32_seeds"], "the same seed in another precision is nearer than another seed"


def test_overlap_of_masks_counts_kept_units():
    one, other = torch.tensor([[True, True, False]]), torch.tensor([[True, False, True]])
    assert overlap(one, other) == pytest.approx(1 / 3)
    assert overlap(one, one) == overlap(~one & one, ~one & one) == 1


def test_typical_batches_stand_for_the_epoch():
    lengths = batches.drawn_pairs(60).lengths
    assert lengths.double().mean().item() == pytest.approx(38.9, abs=0.5)
    quantiles = lengths.double().quantile(torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95, 0.99], dtype=torch.float64))
    assert quantiles.tolist() == pytest.approx([17, 27, 36, 48, 72, 96], abs=3)
    order = batches.epoch(lengths)
    all_of_it = batches.widths(order, lengths).double().mean().item()
    assert batches.widths(batches.typical(order, lengths, 8), lengths).double().mean().item() == pytest.approx(
        all_of_it, rel=0.02
    )
    assert batches.widths(batches.widest(order, lengths), lengths).item() == batches.widths(order, lengths).max().item()


def test_ratios_are_medians_of_paired_rounds():
    costs = {"a": [Cost(2.0, 1.0), Cost(9.0, 9.0), Cost(4.0, 2.0)], "b": [Cost(1.0, 1.0), Cost(3.0, 3.0), Cost(1.0, 1.0)]}
    assert ratio(costs, "a", "b") == 3.0
    assert ratio(costs, "a", "b", "wall") == 2.0
    assert medians(costs, "cpu") == {"a": 4.0, "b": 1.0}


def test_masks_of_24_subnetworks_take_at_most_4_kb_each():
    largest, means = memory.mask_bytes()
    assert largest <= 4096, "the size that the README states"
    assert means == 12 * 2 * 768 * 4


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_peak_counts_what_is_used_after_loading(monkeypatch):
    before = memory.reset_peak()
    assert memory.status_bytes("VmHWM") < before + 2**24
    block = torch.ones(2**25)  # 128 MB
    del block
    assert memory.status_bytes("VmHWM") > before + 2**26, "the peak stays after the memory is given back"


@pytest.mark.slow
def test_import_time_reports_ratios():
    found = json.loads(import_time.measure(1, quick=True))
    assert found["worst"].keys() == found["goals"].keys()
    assert all(value > 0 for value in found["ratios"].values())
    assert found["worst"]["help"] < found["worst"]["measured"] < found["cpu_seconds"]["import transformer_lens"]
    assert found["quick"] is True


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="runs the CUDA checks themselves")
def test_cuda_check_says_that_there_is_no_gpu():
    done = subprocess.run([sys.executable, "-m", "experiments.bench.cuda_check"], cwd=ROOT, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "no CUDA device: nothing was checked\n")
