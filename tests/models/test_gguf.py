"""GGUF files: what transformers' reader leaves out and decides the logits is refused by its key, damage by the file's name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hc_lens.models.gguf import require_readable
from hc_lens.models.language import load_language_model
from tests.models.tiny import tokenizer

gguf = pytest.importorskip("gguf", reason="extra relations is not installed")


def nothing(writer: Any) -> None:
    pass


def write(file: Path, more: Callable[[Any], None] = nothing) -> Path:
    """A Llama of one layer."""
    writer, generator = gguf.GGUFWriter(file, "llama"), np.random.default_rng(0)
    writer.add_block_count(1)
    writer.add_context_length(64)
    writer.add_embedding_length(8)
    writer.add_feed_forward_length(12)
    writer.add_head_count(2)
    writer.add_head_count_kv(2)
    writer.add_rope_dimension_count(4)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(10)
    block = {"attn_q": (8, 8), "attn_k": (8, 8), "attn_v": (8, 8), "attn_output": (8, 8)}
    block |= {"ffn_gate": (12, 8), "ffn_up": (12, 8), "ffn_down": (8, 12), "attn_norm": (8,), "ffn_norm": (8,)}
    sizes = {
        "token_embd": (10, 8),
        "output_norm": (8,),
        "output": (10, 8),
        **{f"blk.0.{name}": size for name, size in block.items()},
    }
    for name, size in sizes.items():
        writer.add_tensor(f"{name}.weight", generator.normal(size=size).astype(np.float32))
    more(writer)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return file


def linear(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(4.0)


def none(writer: Any) -> None:
    writer.add_rope_scaling_type(gguf.RopeScalingType.NONE)
    writer.add_rope_scaling_factor(1.0)
    writer.add_rope_scaling_orig_ctx_len(64)
    writer.add_float32("llama.rope.scale_linear", 1.0)
    writer.add_tensor("rope_freqs.weight", np.ones(2, dtype=np.float32))


def frequencies(writer: Any) -> None:
    writer.add_tensor("rope_freqs.weight", np.array([1, 8], dtype=np.float32))


def linear_as_once_written(writer: Any) -> None:
    writer.add_float32("llama.rope.scale_linear", 4.0)


def window(writer: Any) -> None:
    writer.add_sliding_window(16)


@pytest.mark.parametrize(
    ("more", "keys"),
    [
        (linear, "llama.rope.scaling.type, llama.rope.scaling.factor"),
        (linear_as_once_written, "llama.rope.scale_linear"),
        (frequencies, "rope_freqs.weight"),
        (window, "llama.attention.sliding_window"),
    ],
)
def test_what_would_be_left_out_is_named(more: Callable[[Any], None], keys: str, tmp_path: Path) -> None:
    file = write(tmp_path / "model.gguf", more)
    with pytest.raises(ValueError, match=f"{file} has {keys}, which transformers' reader of GGUF files leaves out"):
        require_readable(file)


@pytest.mark.parametrize("more", [nothing, none])
def test_what_changes_nothing_is_no_obstacle(more: Callable[[Any], None], tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    file = write(tmp_path / "model.gguf", more)
    require_readable(file)
    assert load_language_model(file, tokenizer=tokenizer()).max_length == 64


@pytest.mark.parametrize("share", [0.0, 0.05, 0.5, 0.99])
def test_a_file_that_is_cut_short_is_named(share: float, tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    content = write(tmp_path / "whole.gguf").read_bytes()
    file = tmp_path / "cut.gguf"
    file.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=f"{file} is cut short or is no GGUF file"):
        load_language_model(file, tokenizer=tokenizer())


def test_a_file_without_a_tokenizer_is_named(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    file = write(tmp_path / "model.gguf")
    with pytest.raises(ValueError, match=f"{file} has no tokenizer that loads"):
        load_language_model(file)
