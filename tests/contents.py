"""What a run's file says, without when it was written: two files of one content may differ in the order of their metadata."""

import json
from pathlib import Path

import pandas as pd

from hc_lens.atomic import read_metadata, read_tensors


def contents(place: Path) -> dict[str, object]:
    """The content of a file, or of those of a directory, by name."""
    files = sorted(place.rglob("*")) if place.is_dir() else [place]
    return {file.name: content_of(file) for file in files if file.is_file()}


def content_of(file: Path) -> object:
    """The content of one file."""
    if file.suffix == ".safetensors":
        tensors = {name: (str(value.dtype), value.tolist()) for name, value in read_tensors(file).items()}
        return tensors, {name: _undated(_parsed(text)) for name, text in read_metadata(file).items()}
    if file.suffix == ".parquet":
        return pd.read_parquet(file).to_csv()
    if file.suffix == ".json":
        return _undated(json.loads(file.read_text(encoding="utf-8")))
    return file.read_bytes()


def _parsed(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _undated(value: object) -> object:
    return {name: each for name, each in value.items() if name != "date"} if isinstance(value, dict) else value
