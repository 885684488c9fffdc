"""A hooked classifier is the transformers model it came from."""

from pathlib import Path

import pytest
import torch
from transformer_lens import HookedEncoder, HookedTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, BertForMaskedLM

from hc_lens.forward import inference
from hc_lens.models import Classifier, DecoderClassifier, EncoderClassifier, load_model
from tests.models.tiny import FAMILIES, LENGTHS, TINY, batch, config, reference_logits, tokenizer, transformers_model

CLOSE = {"atol": 1e-5, "rtol": 0}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 100.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    return request.param


def test_logits_are_those_of_transformers_on_padded_rows_of_mixed_length(family: str) -> None:
    hf_model, tokens = transformers_model(family), batch(family)
    expected = reference_logits(hf_model, tokens)
    assert expected.std() > 0.1
    torch.testing.assert_close(load_model(hf_model=hf_model)(tokens), expected, **CLOSE)


def test_a_row_gets_in_a_batch_what_it_gets_alone(family: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family)), batch(family)
    together = model(tokens)
    for row, length in enumerate(LENGTHS):
        types = None if tokens.token_type_ids is None else tokens.token_type_ids[row : row + 1, :length]
        alone = model(tokens.input_ids[row : row + 1, :length], token_type_ids=types)
        torch.testing.assert_close(alone, together[row : row + 1], **CLOSE)


def test_what_stands_under_padding_does_not_matter(family: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family)), batch(family)
    scribbled = torch.where(tokens.attention_mask == 1, tokens.input_ids, 11)
    torch.testing.assert_close(model(tokens), model(tokens._replace(input_ids=scribbled)), **CLOSE)


@pytest.mark.parametrize("family_name", [name for name in FAMILIES if TINY[name].has_types])
def test_token_types_matter(family_name: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family_name)), batch(family_name)
    assert not torch.allclose(model(tokens), model(tokens._replace(token_type_ids=None)), atol=1e-2)


@pytest.mark.parametrize("family_name", ["distilbert", *(name for name in FAMILIES if TINY[name].is_decoder)])
def test_a_family_without_token_types_ignores_them(family_name: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family_name)), batch(family_name)
    torch.testing.assert_close(model(tokens._replace(token_type_ids=tokens.input_ids % 2)), model(tokens))


def test_without_a_mask_the_pad_id_marks_the_padding(family: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family)), batch(family)
    torch.testing.assert_close(model(tokens.input_ids, token_type_ids=tokens.token_type_ids), model(tokens))


@pytest.mark.parametrize(
    ("family_name", "changes"),
    [
        ("bert", {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3, "type_vocab_size": 4}),
        ("roberta", {"pad_token_id": 3, "max_position_embeddings": 20, "type_vocab_size": 2}),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "n_inner": 24, "activation_function": "relu"}),
        ("gpt2", {"scale_attn_weights": False}),
        ("distilbert", {"activation": "relu"}),
        ("electra", {"embedding_size": 40}),
        ("gpt_neox", {"use_parallel_residual": False, "rotary_pct": 1.0, "attention_bias": False}),
        ("gpt_neox", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 100.0}}),
        ("llama", {"attention_bias": True, "num_key_value_heads": 4}),
        ("llama", {"num_key_value_heads": 1, "rope_parameters": LLAMA3}),
        ("qwen2", {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}),
        ("qwen2", {"num_key_value_heads": 4}),
    ],
)
def test_options_of_the_config_are_kept(family_name: str, changes: dict[str, object]) -> None:
    hf_model = transformers_model(family_name, **changes)
    tokens = batch(family_name)
    if family_name == "roberta":  # pad 3: positions count from 4
        ids = tokens.input_ids.masked_fill(tokens.input_ids == 3, 4)
        tokens = tokens._replace(input_ids=ids.masked_fill(tokens.attention_mask == 0, 3))
    torch.testing.assert_close(load_model(hf_model=hf_model)(tokens), reference_logits(hf_model, tokens), **CLOSE)


def test_it_is_a_transformer_lens_model(family: str) -> None:
    model = load_model(hf_model=transformers_model(family))
    assert isinstance(model, Classifier)
    if TINY[family].is_decoder:
        assert isinstance(model, DecoderClassifier)
        assert isinstance(model, HookedTransformer)
    else:
        assert isinstance(model, EncoderClassifier)
        assert isinstance(model, HookedEncoder)
    assert not model.training
    assert model.cfg.n_layers == 3
    assert model.cfg.n_heads == TINY[family].n_heads
    assert model.family == family
    assert model.max_length == 16
    assert all(torch.isfinite(parameter).all() for parameter in model.parameters())


def test_hook_points_fire_and_edits_take_effect(family: str) -> None:
    model, tokens = load_model(hf_model=transformers_model(family)), batch(family)
    logits, cache = model.run_with_cache(tokens)
    torch.testing.assert_close(logits, model(tokens))
    assert cache["blocks.1.attn.hook_z"].shape == (4, 13, TINY[family].n_heads, model.cfg.d_head)
    assert cache["blocks.2.hook_mlp_out"].shape == (4, 13, 40)

    def zero(activation: torch.Tensor, hook: object) -> torch.Tensor:
        return torch.zeros_like(activation)

    point = "blocks.1.attn.hook_z"
    ablated = model.run_with_hooks(tokens, fwd_hooks=[(point, zero)])
    assert not torch.allclose(ablated, logits, atol=1e-3)
    with model.hooks(fwd_hooks=[(point, zero)]):
        torch.testing.assert_close(model(tokens), ablated)
    model.add_hook(point, zero)
    torch.testing.assert_close(model(tokens), ablated)
    model.reset_hooks()
    torch.testing.assert_close(model(tokens), logits)


def test_text_goes_through_the_tokenizer(family: str) -> None:
    model = load_model(hf_model=transformers_model(family), tokenizer=tokenizer())
    texts = ["the cat saw the dog", "the dog slept"]
    model.pad_id = 0  # the word tokenizer's, whatever the family's config says
    made = model.to_tokens(texts)
    ids = made if isinstance(made, torch.Tensor) else made[0]
    assert ids.tolist() == [[3, 4, 6, 3, 5], [3, 5, 7, 0, 0]]
    torch.testing.assert_close(model(texts), model(ids))
    torch.testing.assert_close(model("the dog slept"), model(texts)[1:], **CLOSE)


def test_gpt2_tokenizers_get_a_pad_token_on_the_right_without_touching_the_callers() -> None:
    theirs = tokenizer(pad=False, side="left")
    model = load_model(hf_model=transformers_model("gpt2", pad_token_id=None), tokenizer=theirs)
    assert theirs.pad_token is None
    assert theirs.padding_side == "left"
    assert model.pad_id == 2  # the end token
    assert model.to_tokens(["the cat slept", "dog"]).tolist() == [[3, 4, 7], [5, 2, 2]]


@pytest.mark.parametrize("family_name", FAMILIES)
def test_bare_models_and_other_heads_give_their_body(family_name: str) -> None:
    torch.manual_seed(5)
    bare = AutoModel.from_config(config(family_name)).eval()
    model, tokens = load_model(hf_model=bare), batch(family_name)
    _, cache = model.run_with_cache(tokens)
    types = {} if tokens.token_type_ids is None else {"token_type_ids": tokens.token_type_ids}
    with torch.no_grad():
        states = bare(tokens.input_ids, attention_mask=tokens.attention_mask, **types).last_hidden_state
    if TINY[family_name].is_decoder:
        ours = cache["ln_final.hook_normalized"] * model.ln_final.w
        ours = ours + model.ln_final.b if hasattr(model.ln_final, "b") else ours  # RMSNorm has no bias
    else:
        ours = cache["blocks.2.hook_normalized_resid_post"]
    real = tokens.attention_mask.bool()
    torch.testing.assert_close(ours[real], states[real], **CLOSE)


def test_a_masked_language_model_gives_its_body() -> None:
    hf_model = BertForMaskedLM(config("bert")).eval()
    model = load_model(hf_model=hf_model)
    torch.testing.assert_close(model.embed.embed.W_E, hf_model.bert.embeddings.word_embeddings.weight)


DECODERS = tuple(name for name, tiny in TINY.items() if tiny.is_decoder)


@pytest.mark.parametrize("family_name", DECODERS)
def test_a_decoder_reads_the_last_token_that_is_no_pad_token(family_name: str, tmp_path: Path) -> None:
    hf_model = transformers_model(family_name, pad_token_id=0, bos_token_id=0, eos_token_id=0)
    model = load_model(hf_model=hf_model)
    # texts that end in the pad token, begin with it, have it inside, and are nothing else
    ids = torch.tensor([[5, 6, 7, 0, 0], [0, 8, 9, 4, 0], [5, 0, 7, 8, 0], [0, 3, 0, 0, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        theirs = hf_model(ids, attention_mask=mask).logits
        saved = AutoModelForSequenceClassification.from_pretrained(model.save_pretrained(tmp_path / "saved")).eval()
        alone = torch.cat([model(row[None]) for row in ids])
        for logits in (model(ids, mask), alone, saved(ids, attention_mask=mask).logits):
            torch.testing.assert_close(logits, theirs, **CLOSE)
        with pytest.raises(ValueError, match=r"row 1 has the pad token .* before other tokens"):
            model(ids)  # some rows begin with it and others do not: it may be padding on the left
        torch.testing.assert_close(model(ids[:1, 3:4], mask[:1, :1]), hf_model(ids[:1, 3:4]).logits, **CLOSE)


@pytest.mark.parametrize("family_name", DECODERS)
def test_a_head_without_a_pad_token_cannot_read_texts_that_end_in_what_pads_them(family_name: str) -> None:
    hf_model = transformers_model(family_name, pad_token_id=None)
    model = load_model(hf_model=hf_model)
    assert model.pad_id == 2
    row = torch.tensor([[5, 6, 7]])
    torch.testing.assert_close(model(row, torch.ones_like(row)), hf_model(row).logits, **CLOSE)
    with pytest.raises(ValueError, match=r"row 1 ends in token 2, .* set pad_token_id in config.json"):
        model(torch.tensor([[5, 6, 7], [5, 2, 0]]), torch.tensor([[1, 1, 1], [1, 1, 0]]))
    # a head that is new has nothing else to agree with
    new = load_model(hf_model=hf_model.base_model)
    assert new.hf_config.pad_token_id == 2
    ended = torch.tensor([[5, 6, 2]])
    torch.testing.assert_close(new(ended, torch.ones_like(ended)), new(row[:, :2]), **CLOSE)


@pytest.mark.parametrize("pad", [1, 3])
def test_roberta_counts_positions_over_all_but_pad_tokens(pad: int, tmp_path: Path) -> None:
    hf_model = transformers_model("roberta", pad_token_id=pad, max_position_embeddings=20)
    model = load_model(hf_model=hf_model)
    ids = torch.tensor([[4, 7, pad, 9, 5], [4, pad, pad, 6, pad], [4, 8, pad, pad, pad]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])
    with torch.no_grad():
        theirs = hf_model(ids, attention_mask=mask).logits
        torch.testing.assert_close(model(ids, mask), theirs, **CLOSE)
        with inference(model, narrow=True):
            torch.testing.assert_close(model(ids, mask), theirs, **CLOSE)
        torch.testing.assert_close(load_model(model.save_pretrained(tmp_path / "saved"))(ids, mask), theirs, **CLOSE)


def test_a_roberta_checkpoint_of_an_earlier_version_still_loads() -> None:
    model = load_model(hf_model=transformers_model("roberta"))
    former = {name.replace("embed.position_prefix", "position_prefix"): w for name, w in model.state_dict().items()}
    assert "position_prefix" in former
    model.load_state_dict(former)
