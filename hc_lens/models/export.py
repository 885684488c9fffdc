"""Write a classifier as a transformers model directory."""

import copy
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tokenizers import Tokenizer
from transformers import PretrainedConfig, PreTrainedTokenizerBase

from hc_lens.atomic import atomic_directory, write_tensors
from hc_lens.models.classifier import Classifier
from hc_lens.models.weights import to_transformers


def save_pretrained(model: Classifier, directory: Path) -> Path:
    """Write config, weights and tokenizer to `directory`; AutoModelForSequenceClassification reads them with equal logits.

    Written as `model_directory` says.

    Raises:
        ValueError: for a compact model.
        FileExistsError, OSError: as `model_directory`.
    """
    if model.remains is not None:
        raise ValueError(
            "this is a compact model, whose blocks have sizes of their own: transformers cannot hold it; write it with "
            "save_compact, or its subnetwork with Subnetwork.export(..., format='transformers')"
        )
    with model_directory(directory, "config.json") as temporary:
        config = config_of(model)
        config.save_pretrained(temporary)
        weights = to_transformers(model.architecture.entries(config), model.state_dict())
        write_tensors(temporary / "model.safetensors", weights, {"format": "pt"})
        if model.tokenizer is not None:
            save_tokenizer(model.tokenizer, temporary)
    return directory


def save_tokenizer(tokenizer: PreTrainedTokenizerBase, directory: Path) -> None:
    """Write a tokenizer's files, without the truncation and padding of its latest call, which decide nothing of the next."""
    backend: Tokenizer | None = getattr(tokenizer, "backend_tokenizer", None)
    if backend is not None:
        backend.no_truncation()
        backend.no_padding()
    tokenizer.save_pretrained(directory)


@contextmanager
def model_directory(directory: Path, marker: str) -> Generator[Path]:
    """Yield a new directory that takes the place of `directory` when the model in it is written (`atomic_directory`).

    `marker` is the file by which a directory is known to hold such a model.

    Raises:
        FileExistsError: when `directory` holds something else than such a model.
        OSError: when the disk is full or not writable, naming `directory`.
    """
    if directory.exists() and not (directory.is_dir() and (not any(directory.iterdir()) or (directory / marker).is_file())):
        raise FileExistsError(
            f"{directory} exists and is not a model directory (it has no {marker}): choose another, nothing was written"
        )
    with atomic_directory(directory) as temporary:
        yield temporary


def config_of(model: Classifier) -> PretrainedConfig:
    """The transformers config that describes the model as it is now."""
    config = copy.deepcopy(model.hf_config)
    config.architectures = [model.architecture.hf_class]
    config.id2label = dict(enumerate(model.label_names))
    config.label2id = {name: i for i, name in enumerate(model.label_names)}
    config.pad_token_id = model.pad_id
    config.dtype = str(model.cfg.dtype).removeprefix("torch.")
    return config
