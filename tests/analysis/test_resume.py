"""Ablation on real architectures: starting at the first changed block gives what running every block gives."""

import pytest
import torch
from transformer_lens import HookedTransformer, HookedTransformerConfig
from transformers import BertConfig, GPT2Config

from hc_lens.analysis import ablate, single_heads
from hc_lens.data.batches import encode_tokens
from hc_lens.forward import inference, inputs_of
from hc_lens.means import ActivationMeans
from hc_lens.metrics import predict, read_rows_of_each
from hc_lens.models import new_model
from hc_lens.models.resume import BlockInput, can_resume, resumed
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.analysis.planted import WORDS, planted_task, tokenizer
from tests.micro import micro_model

TASK = planted_task()
SIZES = {"vocab_size": len(WORDS)}
BERT = BertConfig(hidden_size=24, num_hidden_layers=3, num_attention_heads=4, intermediate_size=32, **SIZES)
GPT2 = GPT2Config(n_embd=24, n_layer=3, n_head=4, n_positions=32, pad_token_id=0, bos_token_id=1, eos_token_id=2, **SIZES)
GROUPS = [[Head(2, 1)], [Mlp(1)], [Head(0, 0), Head(2, 3)], [Head(1, 2), Mlp(2)], [Mlp(0)]]


@pytest.mark.parametrize("config", [BERT, GPT2], ids=["bert", "gpt2"])
def test_each_set_gives_what_a_pass_of_its_own_gives(config):
    model = new_model(config, labels=("yes", "no"), tokenizer=tokenizer())
    means = ActivationMeans.collect(model, TASK.train)
    edit_sets = [means.edits(group) for group in GROUPS]
    ticks: list[int] = []
    with inference(model):
        assert can_resume(model)
        batches = list(inputs_of(model, TASK.train).batches(7))
        found = read_rows_of_each(model, batches, lambda logits, batch: logits, edit_sets, lambda: ticks.append(1))
    assert len(ticks) == len(batches) == 3
    full = predict(model, TASK.train)
    for logits, edits in zip(found, edit_sets, strict=True):
        torch.testing.assert_close(
            logits, predict(model, TASK.train, edits=edits, sample=Sample(batch_size=7)), atol=1e-7, rtol=0
        )
        assert (logits - full).abs().max() > 1e-6
    assert torch.equal(predict(model, TASK.train), full)  # nothing of it is left in the model


def test_skipped_blocks_do_not_run_and_run_again_afterwards():
    model = new_model(BERT, labels=("yes", "no"), tokenizer=tokenizer())
    ran: list[int] = []
    for layer, block in enumerate(model.blocks):
        block.attn.register_forward_hook(lambda module, args, output, layer=layer: ran.append(layer))
    ids = torch.tensor([[1, 7, 2, 3, 2]])
    _, cache = model.run_with_cache(ids, names_filter="blocks.2.hook_resid_pre")
    ran.clear()
    start = BlockInput(cache["blocks.2.hook_resid_pre"])
    with resumed(model, 2, start):
        model(ids)
    assert ran == [2]
    with pytest.raises(ZeroDivisionError), resumed(model, 2, start):
        _ = 1 / 0
    ran.clear()
    model(ids)
    assert ran == [0, 1, 2]


def test_models_that_are_no_stack_of_blocks_run_whole():
    assert not can_resume(micro_model())
    assert not can_resume(torch.nn.Linear(1, 1))


def test_a_next_token_contrast_on_a_plain_hooked_transformer():
    """A small GPT-2-like model: the metric is log p(token 3) - log p(token 4) after the last token."""
    config = HookedTransformerConfig(
        n_layers=2, d_model=16, n_ctx=8, d_head=4, n_heads=4, d_vocab=11, act_fn="gelu_new", seed=0, init_weights=True
    )
    model = HookedTransformer(config)
    tokens = torch.randint(0, 11, (20, 6), generator=torch.Generator().manual_seed(0))
    means = ActivationMeans.collect(model, tokens)

    def contrast(logits, batch):
        return logits[:, -1, 3] - logits[:, -1, 4]

    result = ablate(
        model, encode_tokens(tokens), means, [*single_heads(means), [Head(0, 1), Head(1, 2)]], metric=contrast, controls=2
    )
    with torch.no_grad():
        full = contrast(model(tokens), None)
        ablated = contrast(model.run_with_hooks(tokens, fwd_hooks=[tuple(edit) for edit in means.edits([Head(1, 2)])]), None)
    found = result.table().set_index("group").loc["L1.H2"]
    assert found["effect"] == pytest.approx(float((full - ablated).mean()), abs=1e-6)
    assert found["low"] <= found["effect"] <= found["high"]
    assert torch.allclose(torch.from_numpy(result.full["metric"]), full, atol=1e-6)
    assert result.super_additivity()["controls"].tolist() == [2]
