"""On a GPU: the same numbers as on the CPU, no step that waits for the device, and BERT-base steps in fp32 and bf16."""

import copy
import dataclasses
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import torch
from transformers import BertConfig, GPT2Config, LlamaConfig

from hc_lens.data import Encoded
from hc_lens.forward import inference
from hc_lens.means import ActivationMeans
from hc_lens.metrics import predict
from hc_lens.models import fingerprint, load_compact, new_model
from hc_lens.pruning import GateTraining, PruneConfig, prune
from hc_lens.pruning.objective import kl_to_full
from hc_lens.pruning.training import HISTORY, data_order
from hc_lens.subnetwork import Subnetwork

pytestmark = pytest.mark.cuda

SHORT = PruneConfig(sparsity=0.5, steps=80, ramp_steps=60, batch_size=8, max_length=16)


def bert_config(**changes):
    config = BertConfig(
        vocab_size=40,
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    config.update(changes)
    return config


def gpt2_config():
    return GPT2Config(
        vocab_size=40, n_positions=16, n_embd=32, n_layer=3, n_head=4, initializer_range=0.3, pad_token_id=0, eos_token_id=0
    )


def pair_of_models(config):
    """The same weights on the CPU and on the GPU."""
    return new_model(config, labels=3), new_model(config, labels=3, device="cuda")


def rows(n=64, low=3, high=12, vocab=40, seed=0, types=False):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(low, high, (n,), generator=generator)
    tokens = torch.randint(1, vocab, (int(lengths.sum()),), generator=generator, dtype=torch.int32)
    segments = torch.randint(0, 2, (len(tokens),), generator=generator, dtype=torch.int8) if types else None
    return Encoded(tokens, segments, lengths, None, 0, f"rows-{n}-{low}-{high}-{seed}")


def training_on(model, data, config, seeds, means):
    orders = [data_order(data, config, seed) for seed in seeds]
    loss = kl_to_full(model, data, torch.arange(len(data)), dtype=torch.bfloat16 if config.precision == "bf16" else None)
    return GateTraining(model, data, means, config, seeds, loss, orders)


@contextmanager
def no_sync() -> Generator[None]:
    """Whatever makes the host wait for the device is an error."""
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


def test_the_sync_check_notices_a_sync():
    values = torch.ones(3, device="cuda")
    with pytest.raises(RuntimeError, match="synchronizing"), no_sync():
        values.sum().item()
    with pytest.raises(RuntimeError, match="synchronizing"), no_sync():
        torch.ones(3).to("cuda")


@pytest.mark.parametrize("config", [bert_config(), gpt2_config()], ids=["bert", "gpt2"])
def test_logits_means_and_fingerprints_agree(config):
    cpu, gpu = pair_of_models(config)
    data = rows(types=config.model_type == "bert")
    assert fingerprint(cpu) == fingerprint(gpu)
    torch.testing.assert_close(predict(cpu, data), predict(gpu, data), atol=1e-4, rtol=1e-4)
    on_cpu, on_gpu = ActivationMeans.collect(cpu, data), ActivationMeans.collect(gpu, data)
    torch.testing.assert_close(on_cpu.head, on_gpu.head.cpu(), atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(on_cpu.mlp, on_gpu.mlp.cpu(), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("config", [bert_config(), gpt2_config()], ids=["bert", "gpt2"])
def test_gates_agree_after_a_few_steps(config):
    """Same draws and same batches on both; a few steps only, since Adam divides gradients by their size, rounding included."""
    data, cpu_and_gpu = rows(), pair_of_models(config)
    means = ActivationMeans.collect(cpu_and_gpu[0], data)
    gates, histories = [], []
    for model in cpu_and_gpu:
        with training_on(model, data, SHORT, [1, 2], means) as training:
            for _ in range(8):
                training.step()
        assert training.log_alpha.device.type == model.classifier.weight.device.type
        gates.append(training.log_alpha.detach().cpu())
        histories.append(training.history[:8].cpu())
    torch.testing.assert_close(gates[0], gates[1], atol=5e-3, rtol=0)
    torch.testing.assert_close(histories[0], histories[1], atol=5e-3, rtol=1e-2)


def test_masks_agree_and_subnetworks_move_between_devices(tmp_path):
    cpu, gpu = pair_of_models(bert_config())
    data = rows()
    means = ActivationMeans.collect(cpu, data)
    on_cpu, on_gpu = (prune(model, data, means, SHORT, seeds=[1, 2]) for model in (cpu, gpu))
    for run, (a, b) in enumerate(zip(on_cpu.subnetworks, on_gpu.subnetworks, strict=True)):
        assert a.sparsity == b.sparsity
        # Units whose log_alpha is near the cut may fall on either side; of the others every one agrees.
        cut = on_cpu.log_alpha[run][a.mask].min()
        clear = (on_cpu.log_alpha[run] - cut).abs() > 0.2
        assert clear.double().mean() > 0.6
        assert torch.equal(a.mask[clear], b.mask.cpu()[clear])
    kept = on_gpu.subnetworks[0]
    loaded = type(kept).load(kept.save(tmp_path / "sub.safetensors"), cpu)
    assert loaded == kept
    torch.testing.assert_close(
        predict(cpu, data, edits=loaded.edits()), predict(gpu, data, edits=kept.edits()), atol=1e-4, rtol=1e-4
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"precision": "bf16"},
        {"dropout": True, "clip": 1.0, "accumulation": 2, "estimate": "sampled", "schedule": "linear", "weight_decay": 0.01},
    ],
    ids=["desk", "bf16", "paper-like"],
)
@pytest.mark.parametrize("config", [bert_config(), gpt2_config()], ids=["bert", "gpt2"])
def test_no_step_waits_for_the_device(config, changes):
    model, data = new_model(config, labels=3, device="cuda"), rows(types=config.model_type == "bert")
    settings = dataclasses.replace(SHORT, **changes)
    with training_on(model, data, settings, [1, 2], ActivationMeans.collect(model, data)) as training:
        training.step()  # libraries and the optimiser's state are set up
        with no_sync():
            for _ in range(70):  # past the 64 steps whose noise is drawn together
                training.step()
        training.require_finite()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_bert_base_step(precision):
    """Two steps on 32 pairs of up to 128 tokens: finite, the gates move, no weight gets a gradient, a few GB of activations."""
    model = new_model(BertConfig(vocab_size=1000), labels=3, device="cuda")
    data = rows(96, 12, 128, vocab=1000)
    means = ActivationMeans.collect(model, data)
    config = PruneConfig(steps=2, ramp_steps=1, precision=precision)
    torch.cuda.reset_peak_memory_stats()
    loaded = torch.cuda.memory_allocated()
    with training_on(model, data, config, [42], means) as training:
        start = training.log_alpha.detach().clone()
        training.step()
        with no_sync():
            training.step()
        training.require_finite()
        moved = (training.log_alpha.detach() - start).abs()
    assert training.log_alpha.dtype == torch.float32
    assert moved.isfinite().all()
    assert moved.median() > 0.05
    assert all(weight.grad is None for weight in model.parameters())
    assert torch.cuda.max_memory_allocated() - loaded < 6 * 2**30


def test_a_bert_base_step_equals_the_cpus():
    config = BertConfig(vocab_size=1000, initializer_range=0.05)
    cpu = new_model(config, labels=3)
    data = rows(16, 12, 24, vocab=1000)
    means = ActivationMeans.collect(cpu, data)
    recipe = PruneConfig(steps=1, ramp_steps=1, batch_size=8, gate_mean=0.5)
    losses = []
    for model in (cpu, copy.deepcopy(cpu).to("cuda")):
        with training_on(model, data, recipe, [42], means) as training:
            training.step()
        losses.append(training.history[0, 0, HISTORY.index("loss")].item())
    assert losses[0] > 1e-4
    assert losses[1] == pytest.approx(losses[0], rel=1e-3)


@pytest.mark.parametrize("config", [bert_config(), gpt2_config(), "grouped"], ids=["bert", "gpt2", "llama"])
def test_a_compact_model_answers_as_the_gated_one_and_comes_back_from_disk(config, tmp_path):
    """A block without heads, one without MLP, and, in Llama, groups of queries that lost different numbers of heads."""
    if config == "grouped":
        sizes = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 16}
        config = LlamaConfig(
            vocab_size=40, hidden_size=32, intermediate_size=64, initializer_range=0.3, pad_token_id=0, **sizes
        )
    model, data = new_model(config, labels=3, device="cuda"), rows()
    mask = torch.tensor([[1, 0, 1, 1, 1], [0, 0, 0, 0, 1], [1, 1, 0, 1, 0]], dtype=torch.bool)
    sub = Subnetwork(mask, ActivationMeans.collect(model, data))
    expected = predict(model, data, edits=sub.edits())
    compact = sub.compact(model)
    assert next(compact.parameters()).is_cuda
    loaded = load_compact(sub.export(tmp_path / "small", model), device="cuda")
    for each in (compact, loaded):
        torch.testing.assert_close(predict(each, data), expected, atol=1e-4, rtol=0)
        with inference(each, "bf16", narrow=True):
            assert torch.isfinite(each(data.batch(range(8)))).all()
