"""Every family takes part in everything: pairs as its tokenizer writes them, means, gates, pruning, export."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerBase

from hc_lens.data.batches import Encoded, encode
from hc_lens.data.task import Split
from hc_lens.data.tokenise import PAIR_SEPARATOR
from hc_lens.forward import run_batch
from hc_lens.gates import gate_edits
from hc_lens.hooks import captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans
from hc_lens.metrics import predict
from hc_lens.models import Classifier, load_model, new_model
from hc_lens.pruning import PruneConfig, prune
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.data import tiny_tokenizers
from tests.models.tiny import FAMILIES, TINY, VOCAB, config, transformers_model

LENGTHS = (13, 4, 8, 6, 3, 9, 5, 7)
DECODERS = [name for name in FAMILIES if TINY[name].is_decoder]


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param))


@pytest.fixture(scope="module")
def rows(model: Classifier) -> Encoded:
    torch.manual_seed(3)
    n, tiny = sum(LENGTHS), TINY[model.family]
    types = torch.randint(0, 2, (n,), dtype=torch.int8) if tiny.has_types else None
    return Encoded(torch.randint(3, VOCAB, (n,), dtype=torch.int32), types, torch.tensor(LENGTHS), None, tiny.pad, model.family)


@pytest.fixture(scope="module")
def means(model: Classifier, rows: Encoded) -> ActivationMeans:
    return ActivationMeans.collect(model, rows, sample=Sample(batch_size=3))


def test_means_are_those_of_the_activations_at_real_positions(model: Classifier, rows: Encoded, means: ActivationMeans) -> None:
    batch = rows.batch(range(8))
    with torch.no_grad(), captured(model, [z_point(1), mlp_point(2)]) as seen:
        model(batch)
    real = batch.attention_mask.bool()
    torch.testing.assert_close(means.head[1], seen[z_point(1)][real].mean(0), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(means.mlp[2], seen[mlp_point(2)][real].mean(0), atol=1e-5, rtol=1e-5)
    assert means.head.shape == (3, TINY[model.family].n_heads, model.cfg.d_head)  # every query head has its own


def test_a_head_is_the_slice_of_what_its_output_projection_reads(
    model: Classifier, rows: Encoded, means: ActivationMeans
) -> None:
    """Ablating head h of a block in TransformerLens is replacing components h d_head..(h + 1) d_head in transformers."""
    theirs, batch = transformers_model(model.family), rows.batch(range(8))
    head, width = Head(1, TINY[model.family].n_heads - 1), model.cfg.d_head

    def replaced(module: torch.nn.Module, inputs: tuple[Tensor]) -> tuple[Tensor]:
        x = inputs[0].clone()
        x[..., head.index * width : (head.index + 1) * width] = means.head[head.layer, head.index]
        return (x,)

    projection = {
        "distilbert": "distilbert.transformer.layer.1.attention.out_lin",
        "gpt2": "transformer.h.1.attn.c_proj",
        "gpt_neox": "gpt_neox.layers.1.attention.dense",
        "llama": "model.layers.1.self_attn.o_proj",
        "qwen2": "model.layers.1.self_attn.o_proj",
    }.get(model.family, f"{model.family}.encoder.layer.1.attention.output.dense")
    theirs.get_submodule(projection).register_forward_pre_hook(replaced)
    types = {} if batch.token_type_ids is None else {"token_type_ids": batch.token_type_ids}
    with torch.no_grad():
        expected = theirs(batch.input_ids, attention_mask=batch.attention_mask, **types).logits
        with hooked(model, means.edits([head])):
            found = model(batch)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
    assert not torch.allclose(found, predict(model, rows), atol=1e-3)


def test_open_gates_are_the_full_model_and_closed_ones_the_ablation(
    model: Classifier, rows: Encoded, means: ActivationMeans
) -> None:
    n_heads = TINY[model.family].n_heads
    gates = torch.ones(1, 3, n_heads + 1)
    torch.testing.assert_close(predict(model, rows, edits=gate_edits(means, gates)), predict(model, rows), atol=1e-5, rtol=0)
    gates[0, 2, 0] = gates[0, 0, n_heads] = 0
    closed = predict(model, rows, edits=gate_edits(means, gates))
    torch.testing.assert_close(closed, predict(model, rows, edits=means.edits([Head(2, 0), Mlp(0)])), atol=1e-5, rtol=0)


def test_gates_get_the_gradient_of_finite_differences(model: Classifier, rows: Encoded, means: ActivationMeans) -> None:
    batch = rows.batch([0, 3])
    gates = torch.full((1, 3, TINY[model.family].n_heads + 1), 0.6, requires_grad=True)

    def value(at: Tensor) -> Tensor:
        with hooked(model, gate_edits(means, at)):
            return (run_batch(model, batch) * torch.tensor([1.0, -2.0, 0.5])).sum()

    value(gates).backward()
    assert gates.grad is not None
    for place in ((0, 0, 1), (0, 1, TINY[model.family].n_heads), (0, 2, 3)):
        step = torch.zeros_like(gates)
        step[place] = 1e-2
        with torch.no_grad():
            slope = (value(gates + step) - value(gates - step)) / 2e-2
        assert gates.grad[place].item() == pytest.approx(slope.item(), abs=5e-3, rel=2e-2)


def test_it_is_pruned(model: Classifier, rows: Encoded, means: ActivationMeans) -> None:
    short = PruneConfig(sparsity=0.5, steps=4, ramp_steps=2, batch_size=4, gate_mean=0.5, max_length=16)
    made = prune(model, rows, means, short, seeds=[1, 2])
    assert made.history["loss"].notna().all()
    n = 3 * (TINY[model.family].n_heads + 1)
    assert [sub.sparsity for sub in made.subnetworks] == pytest.approx([round(0.5 * n) / n] * 2)
    assert not model.training


def test_training_moves_every_weight_that_transformers_has_and_no_other(model: Classifier, tmp_path: Path) -> None:
    """Biases that transformers lacks stay zero: a trained model is exported with equal logits."""
    trained = load_model(hf_model=transformers_model(model.family)).train()
    ids = torch.randint(3, VOCAB, (8, 12))
    optimiser = torch.optim.SGD(trained.parameters(), lr=0.05)
    trained(ids, token_type_ids=(ids % 2) if TINY[model.family].has_types else None).square().sum().backward()
    assert [name for name, parameter in trained.named_parameters() if parameter.grad is None] == []
    optimiser.step()
    trained.eval()
    assert not torch.allclose(trained(ids), model(ids), atol=1e-3)
    directory = trained.save_pretrained(tmp_path / "trained")
    theirs = AutoModelForSequenceClassification.from_pretrained(directory, attn_implementation="eager").eval()
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, trained(ids), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", DECODERS)
@pytest.mark.parametrize("words", [tiny_tokenizers.gpt2, tiny_tokenizers.with_start_token], ids=["gpt2", "start token"])
def test_decoders_read_a_pair_joined_by_the_separator_up_to_its_last_token(family: str, words: object) -> None:
    """Whatever the tokenizer's padding side and however long the other rows are, the row's own last token is what counts."""
    tokenizer: PreTrainedTokenizerBase = words()  # pyright: ignore[reportCallIssue]
    tokenizer.padding_side = "left"
    vocabulary = max(tokenizer.get_vocab().values()) + 1
    longer = {"n_positions" if family == "gpt2" else "max_position_embeddings": 64}
    model = new_model(config(family, vocab_size=vocabulary, pad_token_id=None, **longer), tokenizer=tokenizer)
    first, second = ("a judge saw the lawyer.", "he slept."), ("a lawyer slept near the judge.", "no.")
    split = Split("pairs", first, second, (0, 1), ("yes", "no"), (0, 1))
    logits = predict(model, split)

    assert model.tokenizer is not None
    start = [tokenizer.bos_token_id] if words is tiny_tokenizers.with_start_token else []
    for row in range(2):
        ids = [*start, *model.tokenizer(first[row] + PAIR_SEPARATOR + second[row], add_special_tokens=False)["input_ids"]]
        alone = model(torch.tensor([ids]))
        torch.testing.assert_close(alone, logits[row : row + 1], atol=1e-5, rtol=0)
        _, cache = model.run_with_cache(torch.tensor([ids]))
        state = cache["ln_final.hook_normalized"][0, -1] * model.ln_final.w
        state = state + model.ln_final.b if hasattr(model.ln_final, "b") else state
        torch.testing.assert_close(state @ model.classifier.weight.T, logits[row], atol=1e-5, rtol=0)
    assert encode(split, model.tokenizer, 64).batch([0, 1]).attention_mask[1, -1] == 0  # padded on the right
    with pytest.raises(ValueError, match="left padding"):
        model(torch.tensor([[model.pad_id, 5, 6], [5, 6, 7]]))
