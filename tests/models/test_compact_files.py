"""Subnetworks exported as compact models and as transformers models: read back, with equal logits; damage is named."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForSequenceClassification

import hc_lens
from hc_lens.forward import inference
from hc_lens.hooks import hooked
from hc_lens.means import ActivationMeans
from hc_lens.metrics import predict
from hc_lens.models import Classifier, compact_files, load_compact, load_model, save_compact
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head, Mlp
from tests.models.tiny import FAMILIES, batch, reference_logits, tokenizer, transformers_model

CLOSE = {"atol": 1e-5, "rtol": 0}


def whole_model(family: str, **changes: object) -> Classifier:
    return load_model(hf_model=transformers_model(family, **changes), tokenizer=tokenizer()).requires_grad_(False)


def subnetwork(model: Classifier, kind: str = "mean") -> Subnetwork:
    """Half of the units; layer 1 has no heads, layer 0 no MLP."""
    n_heads, generator = model.cfg.n_heads, torch.Generator().manual_seed(5)
    mask = torch.rand(3, n_heads + 1, generator=generator) > 0.5
    mask[0, n_heads], mask[1, :n_heads], mask[2, n_heads] = False, False, True
    means = ActivationMeans.collect(model, torch.randint(3, 30, (6, 13), generator=generator), kind=kind)
    return Subnetwork(mask, means, seed=42, provenance={"made by": "a test"})


def gated(model: Classifier, sub: Subnetwork) -> Tensor:
    with hooked(model, sub.edits()):
        return model(batch(model.family))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_compact_model_comes_back_as_it_was(family: str, tmp_path: Path) -> None:
    model = whole_model(family)
    sub = subnetwork(model)
    expected = gated(model, sub)
    loaded = load_compact(sub.export(tmp_path / "small", model))
    assert not loaded.training
    torch.testing.assert_close(loaded(batch(family)), expected, **CLOSE)
    with inference(loaded, narrow=True):
        torch.testing.assert_close(loaded(batch(family)), expected, **CLOSE)
    assert loaded.label_names == model.label_names
    assert loaded.pad_id == model.pad_id
    assert loaded.remains.units == sub.heads | sub.mlps
    assert loaded.remains.provenance["made by"] == "a test"
    assert loaded.remains.provenance["seed"] == 42
    with hooked(model, sub.edits()):
        text = model(["the cat saw the dog", "dog"])
    torch.testing.assert_close(loaded(["the cat saw the dog", "dog"]), text, **CLOSE)
    ids = torch.tensor([[3, 4, 5]])
    torch.testing.assert_close(predict(loaded, ids), predict(model, ids, edits=sub.edits()), **CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_compact_model_of_another_type_equals_the_one_in_memory(family: str, dtype: torch.dtype, tmp_path: Path) -> None:
    model = whole_model(family).to(dtype)
    sub = subnetwork(model)
    compact, loaded = sub.compact(model), load_compact(sub.export(tmp_path / "small", model))
    assert {buffer.dtype for buffer in loaded.buffers() if buffer.is_floating_point()} == {dtype}
    assert torch.equal(loaded(batch(family)), compact(batch(family)))
    with inference(loaded), inference(compact):
        assert torch.equal(loaded(batch(family)), compact(batch(family)))


@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "qwen2"])
def test_transformers_opens_the_other_format(family: str, tmp_path: Path) -> None:
    model = whole_model(family)
    sub = subnetwork(model)
    expected = gated(model, sub)
    directory = sub.export(tmp_path / "same-shapes", model, format="transformers")
    theirs = AutoModelForSequenceClassification.from_pretrained(directory, attn_implementation="eager")
    torch.testing.assert_close(reference_logits(theirs, batch(family)), expected, **CLOSE)
    torch.testing.assert_close(load_model(directory)(batch(family)), expected, **CLOSE)
    assert {name: w.shape for name, w in theirs.state_dict().items()}.items() >= {
        name: w.shape for name, w in transformers_model(family).state_dict().items()
    }.items()


@pytest.mark.slow
def test_it_opens_without_hc_lens(tmp_path: Path) -> None:
    model = whole_model("llama")
    directory = subnetwork(model).export(tmp_path / "export", model, format="transformers")
    code = (
        "import sys; from transformers import AutoModelForSequenceClassification as A; "
        f"m, report = A.from_pretrained({str(directory)!r}, output_loading_info=True); "
        "assert not report['missing_keys'] and not report['unexpected_keys'], report; assert 'hc_lens' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize("family", FAMILIES)
def test_under_zero_ablation_no_bias_is_needed_and_none_is_made(family: str, tmp_path: Path) -> None:
    model = whole_model(family)
    sub = subnetwork(model, "zero")
    theirs = AutoModelForSequenceClassification.from_pretrained(sub.export(tmp_path / "zero", model, format="transformers"))
    torch.testing.assert_close(reference_logits(theirs, batch(family)), gated(model, sub), **CLOSE)
    assert set(theirs.state_dict()) == set(transformers_model(family).state_dict())


def test_gone_units_are_zeros_in_transformers(tmp_path: Path) -> None:
    model = whole_model("bert")
    sub = Subnetwork(torch.ones(3, 6, dtype=torch.bool), subnetwork(model).means).without(Head(1, 2), Mlp(0))
    theirs = AutoModelForSequenceClassification.from_pretrained(sub.export(tmp_path / "t", model, format="transformers"))
    attention = theirs.bert.encoder.layer[1].attention
    for projection in (attention.self.query, attention.self.key, attention.self.value):
        assert (projection.weight.view(5, 8, 40).abs().sum((1, 2)) == 0).tolist() == [False, False, True, False, False]
    assert (attention.output.dense.weight.view(40, 5, 8).abs().sum((0, 2)) == 0).tolist() == [False, False, True, False, False]
    torch.testing.assert_close(theirs.bert.encoder.layer[0].output.dense.bias, sub.means.mlp[0])
    assert not theirs.bert.encoder.layer[0].intermediate.dense.weight.any()


def test_qwen2_has_no_bias_for_means_and_says_so(tmp_path: Path) -> None:
    model = whole_model("qwen2")
    sub = subnetwork(model)
    with pytest.raises(ValueError, match=r"qwen2 models have no bias .*blocks.0.attn.b_O.*format='compact'.*kind='zero'"):
        sub.export(tmp_path / "qwen2", model, format="transformers")
    assert not (tmp_path / "qwen2").exists()


def test_gpt_neox_without_attention_biases_gets_them(tmp_path: Path) -> None:
    model = whole_model("gpt_neox", attention_bias=False)
    sub = subnetwork(model)
    directory = sub.export(tmp_path / "t", model, format="transformers")
    assert json.loads((directory / "config.json").read_text())["attention_bias"] is True
    theirs = AutoModelForSequenceClassification.from_pretrained(directory, attn_implementation="eager")
    torch.testing.assert_close(reference_logits(theirs, batch("gpt_neox")), gated(model, sub), **CLOSE)
    assert model.hf_config.attention_bias is False


def test_a_compact_model_is_smaller_on_disk_and_says_what_it_is(tmp_path: Path) -> None:
    model = whole_model("bert")
    directory = subnetwork(model).export(tmp_path / "small", model)
    model.save_pretrained(tmp_path / "whole")
    assert (directory / "compact.safetensors").stat().st_size < 0.8 * (tmp_path / "whole" / "model.safetensors").stat().st_size
    record = json.loads((directory / "compact.json").read_text())
    assert record["units"] == sorted(map(str, subnetwork(model).heads | subnetwork(model).mlps))
    assert record["config"]["model_type"] == "bert"


def test_a_second_export_replaces_the_first_and_a_full_disk_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = whole_model("bert")
    sub = subnetwork(model)
    directory = sub.export(tmp_path / "small", model)
    other = sub.without(Mlp(2))
    other.export(directory, model)
    torch.testing.assert_close(load_compact(directory)(batch("bert")), gated(model, other), **CLOSE)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(compact_files, "write_tensors", full)
    with pytest.raises(OSError, match=r"No space left on device; nothing was written.*small"):
        sub.export(directory, model)
    assert [path.name for path in tmp_path.iterdir()] == ["small"]
    torch.testing.assert_close(load_compact(directory)(batch("bert")), gated(model, other), **CLOSE)


def test_directories_with_something_else_are_left_alone(tmp_path: Path) -> None:
    model = whole_model("bert")
    model.save_pretrained(tmp_path / "whole")
    with pytest.raises(FileExistsError, match=r"no compact.json"):
        subnetwork(model).export(tmp_path / "whole", model)
    subnetwork(model).export(tmp_path / "small", model)
    with pytest.raises(FileExistsError, match=r"no config.json"):
        subnetwork(model).export(tmp_path / "small", model, format="transformers")


def test_each_loader_names_the_other(tmp_path: Path) -> None:
    model = whole_model("bert")
    subnetwork(model).export(tmp_path / "small", model)
    model.save_pretrained(tmp_path / "whole")
    with pytest.raises(ValueError, match="small holds a compact model: open it with load_compact"):
        load_model(tmp_path / "small")
    with pytest.raises(FileNotFoundError, match=r"whole has no compact.json.*open it with load_model"):
        load_compact(tmp_path / "whole")
    with pytest.raises(FileNotFoundError, match="there is no such directory"):
        load_compact(tmp_path / "nowhere")


def test_each_way_of_saving_is_for_its_own_models(tmp_path: Path) -> None:
    model = whole_model("bert")
    compact = subnetwork(model).compact(model)
    with pytest.raises(ValueError, match=r"this is a compact model.*save_compact"):
        compact.save_pretrained(tmp_path / "x")
    with pytest.raises(ValueError, match="not compact: write it with save_pretrained"):
        save_compact(model, tmp_path / "x")
    again = load_compact(save_compact(load_compact(save_compact(compact, tmp_path / "a")), tmp_path / "b"))
    torch.testing.assert_close(again(batch("bert")), compact(batch("bert")))


def test_without_a_tokenizer_there_is_none_to_read(tmp_path: Path) -> None:
    model = load_model(hf_model=transformers_model("gpt2")).requires_grad_(False)
    assert load_compact(subnetwork(model).export(tmp_path / "small", model)).tokenizer is None


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("format", "hc_lens compact model, 2", "format is 'hc_lens compact model, 2'; it must be 'hc_lens compact model, 1'"),
        ("units", None, "units must be a JSON list, got None"),
        ("units", ["L0.H9"], "units: L0.H9 is not in this model"),
        ("units", ["head 3"], "units: not a unit: 'head 3'"),
        ("units", [], "compact.safetensors does not fit the units and config of"),
        ("config", {"model_type": "mamba"}, "config: .*'mamba' is not supported"),
        ("config", {"model_type": "bert", "hidden_size": "wide"}, "config: "),
        ("config", {}, "config: "),
        ("weights", "0" * 64, "compact.safetensors has fingerprint .* it was changed"),
        ("tokenizer", "yes", "tokenizer must be a JSON bool"),
    ],
)
def test_a_damaged_record_is_named(field: str, value: object, told: str, tmp_path: Path) -> None:
    model = whole_model("bert")
    directory = subnetwork(model).export(tmp_path / "small", model)
    record = json.loads((directory / "compact.json").read_text())
    (directory / "compact.json").write_text(json.dumps({**record, field: value}))
    with pytest.raises(ValueError, match=told) as caught:
        load_compact(directory)
    assert str(directory / "compact.json") in str(caught.value)


def test_damaged_files_are_named(tmp_path: Path) -> None:
    model = whole_model("bert")
    directory = subnetwork(model).export(tmp_path / "small", model)
    weights, record = directory / "compact.safetensors", directory / "compact.json"
    whole = weights.read_bytes()
    changed = load_file(weights)
    changed["classifier.bias"] += 1
    save_file(changed, weights)
    with pytest.raises(ValueError, match=r"compact.safetensors has fingerprint"):
        load_compact(directory)
    weights.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"compact.safetensors is not a whole safetensors file"):
        load_compact(directory)
    weights.unlink()
    with pytest.raises(ValueError, match=r"compact.safetensors does not exist"):
        load_compact(directory)
    record.write_text(record.read_text()[:40])
    with pytest.raises(ValueError, match=r"compact.json is not a whole JSON file"):
        load_compact(directory)


def test_the_loader_is_public() -> None:
    assert hc_lens.load_compact is load_compact
    assert "load_compact" in dir(hc_lens)
