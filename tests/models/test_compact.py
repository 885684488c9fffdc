"""A compact model, whose ablated heads and MLPs are gone, answers what the whole model answers under the ablation."""

from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hc_lens.forward import inference
from hc_lens.hooks import captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.models import Classifier, fingerprint, load_model
from hc_lens.models.compact import compacting_pays
from hc_lens.subnetwork import Subnetwork, SubnetworkError
from hc_lens.units import Head, Mlp
from tests.micro import micro_model
from tests.models.tiny import FAMILIES, LENGTHS, TINY, batch, transformers_model

CLOSE = {"atol": 1e-5, "rtol": 0}


@cache
def model(family: str) -> Classifier:
    return load_model(hf_model=transformers_model(family)).requires_grad_(False)


@cache
def means(family: str, kind: str = "mean") -> ActivationMeans:
    ids = torch.randint(3, 30, (6, 13), generator=torch.Generator().manual_seed(1))
    return ActivationMeans.collect(model(family), ids, kind=kind)


def random_mask(family: str) -> Tensor:
    return torch.rand(3, TINY[family].n_heads + 1, generator=torch.Generator().manual_seed(5)) > 0.5


def gated(sub: Subnetwork, family: str) -> Tensor:
    with hooked(model(family), sub.edits()):
        return model(family)(batch(family))


@pytest.mark.parametrize("kind", ["mean", "zero"])
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_the_gated_models_on_padded_rows_of_mixed_length(family: str, kind: str) -> None:
    sub = Subnetwork(random_mask(family), means(family, kind))
    expected = gated(sub, family)
    assert not torch.allclose(expected, model(family)(batch(family)), atol=0.05), "the ablation does something"
    compact = sub.compact(model(family))
    torch.testing.assert_close(compact(batch(family)), expected, **CLOSE)
    with inference(compact, narrow=True):
        torch.testing.assert_close(compact(batch(family)), expected, **CLOSE)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("cut", ["heads", "MLP", "both", "nothing", "everything"])
def test_layers_without_heads_without_mlp_and_without_either(family: str, cut: str) -> None:
    n_heads = TINY[family].n_heads
    mask = torch.ones(3, n_heads + 1, dtype=torch.bool)
    layers = slice(None) if cut == "everything" else slice(1, 2)
    if cut in ("heads", "both", "everything"):
        mask[layers, :n_heads] = False
    if cut in ("MLP", "both", "everything"):
        mask[layers, n_heads] = False
    sub = Subnetwork(mask, means(family))
    compact = sub.compact(model(family))
    expected = gated(sub, family) if cut != "nothing" else model(family)(batch(family))
    torch.testing.assert_close(compact(batch(family)), expected, **CLOSE)
    for narrow in (False, True):
        with inference(compact, narrow=narrow):
            torch.testing.assert_close(compact(batch(family)), expected, **CLOSE)


@pytest.mark.parametrize("family", ["bert", "gpt2", "llama"])
@given(bits=st.lists(st.booleans(), min_size=18, max_size=18))
@settings(max_examples=20)
def test_any_mask(family: str, bits: list[bool]) -> None:
    mask = torch.tensor(bits).view(3, 6)[:, : TINY[family].n_heads + 1]
    sub = Subnetwork(mask, means(family))
    torch.testing.assert_close(sub.compact(model(family))(batch(family)), gated(sub, family), **CLOSE)


@pytest.mark.parametrize("family", ["llama", "qwen2"])
@pytest.mark.parametrize("heads", [[0, 1, 3], [1, 2], [2], [0, 1], [0, 1, 2, 3]])
def test_groups_of_queries_may_lose_different_numbers_of_heads(family: str, heads: list[int]) -> None:
    mask = torch.ones(3, 5, dtype=torch.bool)
    mask[:, [head for head in range(4) if head not in heads]] = False
    sub = Subnetwork(mask, means(family))
    compact = sub.compact(model(family))
    attn = compact.blocks[0].attn
    assert (len(attn.W_Q), len(attn._W_K)) == (len(heads), len({head // 2 for head in heads}))
    torch.testing.assert_close(compact(batch(family)), gated(sub, family), **CLOSE)
    with inference(compact):
        torch.testing.assert_close(compact(batch(family)), gated(sub, family), **CLOSE)


@pytest.mark.parametrize(
    ("family", "changes"),
    [
        ("gpt_neox", {"use_parallel_residual": False, "attention_bias": False}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}),
        ("llama", {"attention_bias": True, "num_key_value_heads": 4}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("electra", {"embedding_size": 40}),
    ],
)
def test_options_of_the_config_are_kept(family: str, changes: dict[str, object]) -> None:
    whole = load_model(hf_model=transformers_model(family, **changes)).requires_grad_(False)
    sub = Subnetwork(random_mask(family), ActivationMeans.collect(whole, torch.randint(3, 30, (6, 13))))
    with hooked(whole, sub.edits()):
        expected = whole(batch(family))
    torch.testing.assert_close(sub.compact(whole)(batch(family)), expected, **CLOSE)


def test_in_bfloat16_it_is_as_near_as_bfloat16_is() -> None:
    sub = Subnetwork(random_mask("bert"), means("bert"))
    exact = gated(sub, "bert")
    with inference(model("bert"), "bf16"):
        rounded = gated(sub, "bert")
    compact = sub.compact(model("bert"))
    with inference(compact, "bf16"):
        found = compact(batch("bert"))
    assert (found - exact).abs().max() < 2 * (rounded - exact).abs().max()
    low = load_model(hf_model=transformers_model("bert")).to(torch.bfloat16)
    assert {p.dtype for p in Subnetwork(sub.mask, _of(low)).compact(low).parameters()} == {torch.bfloat16}


def _of(whole: Classifier) -> ActivationMeans:
    return ActivationMeans.collect(whole, torch.randint(3, 30, (6, 13)))


def test_a_row_gets_in_a_batch_what_it_gets_alone() -> None:
    compact, tokens = Subnetwork(random_mask("bert"), means("bert")).compact(model("bert")), batch("bert")
    together = compact(tokens)
    for row, length in enumerate(LENGTHS):
        alone = compact(tokens.input_ids[row : row + 1, :length], token_type_ids=tokens.token_type_ids[row : row + 1, :length])
        torch.testing.assert_close(alone, together[row : row + 1], **CLOSE)


def test_what_is_ablated_is_gone_and_the_rest_is_not_copied() -> None:
    whole = model("bert")
    sub = Subnetwork(torch.ones(3, 6, dtype=torch.bool), means("bert")).without(Head(0, 1), Head(0, 4), Mlp(1))
    compact = sub.compact(whole)
    assert compact.blocks[0].attn.W_Q.shape == (3, 40, 8)
    torch.testing.assert_close(compact.blocks[0].attn.W_V, whole.blocks[0].attn.W_V[[0, 2, 3]])
    assert compact.blocks[1].mlp.W_in.numel() == 40  # one dead hidden unit of 28
    assert compact.embed.embed.W_E.data_ptr() == whole.embed.embed.W_E.data_ptr()
    assert compact.blocks[2].mlp.W_in.data_ptr() == whole.blocks[2].mlp.W_in.data_ptr()


def test_the_whole_model_and_the_callers_random_numbers_are_left_alone() -> None:
    whole = model("llama")
    before, state = fingerprint(whole), torch.get_rng_state()
    sub = Subnetwork(random_mask("llama"), means("llama"))
    logits = whole(batch("llama"))
    sub.compact(whole)
    assert torch.equal(torch.get_rng_state(), state)
    assert fingerprint(whole) == before
    assert torch.equal(whole(batch("llama")), logits)


def test_hook_points_show_what_is_left() -> None:
    gone = [*(Head(0, index) for index in range(5)), Head(1, 2), Mlp(2)]
    sub = Subnetwork(torch.ones(3, 6, dtype=torch.bool), means("bert")).without(*gone)
    compact = sub.compact(model("bert"))
    with captured(compact, [z_point(0), z_point(1), mlp_point(2)]) as seen:
        compact(batch("bert"))
    assert seen[z_point(0)].shape == (4, 13, 0, 8)
    assert seen[z_point(1)].shape == (4, 13, 4, 8)
    torch.testing.assert_close(seen[mlp_point(2)], means("bert").mlp[2].expand(4, 13, 40), **CLOSE)
    assert compact.remains.units == sub.heads | sub.mlps
    assert compact.remains.provenance["ablation"] == "mean"


def test_another_subnetwork_is_another_model() -> None:
    """Also where means are folded into biases that the family does not have."""
    sub = Subnetwork(random_mask("qwen2"), means("qwen2"))
    zero = Subnetwork(random_mask("qwen2"), means("qwen2", "zero"))
    assert fingerprint(sub.compact(model("qwen2"))) != fingerprint(zero.compact(model("qwen2")))


@pytest.mark.parametrize("kind", ["position", "resample"])
def test_means_that_are_not_one_constant_per_unit_are_refused_by_name(kind: str) -> None:
    with pytest.raises(SubnetworkError, match=f"'{kind}' ablation cannot be folded"):
        Subnetwork(random_mask("bert"), means("bert", kind)).compact(model("bert"))


def test_a_compact_model_has_no_means_and_so_no_subnetworks_of_its_own() -> None:
    compact = Subnetwork(random_mask("bert"), means("bert")).compact(model("bert"))
    with pytest.raises(MeansError, match="some of whose units are gone"):
        ActivationMeans.collect(compact, torch.randint(3, 30, (6, 13)))


def test_another_model_and_a_model_without_head_are_refused() -> None:
    with pytest.raises(MeansError, match="another model"):
        Subnetwork(random_mask("bert"), means("bert")).compact(model("roberta"))
    micro = micro_model()
    sub = Subnetwork(torch.ones(2, 3, dtype=torch.bool), ActivationMeans.collect(micro, torch.tensor([[1, 2]])))
    with pytest.raises(SubnetworkError, match="a MicroModel cannot be made compact"):
        sub.compact(micro)


def test_it_pays_for_many_tokens_few_units_and_no_hooks() -> None:
    whole, few = model("bert"), frozenset({Head(0, 0)})
    assert not compacting_pays(whole, few, tokens=100)
    assert compacting_pays(whole, few, tokens=1_000_000)
    every = frozenset({Mlp(layer) for layer in range(3)} | {Head(layer, i) for layer in range(3) for i in range(5)})
    assert not compacting_pays(whole, every, tokens=10**12), "nothing is saved"
    with hooked(whole, means("bert").edits([Head(0, 1)])):
        assert not compacting_pays(whole, few, tokens=1_000_000), "its hooks would be lost"
