"""An encoder classifier's last block, computed for the first token only, gives what it gives for all."""

from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor

from hc_lens.forward import inference
from hc_lens.gates import gate_edits
from hc_lens.hooks import Edit, captured, hooked, mlp_point, positionwise, z_point
from hc_lens.means import Ablation, ActivationMeans
from hc_lens.models import Classifier, DecoderClassifier, fused, load_model
from hc_lens.units import Head, Mlp
from tests.models.tiny import FAMILIES, TINY, TinyBatch, batch, transformers_model

CLOSE = {"atol": 1e-5, "rtol": 1e-5}
ENCODERS = [name for name in FAMILIES if not TINY[name].is_decoder]
WIDTH = 13  # of the batch


def widths(model: Classifier, tokens: TinyBatch) -> tuple[int, int]:
    """How many positions the MLPs of the last two blocks work on, seen without hooks."""
    seen: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        layer_norm = torch.nn.functional.layer_norm

        def counting(x: Tensor, *rest: object) -> Tensor:
            seen.append(x.shape[1])
            return layer_norm(x, *rest)  # pyright: ignore[reportArgumentType]

        patch.setattr(torch.nn.functional, "layer_norm", counting)
        model(tokens)
    return seen[-3], seen[-1]


@pytest.fixture(params=ENCODERS)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param)).requires_grad_(False)


@pytest.fixture
def tokens(model: Classifier) -> TinyBatch:
    return batch(model.family)


def means_of(model: Classifier, kind: Ablation = "mean") -> ActivationMeans:
    return ActivationMeans.collect(model, torch.randint(3, 30, (6, WIDTH)), kind=kind)


def test_logits_and_gate_gradients_are_equal(model: Classifier, tokens: TinyBatch) -> None:
    means = means_of(model)

    def gated() -> tuple[Tensor, Tensor]:
        gates = torch.linspace(0.2, 0.9, 2 * means.mlp.shape[0] * (means.n_heads + 1)).view(2, 3, -1).requires_grad_()
        with hooked(model, gate_edits(means, gates)):
            logits = model(tokens)
            assert widths(model, tokens)[1] in (1, WIDTH)
        (logits * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        assert gates.grad is not None
        return logits.detach(), gates.grad

    with fused(model):
        logits, gradient = gated()
    with fused(model, narrow=True):
        narrow_logits, narrow_gradient = gated()
    torch.testing.assert_close(narrow_logits, logits, **CLOSE)
    torch.testing.assert_close(narrow_gradient, gradient, atol=1e-5, rtol=1e-4)
    assert gradient.abs().min() > 1e-5


@pytest.mark.parametrize("kind", ["mean", "zero", "position", "resample"])
def test_every_kind_of_ablation_is_equal(model: Classifier, tokens: TinyBatch, kind: Ablation) -> None:
    """References that depend on the position are shown every position."""
    means = means_of(model, kind)
    units = [Head(0, 1), Head(2, 0), Head(2, 3), Mlp(1), Mlp(2)]
    logits: list[Tensor] = []
    for narrow in (False, True):
        with inference(model, narrow=narrow), hooked(model, means.edits(units)):
            logits.append(model(tokens))
            assert widths(model, tokens) == (WIDTH, 1 if narrow and kind in ("mean", "zero") else WIDTH)
    torch.testing.assert_close(*logits, **CLOSE)


def test_whoever_listens_sees_every_position(model: Classifier, tokens: TinyBatch) -> None:
    points = [
        z_point(2),
        mlp_point(2),
        "blocks.2.hook_normalized_resid_post",
        "blocks.2.hook_resid_mid",
        "blocks.2.attn.hook_q",
    ]
    points += ["blocks.2.attn.hook_k", "blocks.2.hook_resid_pre", "blocks.2.ln2.hook_normalized", "blocks.2.attn.hook_pattern"]
    for point in points:
        with inference(model), captured(model, [point]) as expected:
            logits = model(tokens)
        with inference(model, narrow=True), captured(model, [point]) as found:
            torch.testing.assert_close(model(tokens), logits, **CLOSE)
        torch.testing.assert_close(found[point], expected[point], **CLOSE)


def test_an_edit_of_ones_own_sees_every_position_unless_it_is_declared(model: Classifier, tokens: TinyBatch) -> None:
    def halve(activation: Tensor, hook: object) -> Tensor:
        seen.append(activation.shape[1])
        return activation / 2

    def declared(activation: Tensor, hook: object) -> Tensor:
        return halve(activation, hook)

    functions: list[tuple[Callable[..., Tensor], int]] = [(halve, WIDTH), (positionwise(declared), 1)]
    for (function, width), point in product(functions, (z_point(2), mlp_point(2))):
        seen: list[int] = []
        with hooked(model, [Edit(point, function)]):
            expected = model(tokens)
            with inference(model, narrow=True):
                torch.testing.assert_close(model(tokens), expected, **CLOSE)
        assert seen == [WIDTH, width]


def test_dropout_draws_what_it_draws_at_full_width() -> None:
    dropping = load_model(hf_model=transformers_model("bert", hidden_dropout_prob=0.3)).requires_grad_(False).train()
    drawn: list[Tensor] = []
    for narrow in (False, True):
        torch.manual_seed(1)
        with fused(dropping, narrow=narrow):
            drawn.append(dropping(batch("bert")))
    assert torch.equal(*drawn)


def test_only_an_encoder_classifiers_last_block_is_narrow(model: Classifier, tokens: TinyBatch) -> None:
    with inference(model):
        assert widths(model, tokens) == (WIDTH, WIDTH)
    with inference(model, narrow=True):
        assert widths(model, tokens) == (WIDTH, 1)
        low = model(tokens)
    torch.testing.assert_close(low, model(tokens), **CLOSE)
    with inference(model, "bf16", narrow=True):
        narrow_bf16 = model(tokens)
    with inference(model, "bf16"):
        torch.testing.assert_close(narrow_bf16, model(tokens), atol=2e-2, rtol=2e-2)


def test_decoders_are_computed_whole() -> None:
    decoder = load_model(hf_model=transformers_model("gpt2"))
    assert isinstance(decoder, DecoderClassifier)
    with inference(decoder):
        expected = decoder(batch("gpt2"))
    with inference(decoder, narrow=True):
        assert torch.equal(decoder(batch("gpt2")), expected)
