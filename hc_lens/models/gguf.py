"""GGUF files: which file of a source is one, and whether transformers reads all of it that decides the logits."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from hc_lens.models.source import first_line, held_in, quiet_transformers

_FACTORS = "rope_freqs.weight"
_UNREAD = (".rope.scaling.", ".rope.scale_linear", ".attention.sliding_window")
"""Parts of keys that say how attention is computed, and that transformers' reader leaves out (5.24)."""


def gguf_source(source: str, gguf_file: str | None) -> tuple[str, str | None]:
    """Directory and file name of a GGUF source; the source itself and None for any other.

    Raises:
        FileNotFoundError: for a file that is not there.
        ModuleNotFoundError: naming the extra that brings what reads such files.
        ValueError: for a directory with several.
    """
    path = Path(source)
    if gguf_file is None and path.suffix == ".gguf":
        path, gguf_file = path.parent, path.name
    elif gguf_file is None and path.is_dir() and not (path / "config.json").is_file():
        files = sorted(file.name for file in path.glob("*.gguf"))
        if len(files) > 1:
            raise ValueError(f"{path} holds {len(files)} GGUF files: name one of {files} as gguf_file")
        gguf_file = files[0] if files else None
    if gguf_file is None:
        return source, None
    if path.is_dir() and not (path / gguf_file).is_file():
        raise FileNotFoundError(f"{path} has no file {gguf_file!r}; {held_in(path)}")
    if absent := [package for package in ("gguf", "accelerate") if importlib.util.find_spec(package) is None]:
        raise ModuleNotFoundError(f"a GGUF file is read by {' and '.join(absent)}: pip install 'hc_lens[relations]'")
    return str(path), gguf_file


def gguf_tokenizer(directory: str, gguf_file: str) -> PreTrainedTokenizerBase:
    """The tokenizer in a GGUF file.

    Raises:
        ValueError: naming the file, where transformers cannot read it.
    """
    try:
        with quiet_transformers():
            return AutoTokenizer.from_pretrained(directory, gguf_file=gguf_file, trust_remote_code=False)
    except Exception as error:  # transformers' reader stumbles over what a file lacks
        raise ValueError(f"{Path(directory) / gguf_file} has no tokenizer that loads: {first_line(error)}") from error


def require_readable(file: Path) -> None:
    """Check that a GGUF file is whole, and that its rotary positions are those that transformers will give it.

    A file that is to be downloaded is left to transformers.

    Raises:
        ValueError: for a file that is cut short or damaged, and for keys or tensors that transformers' reader leaves out and
            that change the logits, naming file and key.
    """
    if not file.is_file():
        return
    reader: Any = importlib.import_module("gguf").GGUFReader
    try:
        read = reader(file)
        left_out = [name for name in read.fields if _matters(name, read)]
        left_out += [tensor.name for tensor in read.tensors if tensor.name == _FACTORS and (tensor.data != 1).any()]
    except Exception as error:  # numpy and gguf stumble over what is not there
        raise ValueError(f"{file} is cut short or is no GGUF file: {first_line(error)}") from error
    if left_out:
        raise ValueError(
            f"{file} has {', '.join(left_out)}, which transformers' reader of GGUF files leaves out: the logits would be "
            "wrong; load the model from its directory in transformers format"
        )


def _matters(key: str, read: Any) -> bool:
    """Whether a key's value changes the logits and is left out: scaling of another type than none, by another factor than 1."""
    if not any(part in key for part in _UNREAD):
        return False
    value = read.fields[key].contents()
    neutral = {"type": "none", "factor": 1.0, "scale_linear": 1.0, "sliding_window": 0}
    last = key.rsplit(".", 1)[1]
    return last in neutral and value != neutral[last]
