"""Methods of TransformerLens that need an unembedding are refused before anything has changed."""

import pytest
import torch

from hc_lens.models import Classifier, fingerprint, load_model
from tests.models.tiny import FAMILIES, batch, transformers_model


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> Classifier:
    return load_model(hf_model=transformers_model(request.param))


@pytest.mark.parametrize("name", ["process_weights_", "fold_layer_norm", "center_unembed", "generate", "loss_fn"])
def test_a_method_that_needs_an_unembedding_changes_nothing(model: Classifier, name: str) -> None:
    before, logits = fingerprint(model), model(batch(model.family))
    with pytest.raises(NotImplementedError, match=rf"Classifier has no {name}\(\): .*; nothing was changed"):
        getattr(model, name)()
    assert fingerprint(model) == before
    assert torch.equal(model(batch(model.family)), logits)


@pytest.mark.parametrize("name", ["W_U", "b_U"])
def test_there_is_no_unembedding(model: Classifier, name: str) -> None:
    with pytest.raises(NotImplementedError, match=f"has no {name}: it belongs to an unembedding"):
        getattr(model, name)


def test_logit_attribution_is_refused_with_the_cause(model: Classifier) -> None:
    _, cache = model.run_with_cache(batch(model.family))
    with pytest.raises(NotImplementedError, match="tokens_to_residual_directions"):
        cache.logit_attrs(cache["blocks.0.hook_mlp_out"][None], tokens=3)


@pytest.mark.parametrize("given", [{"return_type": "logits"}, {"stop_at_layer": 1}, {"one_zero_attention_mask": None}])
def test_arguments_of_other_forward_functions_are_named(model: Classifier, given: dict[str, object]) -> None:
    with pytest.raises(TypeError, match=f"a classifier's forward has no {next(iter(given))}=: it takes attention_mask="):
        model(batch(model.family), **given)
    with pytest.raises(TypeError, match="forward has no"):
        model.run_with_cache(batch(model.family), **given)
    assert not any(point.fwd_hooks for point in model.hook_dict.values())
