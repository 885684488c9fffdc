"""The in-context transformer: equal to one written out in plain torch, without biases, and trained in every weight."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm
from transformer_lens import HookedTransformer

from hc_lens.models.fused import fused
from hc_lens.modular.incontext.config import ModelConfig
from hc_lens.modular.incontext.model import new_transformer
from hc_lens.modular.incontext.sequences import answer_logits, answer_loss, as_tokens, draw_examples
from hc_lens.modular.incontext.tasks import random_tasks, split_examples

P, SHOTS = 5, 4


@pytest.fixture
def model() -> HookedTransformer:
    return new_transformer(ModelConfig(depth=2, width=16, heads=2, init_std=0.3), P, SHOTS, seed=0)


@pytest.fixture
def tokens() -> Tensor:
    examples = draw_examples(split_examples(P, 0.8, 0).train, 6, SHOTS, torch.Generator().manual_seed(0))
    return as_tokens(random_tasks(P, 6, 0).seen, examples, P)


def _rotated(x: Tensor) -> Tensor:
    """Rotary positions, base 10000, of pairs (i, i + half)."""
    half = x.shape[-1] // 2
    angle = torch.arange(x.shape[1])[:, None] * 10_000.0 ** (-torch.arange(half) / half)
    cos, sin = angle.cos()[:, None], angle.sin()[:, None]
    a, b = x[..., :half], x[..., half:]
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def _plain(w: dict[str, Tensor], tokens: Tensor) -> Tensor:
    """The same transformer, step by step."""
    resid = w["embed.W_E"][tokens]
    n = tokens.shape[1]
    for layer in range(2):
        at = f"blocks.{layer}"
        x = layer_norm(resid, (16,), w[f"{at}.ln1.w"], w[f"{at}.ln1.b"])
        q, k, v = (torch.einsum("bpm,hmd->bphd", x, w[f"{at}.attn.W_{name}"]) for name in "QKV")
        scores = torch.einsum("bqhd,bkhd->bhqk", _rotated(q), _rotated(k)) / math.sqrt(8)
        weights = scores.masked_fill(torch.ones(n, n).triu(1).bool(), -math.inf).softmax(-1)
        resid = resid + torch.einsum("bhqk,bkhd,hdm->bqm", weights, v, w[f"{at}.attn.W_O"])
        x = layer_norm(resid, (16,), w[f"{at}.ln2.w"], w[f"{at}.ln2.b"])
        resid = resid + (x @ w[f"{at}.mlp.W_in"]).relu() @ w[f"{at}.mlp.W_out"]
    return layer_norm(resid, (16,), w["ln_final.w"], w["ln_final.b"]) @ w["embed.W_E"].T


def test_it_is_the_transformer_written_out(model: HookedTransformer, tokens: Tensor) -> None:
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "ln" in name:  # away from ones and zeros
                weight += 0.1 * torch.randn(weight.shape, generator=torch.Generator().manual_seed(len(name)))
    expected = _plain(dict(model.named_parameters()), tokens)
    torch.testing.assert_close(model(tokens), expected, atol=1e-5, rtol=1e-5)
    with fused(model, train_weights=True):
        torch.testing.assert_close(model(tokens), expected, atol=1e-5, rtol=1e-5)


def test_only_layer_norms_have_biases_and_the_unembedding_is_the_embedding(model: HookedTransformer, tokens: Tensor) -> None:
    names = {name.rpartition(".")[2] for name, _ in model.named_parameters()}
    assert names == {"W_E", "W_Q", "W_K", "W_V", "W_O", "W_in", "W_out", "w", "b"}
    assert torch.equal(model.W_U, model.W_E.T)
    assert all(not buffer.any() for name, buffer in model.named_buffers() if name.rpartition(".")[2].startswith("b_"))
    n = sum(weight.numel() for weight in model.parameters())
    assert n == 5 * 16 + 2 * (12 * 16 * 16 + 4 * 16) + 2 * 16


def test_every_weight_gets_the_same_gradient_fused_or_not(model: HookedTransformer, tokens: Tensor) -> None:
    answer_loss(answer_logits(model, tokens), tokens).backward()
    plain = {name: weight.grad for name, weight in model.named_parameters()}
    model.zero_grad()
    with fused(model, train_weights=True):
        answer_loss(answer_logits(model, tokens), tokens).backward()
    for name, weight in model.named_parameters():
        assert weight.grad is not None, name
        assert weight.grad.abs().max() > 0, name
        torch.testing.assert_close(weight.grad, plain[name], atol=1e-5, rtol=1e-4)


def test_an_answer_depends_on_what_comes_before_it_and_not_on_itself(model: HookedTransformer, tokens: Tensor) -> None:
    logits = answer_logits(model, tokens)
    changed = tokens.clone()
    changed[:, 5] = (changed[:, 5] + 1) % P  # the second z
    moved = (answer_logits(model, changed) - logits).abs().amax((0, 2)) > 1e-6
    assert moved.tolist() == [False, False, True, True]


def test_a_seed_decides_the_weights_and_the_spread_is_as_asked() -> None:
    config = ModelConfig(depth=2, width=64, heads=4, init_std=0.05)
    one, same, other = (new_transformer(config, P, SHOTS, seed) for seed in (1, 1, 2))
    assert torch.equal(one.blocks[1].mlp.W_in, same.blocks[1].mlp.W_in)
    assert not torch.equal(one.blocks[1].mlp.W_in, other.blocks[1].mlp.W_in)
    assert one.blocks[1].mlp.W_in.std().item() == pytest.approx(0.05, rel=0.05)
    assert one.blocks[1].mlp.W_out.std().item() == pytest.approx(0.025, rel=0.05)


@pytest.mark.parametrize(("field", "value"), [("depth", 0), ("width", 20), ("heads", 0), ("init_std", 0.0)])
def test_a_shape_that_cannot_be_is_refused_by_name(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        ModelConfig(**{"depth": 2, "width": 16, "heads": 4, "init_std": 0.1, field: value})
