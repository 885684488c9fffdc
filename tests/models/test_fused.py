"""The fused forward computes what TransformerLens computes: outputs, gradients, hook points."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from transformer_lens import HookedEncoder, HookedTransformer, HookedTransformerConfig

from hc_lens.models import Classifier, fused, load_model
from hc_lens.models.classifier import deprecation_expected
from tests.models.tiny import FAMILIES, TINY, TinyBatch, batch, transformers_model

CLOSE = {"atol": 1e-5, "rtol": 1e-5}


@pytest.fixture(params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param)).requires_grad_(False)


@pytest.fixture
def tokens(model: Classifier) -> TinyBatch:
    return batch(model.family)


def gated(model: Classifier, tokens: TinyBatch) -> tuple[Tensor, Tensor]:
    """Logits and the gradient of their mixture with respect to one gate per head and MLP."""
    n_heads = model.cfg.n_heads
    gates = torch.linspace(0.2, 0.9, 3 * (n_heads + 1)).view(3, -1).requires_grad_()

    def scale(gate: Tensor) -> Callable[..., Tensor]:
        def hook(activation: Tensor, hook: object) -> Tensor:
            return activation * gate + 0.1 * (1 - gate)

        return hook

    hooks = [(f"blocks.{layer}.attn.hook_z", scale(gates[layer, :n_heads, None])) for layer in range(3)]
    hooks += [(f"blocks.{layer}.hook_mlp_out", scale(gates[layer, n_heads])) for layer in range(3)]
    logits = model.run_with_hooks(tokens, fwd_hooks=hooks)
    (logits * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
    assert gates.grad is not None
    return logits.detach(), gates.grad


def test_logits_and_gate_gradients_are_equal(model: Classifier, tokens: TinyBatch) -> None:
    logits, gradient = gated(model, tokens)
    with fused(model):
        fused_logits, fused_gradient = gated(model, tokens)
    torch.testing.assert_close(fused_logits, logits, **CLOSE)
    torch.testing.assert_close(fused_gradient, gradient, atol=1e-5, rtol=1e-4)
    assert gradient.abs().min() > 1e-4


def test_every_computed_hook_point_sees_the_same(model: Classifier, tokens: TinyBatch) -> None:
    points = ["hook_resid_pre", "attn.hook_q", "attn.hook_k", "attn.hook_v", "attn.hook_z", "hook_attn_out"]
    points += ["mlp.hook_pre", "mlp.hook_post", "hook_mlp_out", "hook_resid_post"]
    points += [] if model.family == "gpt_neox" else ["hook_resid_mid"]  # attention and MLP read the same residual stream
    points += [] if TINY[model.family].is_decoder else ["hook_normalized_resid_post"]
    points += ["attn.hook_rot_q", "attn.hook_rot_k"] if model.cfg.positional_embedding_type == "rotary" else []
    points += ["mlp.hook_pre_linear"] if model.cfg.gated_mlp else []

    def seen() -> dict[str, Tensor]:
        kept: dict[str, Tensor] = {}

        def keep(activation: Tensor, hook: object) -> None:
            kept[hook.name] = activation  # pyright: ignore[reportAttributeAccessIssue]

        names = [f"blocks.{layer}.{point}" for layer in range(3) for point in points]
        model.run_with_hooks(tokens, fwd_hooks=[(name, keep) for name in names])
        assert set(kept) == set(names)
        return kept

    expected = seen()
    with fused(model):
        found = seen()
    for name, activation in expected.items():
        torch.testing.assert_close(found[name], activation, **CLOSE)


@pytest.mark.parametrize("point", ["attn.hook_pattern", "attn.hook_attn_scores", "ln1.hook_normalized", "ln2.hook_scale"])
def test_a_point_it_does_not_compute_still_fires_and_can_be_edited(model: Classifier, tokens: TinyBatch, point: str) -> None:
    def halve(activation: Tensor, hook: object) -> Tensor:
        return activation / 2

    hooks = [(f"blocks.1.{point}", halve)]
    expected = model.run_with_hooks(tokens, fwd_hooks=hooks)
    assert not torch.allclose(expected, model(tokens), atol=1e-3)
    with fused(model):
        torch.testing.assert_close(model.run_with_hooks(tokens, fwd_hooks=hooks), expected, **CLOSE)
        _, cache = model.run_with_cache(tokens)
    assert cache[f"blocks.0.{point}"] is not None


def test_padding_does_not_leak(model: Classifier, tokens: TinyBatch) -> None:
    scribbled = torch.where(tokens.attention_mask == 1, tokens.input_ids, 11)
    with fused(model):
        torch.testing.assert_close(model(tokens), model(tokens._replace(input_ids=scribbled)), **CLOSE)


def test_weights_are_constants_inside(model: Classifier, tokens: TinyBatch) -> None:
    model.requires_grad_(True)
    with fused(model):
        model(tokens).sum().backward()
    with_gradient = {name.split(".")[-1] for name, p in model.blocks.named_parameters() if p.grad is not None}
    assert with_gradient == set()


def test_trained_weights_get_the_same_gradients(model: Classifier, tokens: TinyBatch) -> None:
    def gradients() -> dict[str, Tensor]:
        model.requires_grad_(True).zero_grad()
        (model(tokens) * torch.tensor([1.0, -2.0, 0.5])).sum().backward()
        return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    assert set(expected) == dict(model.named_parameters()).keys()
    with fused(model, train_weights=True):
        found = gradients()
        torch.optim.SGD(model.parameters(), lr=0.01).step()
        stepped = model(tokens)
    assert set(found) == set(expected)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, atol=2e-5, rtol=1e-4)
    torch.testing.assert_close(model(tokens), stepped, **CLOSE)


def test_bfloat16_is_close_and_takes_float32_edits(model: Classifier, tokens: TinyBatch) -> None:
    logits, gradient = gated(model, tokens)
    with fused(model, torch.bfloat16):
        low_logits, low_gradient = gated(model, tokens)
    assert low_logits.dtype == torch.float32
    assert (low_logits - logits).abs().max() < 0.05 * logits.std()
    assert torch.nn.functional.cosine_similarity(low_gradient.flatten(), gradient.flatten(), dim=0) > 0.99


def test_bfloat16_hook_points_have_the_documented_types(model: Classifier, tokens: TinyBatch) -> None:
    seen: dict[str, torch.dtype] = {}

    def keep(activation: Tensor, hook: object) -> None:
        seen[hook.name.removeprefix("blocks.1.")] = activation.dtype  # pyright: ignore[reportAttributeAccessIssue]

    low = ["attn.hook_z", "hook_mlp_out", "hook_attn_out", "mlp.hook_post"]
    high = ["hook_resid_pre", "hook_resid_post"]
    with fused(model, torch.bfloat16):
        model.run_with_hooks(tokens, fwd_hooks=[(f"blocks.1.{point}", keep) for point in low + high])
    assert seen == dict.fromkeys(low, torch.bfloat16) | dict.fromkeys(high, torch.float32)


def test_double_precision_agrees_to_double_precision(model: Classifier, tokens: TinyBatch) -> None:
    model = copy.deepcopy(model).to(torch.float64)
    logits, gradient = gated(model, tokens)
    with fused(model):
        fused_logits, fused_gradient = gated(model, tokens)
    assert fused_logits.dtype == torch.float64
    torch.testing.assert_close(fused_logits, logits, atol=1e-9, rtol=0)
    torch.testing.assert_close(fused_gradient, gradient, atol=1e-6, rtol=1e-6)  # the gates themselves are float32


def test_everything_is_restored_also_on_error(model: Classifier) -> None:
    before = {name: module.__dict__.get("forward") for name, module in model.named_modules()}
    with pytest.raises(ValueError, match="17 tokens"), fused(model), fused(model, torch.bfloat16):
        model(torch.full((1, 17), 5))
    assert {name: module.__dict__.get("forward") for name, module in model.named_modules()} == before


def test_nested_contexts_restore_the_outer_one(model: Classifier, tokens: TinyBatch) -> None:
    expected = model(tokens)
    with fused(model):
        with fused(model, torch.bfloat16):
            assert not torch.equal(model(tokens), expected)
        torch.testing.assert_close(model(tokens), expected, **CLOSE)


class TestPlainTransformerLens:
    def config(self, **changes: object) -> HookedTransformerConfig:
        made = {"d_model": 20, "n_heads": 4, "d_head": 5, "n_layers": 2, "n_ctx": 12, "d_vocab": 17, "d_mlp": 24, "seed": 1}
        return HookedTransformerConfig(**{**made, "act_fn": "gelu_new", "device": "cpu", **changes})

    @pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
    @pytest.mark.parametrize("changes", [{}, {"positional_embedding_type": "rotary", "d_head": 6}], ids=["learned", "rotary"])
    def test_a_language_model_with_padding(self, left: bool, changes: dict[str, object]) -> None:
        with deprecation_expected():
            model = HookedTransformer(self.config(**changes))
        ids = torch.randint(0, 17, (3, 9))
        mask = (torch.arange(9) < torch.tensor([9, 4, 1])[:, None]).long()
        mask = mask.flip(1) if left else mask
        expected = model(ids, attention_mask=mask)
        with fused(model):
            found = model(ids, attention_mask=mask)
            unmasked = model(ids)
        torch.testing.assert_close(found[mask.bool()], expected[mask.bool()], **CLOSE)
        torch.testing.assert_close(unmasked, model(ids), **CLOSE)

    def test_folded_layer_norms(self) -> None:
        with deprecation_expected():
            model = HookedTransformer(self.config(normalization_type="LNPre"))
        ids = torch.randint(0, 17, (3, 9))
        expected = model(ids)
        with fused(model):
            torch.testing.assert_close(model(ids), expected, **CLOSE)

    @pytest.mark.parametrize(
        "changes",
        [
            {"positional_embedding_type": "rotary", "d_head": 6},
            {"n_key_value_heads": 2},
            {"gated_mlp": True, "act_fn": "silu"},
            {"use_attn_result": True},
            {"parallel_attn_mlp": True},
            {"normalization_type": "RMS", "final_rms": True},
            {"normalization_type": "RMSPre"},
            {"use_local_attn": True, "window_size": 2, "attn_types": ["global", "local"]},
            {"attn_only": True},
            {"act_fn": "solu_ln"},
        ],
        ids=str,
    )
    def test_other_blocks_agree(self, changes: dict[str, object]) -> None:
        with deprecation_expected():
            model = HookedTransformer(self.config(**changes))
        ids = torch.randint(0, 17, (3, 9))
        expected = model(ids)
        with fused(model):
            torch.testing.assert_close(model(ids), expected, **CLOSE)

    def test_an_encoder(self) -> None:
        with deprecation_expected():
            model = HookedEncoder(self.config(attention_dir="bidirectional", act_fn="gelu"))
        torch.manual_seed(0)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(0.3 * torch.randn_like(parameter))
        ids = torch.randint(0, 17, (3, 9))
        mask = (torch.arange(9) < torch.tensor([9, 4, 1])[:, None]).long()
        expected = model(ids, one_zero_attention_mask=mask)
        with fused(model):
            torch.testing.assert_close(model(ids, one_zero_attention_mask=mask), expected, atol=1e-4, rtol=1e-5)
