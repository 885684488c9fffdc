"""Write a classifier as a transformers model directory."""

import copy
import secrets
import shutil
from pathlib import Path

from hc_lens.atomic import write_tensors
from hc_lens.models.classifier import Classifier
from hc_lens.models.weights import to_transformers


def save_pretrained(model: Classifier, directory: Path) -> Path:
    """Write config, weights and tokenizer to `directory`; AutoModelForSequenceClassification reads them with equal logits.

    Everything is written beside `directory` first and moved into place when it is whole: after a failed write nothing has
    changed. In a directory that holds a model already, its files are replaced and others stay.

    Raises:
        FileExistsError: when `directory` holds something else than a model.
        OSError: when the disk is full or not writable, naming `directory`.
    """
    if directory.exists() and not (
        directory.is_dir() and (not any(directory.iterdir()) or (directory / "config.json").is_file())
    ):
        raise FileExistsError(f"{directory} exists and is not a model directory: choose another, nothing was written")
    temporary = directory.with_name(f".{directory.name}.{secrets.token_hex(4)}.tmp")
    try:
        temporary.mkdir(parents=True)
        _write(model, temporary)
        directory.mkdir(exist_ok=True)
        # config.json last: a directory without it is not taken for a model
        for file in sorted(temporary.iterdir(), key=lambda file: file.name == "config.json"):
            file.replace(directory / file.name)
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror or error}; the model was not saved", str(directory)) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return directory


def _write(model: Classifier, directory: Path) -> None:
    config = copy.deepcopy(model.hf_config)
    config.architectures = [model.architecture.hf_class]
    config.id2label = dict(enumerate(model.label_names))
    config.label2id = {name: i for i, name in enumerate(model.label_names)}
    config.pad_token_id = model.pad_id
    config.dtype = str(model.cfg.dtype).removeprefix("torch.")
    config.save_pretrained(directory)
    weights = to_transformers(model.architecture.entries(config), model.state_dict())
    write_tensors(directory / "model.safetensors", weights, {"format": "pt"})
    if model.tokenizer is not None:
        model.tokenizer.save_pretrained(directory)
