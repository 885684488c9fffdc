"""A saved classifier is a transformers model with equal logits, or nothing."""

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForSequenceClassification, PreTrainedTokenizerFast

from hc_lens.data import encode, synthetic_nli
from hc_lens.models import export, fingerprint, load_model
from hc_lens.study import embedded_model
from tests.models.tiny import FAMILIES, batch, reference_logits, tokenizer, transformers_model

NLI = ("entailment", "neutral", "contradiction")


@pytest.mark.parametrize("family", FAMILIES)
def test_transformers_reads_equal_logits(family: str, tmp_path: Path) -> None:
    hf_model, tokens = transformers_model(family), batch(family)
    model = load_model(hf_model=hf_model, labels=NLI, tokenizer=tokenizer())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn_like(parameter))
    directory = model.save_pretrained(tmp_path / "new" / "model")
    theirs = AutoModelForSequenceClassification.from_pretrained(directory, attn_implementation="eager").eval()
    torch.testing.assert_close(reference_logits(theirs, tokens), model(tokens), atol=1e-5, rtol=0)
    assert theirs.config.id2label == dict(enumerate(NLI))
    # not AutoTokenizer: for Qwen2 it puts a byte-level tokenizer in place of any other
    assert PreTrainedTokenizerFast.from_pretrained(directory)("the cat")["input_ids"] == [3, 4]
    assert sorted(path.name for path in directory.parent.iterdir()) == ["model"]


@pytest.mark.parametrize("family", FAMILIES)
def test_round_trip_is_bit_equal(family: str, tmp_path: Path) -> None:
    hf_model = transformers_model(family)
    model = load_model(hf_model=hf_model, labels=NLI)
    again = load_model(model.save_pretrained(tmp_path / "model"))
    assert fingerprint(again) == fingerprint(model)
    assert again.label_names == NLI
    theirs = AutoModelForSequenceClassification.from_pretrained(tmp_path / "model")
    for name, tensor in hf_model.state_dict().items():
        assert torch.equal(tensor, theirs.state_dict()[name]), name


def test_saving_does_not_change_the_model(tmp_path: Path) -> None:
    model = load_model(hf_model=transformers_model("gpt2", pad_token_id=None))
    before = fingerprint(model)
    model.save_pretrained(tmp_path / "model")
    assert fingerprint(model) == before
    assert model.hf_config.pad_token_id is None


def test_a_second_save_replaces_the_first_and_keeps_other_files(tmp_path: Path) -> None:
    model = load_model(hf_model=transformers_model("bert"))
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "checkpoint-500").mkdir()
    with torch.no_grad():
        model.classifier.bias.add_(1)
    model.save_pretrained(tmp_path / "model")
    assert fingerprint(load_model(tmp_path / "model")) == fingerprint(model)
    held = ["checkpoint-500", "config.json", "model.safetensors"]
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == held


def test_a_directory_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("years of work")
    with pytest.raises(FileExistsError, match="not a model directory"):
        load_model(hf_model=transformers_model("bert")).save_pretrained(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "years of work"


def test_a_full_disk_leaves_the_earlier_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = load_model(hf_model=transformers_model("bert"))
    model.save_pretrained(tmp_path / "model")
    before = fingerprint(model)

    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export, "write_tensors", full)
    with torch.no_grad():
        model.classifier.bias.add_(1)
    with pytest.raises(OSError, match=r"No space left on device; nothing was written, an earlier version is kept.*model"):
        model.save_pretrained(tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert fingerprint(load_model(tmp_path / "model")) == before


def test_what_a_tokenizer_was_last_used_for_is_not_written(tmp_path: Path) -> None:
    """Encoding leaves the length that it cut at in the tokenizer; a model that is saved before and after has the same files."""
    model = embedded_model()
    before = (model.save_pretrained(tmp_path / "before") / "tokenizer.json").read_bytes()
    encode(synthetic_nli(n_train=4, n_id=2, n_ood_per_case=1).train, model.tokenizer, 16)
    assert (model.save_pretrained(tmp_path / "after") / "tokenizer.json").read_bytes() == before
