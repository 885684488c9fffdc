"""Dropout: in train mode only, where transformers has it, and seen by the hook points."""

from collections.abc import Callable
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor

from hc_lens.models import fused, load_model
from tests.models.tiny import FAMILIES, TINY, batch, reference_logits, transformers_model

POINTS = {"attn.hook_pattern": "attention", "hook_attn_out": "attention_out", "hook_mlp_out": "mlp_out"}


def rates(family: str, rate: float) -> dict[str, float]:
    return dict.fromkeys(TINY[family].dropout, rate)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("context", [nullcontext, fused], ids=["plain", "fused"])
def test_training_drops_and_evaluation_does_not(family: str, context: type) -> None:
    hf_model, tokens = transformers_model(family, **rates(family, 0.2)), batch(family)
    model = load_model(hf_model=hf_model)
    with context(model), torch.no_grad():
        model.train()
        assert not torch.equal(model(tokens), model(tokens))
        torch.manual_seed(1)
        first = model(tokens)
        torch.manual_seed(1)
        assert torch.equal(model(tokens), first)
        model.eval()
        torch.testing.assert_close(model(tokens), reference_logits(hf_model, tokens), atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_rates_are_those_of_the_config(family: str) -> None:
    made = transformers_model(family, **TINY[family].dropout)
    assert load_model(hf_model=made).dropout == TINY[family].rates


@pytest.mark.parametrize("family", FAMILIES)
def test_a_hook_point_sees_the_share_that_was_dropped(family: str) -> None:
    model = load_model(hf_model=transformers_model(family, **rates(family, 0.25))).train()
    zeros: dict[str, float] = {}

    def count(kind: str) -> Callable[..., None]:
        def hook(activation: Tensor, hook: object) -> None:
            real = activation if kind != "attention" else activation[..., -1, :]  # a causal last row attends everywhere
            zeros[kind] = (real == 0).float().mean().item()

        return hook

    ids = torch.randint(3, 37, (64, 16))
    model.run_with_hooks(ids, fwd_hooks=[(f"blocks.1.{point}", count(kind)) for point, kind in POINTS.items()])
    for kind, share in zeros.items():
        assert share == pytest.approx(0.25 if getattr(TINY[family].rates, kind) else 0.0, abs=0.03), kind


def test_in_expectation_training_activations_are_those_of_evaluation() -> None:
    model = load_model(hf_model=transformers_model("bert", hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.3))
    many_times_one_row = batch("bert").input_ids[:1].repeat(500, 1)
    seen: list[Tensor] = []

    def keep(activation: Tensor, hook: object) -> None:
        seen.append(activation.detach())

    for training in (False, True):
        model.train(training)
        model.run_with_hooks(many_times_one_row, fwd_hooks=[("blocks.0.attn.hook_z", keep)])
    evaluated, trained = seen
    assert (trained.std(0) > 0).all()
    assert (trained.mean(0) - evaluated[0]).square().mean().sqrt() < 0.03 * evaluated.std()


def test_reset_hooks_keeps_dropout() -> None:
    model, tokens = load_model(hf_model=transformers_model("bert")), batch("bert")
    model.train()
    model.reset_hooks(including_permanent=True)
    assert not torch.equal(model(tokens), model(tokens))
