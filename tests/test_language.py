"""Language models: the logits of transformers, back to transformers, and as a classifier of some tokens."""

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, PreTrainedModel

from hc_lens.models import fingerprint
from hc_lens.models.language import (
    LanguageModel,
    classifier_of,
    load_language_model,
    new_language_model,
    smollm2_file,
)
from tests.models.tiny import TINY, TinyBatch, batch, config, tokenizer

DECODERS = tuple(family for family, tiny in TINY.items() if tiny.is_decoder)


def causal_model(family: str, **changes: object) -> PreTrainedModel:
    """Random weights everywhere, so that none can be dropped unnoticed."""
    torch.manual_seed(7)
    model = AutoModelForCausalLM.from_config(config(family, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def their_logits(model: PreTrainedModel, tokens: TinyBatch) -> Tensor:
    with torch.no_grad():
        return model(tokens.input_ids, attention_mask=tokens.attention_mask).logits[tokens.attention_mask.bool()]


def our_logits(model: LanguageModel, tokens: TinyBatch) -> Tensor:
    with torch.no_grad():
        return model(tokens.input_ids)[tokens.attention_mask.bool()]


def assert_equal_logits(model: LanguageModel, hf_model: PreTrainedModel, tokens: TinyBatch) -> None:
    torch.testing.assert_close(our_logits(model, tokens), their_logits(hf_model, tokens), atol=1e-4, rtol=1e-5)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("family", DECODERS)
def test_logits_are_those_of_transformers_there_and_back(family: str, tied: bool, tmp_path: Path) -> None:
    hf_model, tokens = causal_model(family, tie_word_embeddings=tied), batch(family)
    assert torch.equal(hf_model.get_input_embeddings().weight, hf_model.get_output_embeddings().weight) == tied
    model = load_language_model(hf_model=hf_model, tokenizer=tokenizer())
    assert_equal_logits(model, hf_model, tokens)
    directory = model.save_pretrained(tmp_path / "saved")
    again = AutoModelForCausalLM.from_pretrained(directory).eval()
    assert type(again) is type(hf_model)
    assert again.config.tie_word_embeddings == tied
    assert_equal_logits(model, again, tokens)
    assert fingerprint(load_language_model(directory)) == fingerprint(model)


def test_the_tokenizer_is_saved_with_the_model(tmp_path: Path) -> None:
    model = load_language_model(new_language_model(config("llama"), tokenizer()).save_pretrained(tmp_path / "saved"))
    assert model.tokenizer.decode(model.tokenizer.encode("the cat slept")) == "the cat slept"
    assert model.pad_id == 0


def test_what_transformers_itself_saved_loads(tmp_path: Path) -> None:
    hf_model, tokens = causal_model("gpt_neox"), batch("gpt_neox")
    hf_model.save_pretrained(tmp_path / "theirs")
    tokenizer(side="left").save_pretrained(tmp_path / "theirs")
    model = load_language_model(tmp_path / "theirs")
    assert model.tokenizer.padding_side == "right"
    assert_equal_logits(model, hf_model, tokens)


def test_a_tied_model_whose_unembedding_was_trained_is_saved_untied(tmp_path: Path) -> None:
    model, tokens = load_language_model(hf_model=causal_model("gpt2"), tokenizer=tokenizer()), batch("gpt2")
    with torch.no_grad():
        model.unembed.W_U[:, 3] += 1
    again = AutoModelForCausalLM.from_pretrained(model.save_pretrained(tmp_path / "saved")).eval()
    assert_equal_logits(model, again, tokens)


def test_next_token_logits_are_those_of_the_whole_pass() -> None:
    model, tokens = new_language_model(config("llama"), tokenizer()), batch("llama")
    rows, last = torch.arange(4), tokens.attention_mask.sum(dim=1) - 1
    with torch.no_grad():
        wanted = model(tokens.input_ids)[rows, last]
        torch.testing.assert_close(model.next_token_logits(tokens.input_ids, last), wanted)


@pytest.mark.parametrize("family", DECODERS)
def test_a_classifier_of_some_tokens_restricts_the_last_logits_to_them(family: str) -> None:
    model, tokens = load_language_model(hf_model=causal_model(family), tokenizer=tokenizer()), batch(family)
    classifier = classifier_of(model, {"cat": 4, "seen": 6, "dog": 5})
    assert classifier.label_names == ("cat", "seen", "dog")
    with torch.no_grad():
        wanted = model.next_token_logits(tokens.input_ids, tokens.attention_mask.sum(dim=1) - 1)[:, [4, 6, 5]]
        torch.testing.assert_close(classifier(tokens), wanted, atol=1e-4, rtol=1e-5)
        classifier.blocks[0].mlp.W_in += 1  # its weights are its own
        torch.testing.assert_close(
            model.next_token_logits(tokens.input_ids, tokens.attention_mask.sum(dim=1) - 1)[:, [4, 6, 5]], wanted
        )


def test_labels_with_one_token_are_refused_by_name() -> None:
    model = new_language_model(config("llama"), tokenizer())
    with pytest.raises(ValueError, match=r"\['cat', 'dog'\] have the same token, 4"):
        classifier_of(model, {"cat": 4, "seen": 6, "dog": 4})
    with pytest.raises(ValueError, match=r"at least two labels, got \['cat'\]"):
        classifier_of(model, {"cat": 4})


def test_only_what_transformers_has_is_trained() -> None:
    model = new_language_model(config("llama"), tokenizer())
    hf_model = causal_model("llama", tie_word_embeddings=False)
    assert sum(p.numel() for p in model.parameters()) == sum(p.numel() for p in hf_model.parameters())


@pytest.mark.parametrize("family", ["gpt_neox", "llama", "qwen2"])
def test_a_long_context_is_kept_and_costs_nothing_until_it_is_used(family: str, tmp_path: Path) -> None:
    hf_model = causal_model(family, max_position_embeddings=131_072)
    model = load_language_model(hf_model=hf_model, tokenizer=tokenizer())
    assert model.max_length == 131_072
    assert sum(buffer.nbytes for buffer in model.buffers()) < 2_000_000
    assert_equal_logits(model, hf_model, batch(family))
    long = torch.randint(3, 37, (1, 2_200))  # more than the positions that are kept at first
    with torch.no_grad():
        theirs = hf_model(long).logits[:, -3:]
        torch.testing.assert_close(model(long)[:, -3:], theirs, atol=1e-4, rtol=0)
    saved = json.loads((model.save_pretrained(tmp_path / "saved") / "config.json").read_text())
    assert saved["max_position_embeddings"] == 131_072


def test_new_language_model_depends_on_its_seed_only() -> None:
    state = torch.get_rng_state()
    first, again, other = (new_language_model(config("qwen2"), tokenizer(), seed=seed) for seed in (0, 0, 1))
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)
    assert torch.equal(torch.get_rng_state(), state)


class TestBadSources:
    def test_an_encoder(self, tmp_path: Path) -> None:
        config("bert").save_pretrained(tmp_path)
        with pytest.raises(ValueError, match="'bert' is an encoder, not a causal language model"):
            load_language_model(tmp_path)

    def test_both_or_neither(self) -> None:
        with pytest.raises(ValueError, match="exactly one"):
            load_language_model()

    def test_no_tokenizer(self) -> None:
        with pytest.raises(ValueError, match="has no tokenizer: pass"):
            load_language_model(hf_model=causal_model("llama"))

    def test_nothing_there(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError, match=r"no config.json"):
            load_language_model(tmp_path)

    def test_a_model_without_an_unembedding(self) -> None:
        with pytest.raises(ValueError, match="lacks weights of a language model"):
            load_language_model(hf_model=causal_model("llama").model, tokenizer=tokenizer())

    def test_more_tokens_than_the_vocabulary(self) -> None:
        with pytest.raises(ValueError, match="8 tokens, the config's vocab_size is 5"):
            new_language_model(config("llama", vocab_size=5), tokenizer())

    def test_gguf_files(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("a.gguf", "b.gguf"):
            (tmp_path / name).write_bytes(b"")
        with pytest.raises(FileNotFoundError, match=r"no file 'c.gguf'; it holds \['a.gguf', 'b.gguf'\]"):
            load_language_model(tmp_path, gguf_file="c.gguf")
        with pytest.raises(ValueError, match=r"holds 2 GGUF files: name one of \['a.gguf', 'b.gguf'\] as gguf_file"):
            load_language_model(tmp_path)
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ModuleNotFoundError, match=r"read by gguf and accelerate: pip install 'hc_lens\[relations\]'"):
            load_language_model(tmp_path / "a.gguf")
        with pytest.raises(ModuleNotFoundError, match=r"hc_lens\[relations\]"):
            smollm2_file()


@pytest.mark.slow
def test_smollm2_from_its_gguf_file() -> None:
    pytest.importorskip("gguf")
    try:
        file = smollm2_file()
    except ModuleNotFoundError as error:
        pytest.skip(str(error))
    model = load_language_model(file)
    hf_model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    rows = model.tokenizer(
        ["The capital of France is", "Munich is a city in the country of"], padding=True, return_tensors="pt"
    )
    tokens = TinyBatch(rows.input_ids, rows.attention_mask, None)
    torch.testing.assert_close(our_logits(model, tokens), their_logits(hf_model, tokens), atol=1e-3, rtol=0)
    with torch.no_grad():
        answers = model.next_token_logits(tokens.input_ids, tokens.attention_mask.sum(dim=1) - 1).argmax(dim=1)
    assert [model.tokenizer.decode(token) for token in answers] == [" Paris", " Germany"]
