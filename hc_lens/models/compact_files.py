"""Compact models on disk: a directory with their weights, and `compact.json`, which says what is left of which architecture."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch
from transformers import AutoConfig, PretrainedConfig

from hc_lens.atomic import read_json, read_tensors, write_json, write_tensors
from hc_lens.models.classifier import Classifier, Remains
from hc_lens.models.compact import skeleton
from hc_lens.models.export import config_of, model_directory, save_tokenizer
from hc_lens.models.families import architecture_of
from hc_lens.models.fingerprint import fingerprint
from hc_lens.models.labels import label_names
from hc_lens.models.source import COMPACT, held_in, read_tokenizer
from hc_lens.provenance import Provenance
from hc_lens.units import parse, require_in_model

_FORMAT = "hc_lens compact model, 1"
_FIELDS = {"units": list, "weights": str, "tokenizer": bool, "config": dict, "provenance": dict}
_WEIGHTS = "compact.safetensors"


def save_compact(model: Classifier, directory: Path) -> Path:
    """Write a compact model to `directory`, as `model_directory` says; `load_compact` reads it.

    Raises:
        ValueError: for a model that is whole.
        FileExistsError, OSError: as `model_directory`.
    """
    if model.remains is None:
        raise ValueError("this model is whole, not compact: write it with save_pretrained")
    with model_directory(directory, COMPACT) as temporary:
        constants = model.constants()
        weights = {name: tensor for name, tensor in model.state_dict().items() if name not in constants}
        write_tensors(temporary / _WEIGHTS, weights)
        if model.tokenizer is not None:
            save_tokenizer(model.tokenizer, temporary)
        record = {
            "format": _FORMAT,
            "units": sorted(map(str, model.remains.units)),
            "weights": fingerprint(model),
            "tokenizer": model.tokenizer is not None,
            "config": json.loads(config_of(model).to_json_string(use_diff=False)),
            "provenance": dict(model.remains.provenance),
        }
        write_json(temporary / COMPACT, record)
    return directory


def load_compact(directory: str | Path, *, device: str | torch.device = "cpu") -> Classifier:
    """A compact model written by `Subnetwork.export`, in eval mode; its `remains` says which units it has left.

    It is a hooked classifier like any other, with fewer heads at the hook points of the blocks that lost some. A subnetwork of
    the whole model is none of it.

    Raises:
        FileNotFoundError: for a directory without compact.json.
        ValueError: for one that is damaged or of another kind, naming file and field.
    """
    directory = Path(directory)
    file = directory / COMPACT
    if not file.is_file():
        other = ": open it with load_model" if (directory / "config.json").is_file() else ""
        held = held_in(directory) if directory.is_dir() else "there is no such directory"
        raise FileNotFoundError(f"{directory} has no {COMPACT}, so it is not a compact model{other}; {held}")
    record = _record(file)
    with _naming(file, "config"):
        config = _config(record["config"])
        architecture = architecture_of(config.model_type, "config")
        labels = label_names(config, None, None, "config")
        dtype = cast(torch.dtype, getattr(torch, str(config.dtype).removeprefix("torch.")))
    tokenizer = read_tokenizer(str(directory)) if record["tokenizer"] else None
    with _naming(file, "units"):
        units = frozenset(map(parse, cast("list[str]", record["units"])))
        model = skeleton(architecture, config, labels, tokenizer, dtype, Remains(units, cast(Provenance, record["provenance"])))
        require_in_model(units, model.cfg.n_layers, model.cfg.n_heads)
    _load_weights(model, directory / _WEIGHTS, file, cast(str, record["weights"]))
    return model.to(device)


def _record(file: Path) -> dict[str, object]:
    read = read_json(file)
    record = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    if record.get("format") != _FORMAT:
        raise ValueError(f"{file}: format is {record.get('format')!r}; it must be {_FORMAT!r}")
    for name, kind in _FIELDS.items():
        if not isinstance(record.get(name), kind):
            raise ValueError(f"{file}: {name} must be a JSON {kind.__name__}, got {record.get(name)!r:.80}")
    return record


def _config(fields: object) -> PretrainedConfig:
    named = dict(cast("dict[str, object]", fields))
    return AutoConfig.for_model(cast(str, named.pop("model_type", None)), **named)


@contextmanager
def _naming(file: Path, field: str) -> Generator[None]:
    """Name file and field in the errors of whatever reads the field."""
    try:
        yield
    except Exception as error:  # transformers validates configs with exceptions of many kinds
        raise ValueError(f"{file}: {field}: {error}") from error


def _load_weights(model: Classifier, path: Path, file: Path, expected: str) -> None:
    try:
        model.load_state_dict({**model.constants(), **read_tensors(path)}, assign=True)
    except RuntimeError as error:
        raise ValueError(f"{path} does not fit the units and config of {file}: {error}") from error
    if (found := fingerprint(model)) != expected:
        raise ValueError(
            f"{path} has fingerprint {found[:12]}, not the one that {file} gives as weights ({expected[:12]}): it was changed"
        )
