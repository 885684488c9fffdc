"""What a directory or Hub name in transformers format holds, read by transformers, with every error naming the source."""

import json
import logging
import pickle
import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import transformers
from torch import Tensor
from transformers import AutoTokenizer, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.peft_utils import find_adapter_config_file

from hc_lens.json_text import JsonTextError, parse_json
from hc_lens.models.finite import require_values

COMPACT = "compact.json"
"""The file of a compact model's directory that says what it holds."""

_log = logging.getLogger("hc_lens")

_MERGE = "merge it into the base weights (peft's merge_and_unload), save these and load them"

_OF_A_BLOCK = re.compile(r"\.(h|layers?)\.\d+\..*(?<!\.attn)(?<!\.attention)\.(weight|bias)$")
"""Weights of a block; `attn.bias` of old GPT-2 and GPT-NeoX files is the causal mask."""


class Loaded(NamedTuple):
    """A transformers model taken apart: the weights are those that the source has."""

    config: PretrainedConfig
    weights: Mapping[str, Tensor]


def read_model(auto: type, source: str, gguf_file: str | None = None) -> Loaded:
    """Read config and weights with one of transformers' Auto classes, in float32.

    Raises:
        FileNotFoundError: for a source without weights.
        ValueError: for weights that are damaged, do not fit the config (naming tensor and shapes), or are an adapter's.
    """
    where = source if gguf_file is None else str(Path(source) / gguf_file)
    require_no_adapter(source)
    try:
        with quiet_transformers():
            loaded = cast(Any, auto).from_pretrained(
                source,
                gguf_file=gguf_file,
                output_loading_info=True,
                ignore_mismatched_sizes=True,  # they are named here
                dtype=torch.float32,
                trust_remote_code=False,
            )
    except OSError as error:
        raise FileNotFoundError(f"{where}: no weights to load: {first_line(error)}") from error
    except pickle.UnpicklingError as error:
        raise ValueError(f"{where}: the weights are damaged, or a pickle of other things than tensors, and not read") from error
    except ImportError:
        raise
    except Exception as error:  # transformers stumbles over a config's fields in many ways
        raise ValueError(f"{where}: the weights are truncated or do not fit config.json: {first_line(error)}") from error
    hf_model, report = cast("tuple[PreTrainedModel, dict[str, Any]]", loaded)
    _require_fit(where, report["mismatched_keys"])
    if left_out := sorted(filter(_OF_A_BLOCK.search, report["unexpected_keys"])):
        _log.warning("%s: config.json has no place for %d weights, left out: %s", where, len(left_out), ", ".join(left_out[:3]))
    missing = set(report["missing_keys"])
    return Loaded(hf_model.config, {key: tensor for key, tensor in hf_model.state_dict().items() if key not in missing})


def _require_fit(where: str, mismatched: set[tuple[str, tuple[int, ...], tuple[int, ...]]]) -> None:
    if mismatched:
        told = [f"{name} is {list(found)} and must be {list(needed)}" for name, found, needed in sorted(mismatched)]
        raise ValueError(
            f"{where}: weights do not fit config.json, by which {'; '.join(told[:5])}: correct config.json (a head has one row "
            "for each entry of id2label, an embedding one for each token of vocab_size)"
        )


def require_no_adapter(source: str) -> None:
    """Refuse an adapter (LoRA and the like), which transformers reads or leaves out depending on what is installed.

    Raises:
        ValueError: saying what to do.
    """
    if find_adapter_config_file(source) is not None:
        raise ValueError(
            f"{source} holds an adapter (adapter_config.json), not only whole weights: {_MERGE}; if it is merged already, "
            "remove the adapter's files"
        )


def weights_in_memory(hf_model: PreTrainedModel, name: str) -> dict[str, Tensor]:
    """The state dict of a model in memory.

    Raises:
        ValueError: for a model with an adapter, or on the meta device, which has shapes and no values.
    """
    if getattr(hf_model, "peft_config", None):
        raise ValueError(f"{name} has an adapter beside its weights: {_MERGE}")
    weights = cast("dict[str, Tensor]", hf_model.state_dict())
    require_values(weights, name)
    return weights


def require_device(device: str | torch.device) -> None:
    """Refuse a device that holds no values.

    Raises:
        ValueError: for the meta device.
    """
    if torch.device(device).type == "meta":
        raise ValueError("device 'meta' holds shapes and no values, so nothing can be computed there: choose 'cpu' or 'cuda'")


def model_type_of(source: str) -> str | None:
    """The config's model_type, read before any class is chosen by it.

    Raises:
        FileNotFoundError: for a source without a config.
        ValueError: for a config that is no JSON object, an adapter without one, and a compact model.
    """
    directory = Path(source)
    if directory.is_dir():
        file = directory / "config.json"
        if not file.is_file():
            if (directory / COMPACT).is_file():
                raise ValueError(f"{directory} holds a compact model: open it with load_compact")
            require_no_adapter(source)
            raise FileNotFoundError(f"{directory} has no config.json, so it is not a model directory; {held_in(directory)}")
        where = str(file)
        try:
            config = parse_json(file.read_text(encoding="utf-8"))
        except (JsonTextError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not valid JSON: {error}") from error
    else:
        where = f"the config of {source}"
        try:
            with quiet_transformers():
                config, _ = PretrainedConfig.get_config_dict(source)
        except OSError as error:
            raise FileNotFoundError(
                f"{source!r} is neither a directory nor a model that the Hugging Face Hub or its local cache can give "
                f"({type(error).__name__}: {first_line(error)})"
            ) from error
    return _model_type(config, where)


def _model_type(config: object, where: str) -> str | None:
    if not isinstance(config, dict):
        raise ValueError(f"{where} must hold a JSON object, got {json.dumps(config):.80}")
    found = cast("dict[str, object]", config).get("model_type")
    if found is not None and not isinstance(found, str):
        raise ValueError(f"{where}: model_type must be a text, got {found!r:.80}")
    return found


def read_tokenizer(source: str) -> PreTrainedTokenizerBase | None:
    """The source's tokenizer; None, with a notice, when it has none that loads."""
    try:
        with quiet_transformers():
            tokenizer = AutoTokenizer.from_pretrained(source, trust_remote_code=False)
    except Exception as error:  # a damaged tokenizer.json raises a plain Exception, other files what they stumble over
        reason = first_line(error)
    else:
        # transformers makes up a tokenizer of special tokens alone when the vocabulary file is missing
        if set(tokenizer.get_vocab()) - set(tokenizer.all_special_tokens):
            return tokenizer
        reason = "it has no vocabulary"
    _log.warning("%s has no tokenizer that loads (%s): pass token ids, or tokenizer=...", source, reason)
    return None


def require_tokens_embedded(tokenizer: PreTrainedTokenizerBase | None, vocab_size: int, source: str) -> None:
    """Check that every token has a row of the embedding.

    Raises:
        ValueError: naming the first token that has none.
    """
    vocabulary = {} if tokenizer is None else tokenizer.get_vocab()
    beyond = sorted((token_id, token) for token, token_id in vocabulary.items() if token_id >= vocab_size)
    if beyond:
        token_id, token = beyond[0]
        raise ValueError(
            f"{source}: the tokenizer has {len(vocabulary)} tokens, the model's embedding {vocab_size} rows: token {token!r} "
            f"(id {token_id}) has none; load the tokenizer that belongs to the model, or resize the embedding in transformers "
            "(resize_token_embeddings) and save the model"
        )


def held_in(directory: Path) -> str:
    """What a directory holds, for a message."""
    return f"it holds {sorted(path.name for path in directory.iterdir())[:10]}"


def first_line(error: Exception) -> str:
    """The first line of an error's message, or its kind where it has none."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


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
