"""A TransformerBridge stands wherever a hooked model does: units are addressed by hook points, whatever computes them."""

import copy
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest
import torch
from torch import Tensor
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoTokenizer, BertForMaskedLM, GPT2LMHeadModel, PreTrainedModel, PreTrainedTokenizerBase

from hc_lens.analysis import ablate, attention_scores
from hc_lens.data.batches import Batch, Encoded
from hc_lens.data.task import Split, Task
from hc_lens.forward import device_of, run_batch, shape_of
from hc_lens.gates import gate_edits
from hc_lens.hooks import Edit, HookError, captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.metrics import LabelOrderError, evaluate, predict
from hc_lens.models import load_model
from hc_lens.pruning import PruneConfig, prune
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.models.tiny import VOCAB, config, tokenizer, transformers_model

LENGTHS = (9, 4, 6, 9, 5, 7)
UNITS = {"gpt2": [Head(1, 2), Mlp(0)], "bert": [Head(0, 4), Mlp(2)]}


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> PreTrainedTokenizerBase:
    """From a directory: a bridge without a tokenizer, or with one made in memory, asks the network."""
    directory = tmp_path_factory.mktemp("tokenizer")
    tokenizer().save_pretrained(directory)
    return AutoTokenizer.from_pretrained(directory)


def language_model(family: str) -> PreTrainedModel:
    torch.manual_seed(7)
    made = {"gpt2": GPT2LMHeadModel, "bert": BertForMaskedLM}[family](config(family))
    return made.eval()


@pytest.fixture(scope="module", params=["gpt2", "bert"])
def family(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def bridge(family: str, words: PreTrainedTokenizerBase) -> TransformerBridge:
    return TransformerBridge.boot_transformers(family, hf_model=language_model(family), tokenizer=words, device="cpu")


def rows(family: str) -> Encoded:
    torch.manual_seed(3)
    n = sum(LENGTHS)
    types = torch.randint(0, 2, (n,), dtype=torch.int8) if family == "bert" else None
    return Encoded(torch.randint(3, VOCAB, (n,), dtype=torch.int32), types, torch.tensor(LENGTHS), None, 0, "rows")


def last_token(output: Tensor, batch: Batch) -> Tensor:
    """Logit of token 5 after each row's last real token: a metric, and minus a loss."""
    return output[torch.arange(len(batch)), batch.attention_mask.sum(1) - 1, 5]


def test_a_batch_gets_the_logits_of_transformers(family: str, bridge: TransformerBridge) -> None:
    batch = rows(family).batch(range(6))
    types = {} if batch.token_type_ids is None else {"token_type_ids": batch.token_type_ids}
    with torch.no_grad():
        expected = language_model(family)(batch.input_ids, attention_mask=batch.attention_mask, **types).logits
        found = run_batch(bridge, batch)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(found[real], expected[real], atol=1e-5, rtol=0)
    assert (shape_of(bridge).n_layers, shape_of(bridge).n_heads, shape_of(bridge).d_model) == (3, 5, 40)
    assert device_of(bridge).type == "cpu"


def test_means_are_those_of_the_activations_at_real_positions(family: str, bridge: TransformerBridge) -> None:
    means = ActivationMeans.collect(bridge, rows(family), sample=Sample(batch_size=4))
    batch = rows(family).batch(range(6))
    with torch.no_grad(), captured(bridge, [z_point(1), mlp_point(2)]) as seen:
        run_batch(bridge, batch)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(means.head[1], seen[z_point(1)][real].mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(means.mlp[2], seen[mlp_point(2)][real].mean(0), atol=1e-5, rtol=0)
    assert means.tokens == sum(LENGTHS)


def test_means_and_attention_are_those_of_the_hooked_model_with_the_same_weights(
    family: str, bridge: TransformerBridge
) -> None:
    ours = load_model(hf_model=language_model(family), labels=2, tokenizer=bridge.tokenizer)
    expected, found = (ActivationMeans.collect(model, rows(family)) for model in (ours, bridge))
    torch.testing.assert_close(found.head, expected.head, atol=1e-5, rtol=0)
    torch.testing.assert_close(found.mlp, expected.mlp, atol=1e-5, rtol=0)

    pairs = Split("pairs", ("the cat saw the dog", "dog slept"), ("cat saw", "the dog"), (0, 1), ("yes", "no"), (0, 1))
    tables = [attention_scores(model, pairs, sample=Sample(max_length=16)).table(n_bootstrap=10) for model in (ours, bridge)]
    pd.testing.assert_frame_equal(*tables, atol=1e-5)


def test_attention_that_transformers_keeps_to_itself_is_an_error(words: PreTrainedTokenizerBase) -> None:
    """A bridge around a BERT that was made with fused attention has no patterns to show: make it with "eager"."""
    inner = language_model("bert")
    inner.set_attn_implementation("sdpa")
    bridge = TransformerBridge.boot_transformers("bert", hf_model=inner, tokenizer=words, device="cpu")
    pairs = Split("pairs", ("the cat",), ("the dog",), (0,), ("yes", "no"), (0, 1))
    with pytest.raises(HookError, match="did not fire"):
        attention_scores(bridge, pairs, sample=Sample(max_length=16))


def test_the_points_hold_what_goes_into_the_output_projection_and_out_of_the_mlp(
    family: str, bridge: TransformerBridge
) -> None:
    """On the BERT bridge `hook_attn_out` is behind a LayerNorm: only `hook_z` and `hook_mlp_out` may be gated."""
    inner = bridge.original_model
    block = inner.transformer.h[1] if family == "gpt2" else inner.bert.encoder.layer[1]
    projection = block.attn.c_proj if family == "gpt2" else block.attention.output.dense
    mlp = block.mlp if family == "gpt2" else block.output.dense
    seen: dict[str, Tensor] = {}
    handles = [
        projection.register_forward_hook(lambda module, inputs, output: seen.update(z=inputs[0])),
        mlp.register_forward_hook(lambda module, inputs, output: seen.update(mlp=output)),
    ]
    with torch.no_grad(), captured(bridge, [z_point(1), mlp_point(1)]) as ours:
        run_batch(bridge, rows(family).batch([0, 3]))
    for handle in handles:
        handle.remove()
    torch.testing.assert_close(ours[z_point(1)].flatten(2), seen["z"].flatten(2))
    torch.testing.assert_close(ours[mlp_point(1)], seen["mlp"])


def test_open_gates_are_the_full_model_and_closed_ones_mean_ablation_by_hand(family: str, bridge: TransformerBridge) -> None:
    data = rows(family)
    means = ActivationMeans.collect(bridge, data)
    full = predict(bridge, data.batch([0, 3]).input_ids)
    gates = torch.ones(1, 3, 6)
    opened = predict(bridge, data.batch([0, 3]).input_ids, edits=gate_edits(means, gates))
    torch.testing.assert_close(opened, full, atol=1e-5, rtol=0)

    head, mlp = UNITS[family]
    gates[0, head.layer, head.index] = gates[0, mlp.layer, 5] = 0
    closed = predict(bridge, data.batch([0, 3]).input_ids, edits=gate_edits(means, gates))

    def put(value: Tensor, where: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
        def hook(activation: Tensor, hook: object) -> Tensor:
            edited = activation.clone()
            where(edited)[...] = value
            return edited

        return hook

    by_hand = [
        (z_point(head.layer), put(means.head[head.layer, head.index], lambda x: x[:, :, head.index])),
        (mlp_point(mlp.layer), put(means.mlp[mlp.layer], lambda x: x)),
    ]
    with torch.no_grad(), bridge.hooks(fwd_hooks=by_hand):
        expected = bridge(data.batch([0, 3]).input_ids)
    torch.testing.assert_close(closed, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(closed, full, atol=1e-2)
    torch.testing.assert_close(predict(bridge, data.batch([0, 3]).input_ids), full)  # nothing is left behind


def test_gates_get_the_gradient_of_finite_differences(family: str, bridge: TransformerBridge) -> None:
    means, batch = ActivationMeans.collect(bridge, rows(family)), rows(family).batch([0, 1])
    gates = torch.full((1, 3, 6), 0.6, requires_grad=True)

    def value(at: Tensor) -> Tensor:
        with hooked(bridge, gate_edits(means, at)):
            return last_token(run_batch(bridge, batch), batch).sum()

    value(gates).backward()
    for place in ((0, 0, 1), (0, 1, 5), (0, 2, 4)):
        step = torch.zeros(1, 3, 6).index_put_(tuple(torch.tensor([i]) for i in place), torch.tensor(1e-2))
        slope = (value(gates.detach() + step) - value(gates.detach() - step)) / 2e-2
        assert gates.grad[place].item() == pytest.approx(slope.item(), abs=2e-3, rel=2e-2)
    bridge.zero_grad()


def test_it_is_pruned_and_ablated(family: str, bridge: TransformerBridge) -> None:
    data = rows(family)
    means = ActivationMeans.collect(bridge, data)
    short = PruneConfig(sparsity=0.5, steps=4, ramp_steps=2, batch_size=3, gate_mean=0.5, max_length=16)
    made = prune(bridge, data, means, short, seeds=[1, 2], loss=lambda output, batch: -last_token(output, batch))
    assert [sub.sparsity for sub in made.subnetworks] == [0.5, 0.5]
    assert made.history["loss"].notna().all()
    made.subnetworks[0].require_model(bridge)

    found = ablate(bridge, data, means, [UNITS[family]], metric=last_token).table()
    batch = data.batch(range(6))
    with torch.no_grad():
        full = last_token(run_batch(bridge, batch), batch)
        with hooked(bridge, means.edits(UNITS[family])):
            gone = last_token(run_batch(bridge, batch), batch)
    assert found["effect"].item() == pytest.approx((full - gone).mean().item(), abs=1e-4)


def test_hooks_of_the_caller_stay_and_missing_points_are_named(bridge: TransformerBridge) -> None:
    calls: list[str] = []
    bridge.add_hook(z_point(0), lambda activation, hook: calls.append("theirs"))
    with hooked(bridge, [Edit(z_point(0), lambda activation, hook: activation)]):
        bridge(torch.full((1, 3), 5))
    bridge(torch.full((1, 3), 5))
    bridge.reset_hooks()
    assert calls == ["theirs", "theirs"]
    with (
        pytest.raises(HookError, match=r"TransformerBridge has no hook point 'blocks\.9\.attn\.hook_z'"),
        hooked(bridge, [Edit(z_point(9), lambda activation, hook: activation)]),
    ):
        pass


def test_means_of_another_model_are_refused(family: str, bridge: TransformerBridge) -> None:
    means = ActivationMeans.collect(bridge, rows(family))
    other = copy.copy(means)
    object.__setattr__(other, "model", "0" * 64)
    with pytest.raises(MeansError, match="another model"):
        prune(bridge, rows(family), other, seeds=[1])


def test_it_is_no_classifier(bridge: TransformerBridge) -> None:
    split = Split("pairs", ("the cat",), ("the dog",), (0,), ("yes", "no"), (0, 1))
    with pytest.raises(LabelOrderError, match=r"TransformerBridge has no label names.*load_model"):
        evaluate(bridge, Task("t", ("yes", "no"), split, {"dev": split}, {}))


def test_a_classifier_that_a_bridge_has_read_as_a_language_model_is_refused(
    tmp_path: Path, words: PreTrainedTokenizerBase
) -> None:
    transformers_model("bert").save_pretrained(tmp_path / "bert")
    wrong = TransformerBridge.boot_transformers(str(tmp_path / "bert"), tokenizer=words, device="cpu")
    with pytest.raises(
        ValueError, match=r"BertForMaskedLM made from the weights of a BertForSequenceClassification.*load_model"
    ):
        ActivationMeans.collect(wrong, rows("bert"))
