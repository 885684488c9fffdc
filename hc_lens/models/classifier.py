"""Sequence classifiers that are HookedEncoder and HookedTransformer instances: their hooks, plus a head, plus dropout.

Dropout acts in train mode only and at the places where transformers has it. It is applied by hooks on the modules in
front of TransformerLens's hook points, so that `hook_pattern`, `hook_attn_out`, `hook_mlp_out` and the embedding's hook point
see what the model goes on with; it survives `reset_hooks`.
"""

import copy
import warnings
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import HookedEncoder, HookedTransformer
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformer_lens.HookedRootModule import HookedRootModule
from transformers import PretrainedConfig, PreTrainedTokenizerBase
from typing_extensions import override

from hc_lens.models.architecture import Architecture, DropoutRates, FirstToken
from hc_lens.models.embeddings import PadSkippingEmbed, ProjectedEmbed
from hc_lens.models.inputs import Reading, TokenBatch, Tokens, check_tokens, last_text_position, tensor_of, tensor_of_rows
from hc_lens.models.without_unembedding import require_own_arguments, without_unembedding
from hc_lens.provenance import Provenance
from hc_lens.units import Unit

_C = TypeVar("_C", bound="Classifier")

ClassifierInput = TokenBatch | Tensor | NDArray[np.generic] | str | Sequence[str] | Sequence[Sequence[int]]
"""Rows with their mask; token ids [batch pos]; or texts."""


class Remains(NamedTuple):
    """The units that a compact model has left, and where they came from."""

    units: frozenset[Unit]
    provenance: Provenance


@without_unembedding
class Classifier(HookedRootModule):
    """A hooked sequence classifier; every instance is also a HookedEncoder or a HookedTransformer.

    Attributes: `label_names`, in the order of the logits; `family`, transformers' model type; `hf_config`, the transformers
    config it was built from; `tokenizer` or None; `pad_id` or None; `max_length`, the most tokens a row may have; `dropout`,
    the training rates; `architecture`, the description of the family; `remains`, of a compact model (`load_compact`): None for
    a whole one.
    """

    cfg: HookedTransformerConfig
    architecture: Architecture
    label_names: tuple[str, ...]
    hf_config: PretrainedConfig
    tokenizer: PreTrainedTokenizerBase | None
    pad_id: int | None
    dropout: DropoutRates
    classifier: nn.Linear
    remains: Remains | None = None

    @property
    def family(self) -> str:
        """transformers' model type."""
        return self.architecture.family

    @property
    def max_length(self) -> int:
        """Most tokens a row may have."""
        return self.cfg.n_ctx

    @override
    def forward(
        self,
        input: ClassifierInput,
        attention_mask: Tensor | NDArray[np.generic] | None = None,
        token_type_ids: Tensor | NDArray[np.generic] | None = None,
        **of_transformer_lens: object,
    ) -> Float[Tensor, "batch label"]:
        """Class logits. Without a mask, `pad_id` at the end of a row is padding.

        Raises:
            ValueError: for rows longer than `max_length`, ids that are no tokens of this model, and padding that is not on the
                right, or may be.
            TypeError: for an argument of TransformerLens's forward functions.
        """
        require_own_arguments(of_transformer_lens)
        return self.classify(self._tokens(input, attention_mask, token_type_ids))

    @property
    def reading(self) -> Reading:
        """How rows of tokens are read."""
        starts = (getattr(self.hf_config, "bos_token_id", None), getattr(self.tokenizer, "bos_token_id", None))
        return Reading(
            self.max_length,
            self.cfg.d_vocab,
            self.pad_id,
            frozenset(token for token in starts if isinstance(token, int)),
            causal=self.architecture.first_token is None,
            pad_is_assumed=self.architecture.first_token is None and self.hf_config.pad_token_id is None,
        )

    def classify(self, tokens: Tokens) -> Float[Tensor, "batch label"]:
        """Class logits of checked tokens."""
        raise NotImplementedError

    def save_pretrained(self, directory: str | Path) -> Path:
        """Write a transformers model directory with equal logits; see `hc_lens.models.export.save_pretrained`."""
        from hc_lens.models.export import save_pretrained  # export needs this module

        return save_pretrained(self, Path(directory))

    def constants(self) -> dict[str, Tensor]:
        """What TransformerLens keeps in the state dict besides the weights: masks, position tables, biases that are zero."""
        weights = {*dict(self.named_parameters()), "embed.position_prefix"}
        return {name: tensor for name, tensor in self.state_dict().items() if name not in weights}

    @override
    def to(  # pyright: ignore[reportIncompatibleMethodOverride]
        self: _C, device_or_dtype: torch.device | str | torch.dtype, print_details: bool = False
    ) -> _C:
        """As TransformerLens's, without its print."""
        return super().to(device_or_dtype, print_details)  # pyright: ignore[reportCallIssue, reportArgumentType]

    def _tokens(
        self, given: ClassifierInput, mask: Tensor | NDArray[np.generic] | None, types: Tensor | NDArray[np.generic] | None
    ) -> Tokens:
        if isinstance(given, TokenBatch):
            given, mask, types = given.input_ids, given.attention_mask, given.token_type_ids
        elif isinstance(given, Sequence) and not isinstance(given, str) and not all(isinstance(row, str) for row in given):
            given = tensor_of_rows(given)
        elif not isinstance(given, Tensor | np.ndarray):
            given, types, mask = self._encode(cast("str | Sequence[str]", given))
        ids, mask, types = tensor_of(given, "input_ids"), tensor_of(mask, "attention_mask"), tensor_of(types, "token_type_ids")
        device = self.classifier.weight.device
        return check_tokens(
            ids.to(device),
            None if mask is None else mask.to(device),
            None if types is None else types.to(device),
            self.reading,
        )

    def _encode(self, texts: str | Sequence[str]) -> tuple[Tensor, Tensor | None, Tensor]:
        if self.tokenizer is None:
            raise ValueError(f"{type(self).__name__} has no tokenizer: pass token ids, or pass tokenizer=... to load_model")
        rows = [texts] if isinstance(texts, str) else list(texts)
        encoded = self.tokenizer(rows, return_tensors="pt", padding=True, truncation=True, max_length=self.max_length)
        return encoded["input_ids"], encoded.get("token_type_ids"), encoded["attention_mask"]

    def _attach(
        self,
        architecture: Architecture,
        hf_config: PretrainedConfig,
        labels: tuple[str, ...],
        tokenizer: PreTrainedTokenizerBase | None,
    ) -> None:
        """What both constructors do last: the head, the dropout, the names."""
        self.architecture, self.hf_config, self.label_names = architecture, hf_config, labels
        self.tokenizer = right_padding(tokenizer)
        self.pad_id = pad_id_of(hf_config, self.tokenizer)
        self.dropout = architecture.dropout(hf_config)
        has_bias = architecture.first_token is not None
        self.classifier = nn.Linear(self.cfg.d_model, len(labels), bias=has_bias, device=self.cfg.device)
        zero_all_but(self, {name for entry in architecture.entries(hf_config) for name in entry.ours})
        for block in self.blocks:  # pyright: ignore[reportGeneralTypeIssues]
            block.attn.register_forward_hook(_drop(self.dropout.attention_out))
            block.attn.hook_pattern.register_forward_hook(_drop(self.dropout.attention))
            block.mlp.register_forward_hook(_drop(self.dropout.mlp_out))
        self.setup()


class EncoderClassifier(Classifier, HookedEncoder):  # pyright: ignore[reportIncompatibleMethodOverride]
    """BERT and its relatives: a linear layer on the pooled first token (`pooler` is each family's own square layer)."""

    first_token: FirstToken

    def __init__(
        self,
        architecture: Architecture,
        hf_config: PretrainedConfig,
        labels: tuple[str, ...],
        tokenizer: PreTrainedTokenizerBase | None = None,
        device: str = "cpu",
    ) -> None:
        """An uninitialised model: load a full state dict into it."""
        assert architecture.first_token is not None
        with deprecation_expected():
            HookedEncoder.__init__(self, architecture.hooked_config(hf_config, device))
        del self.mlm_head, self.unembed, self.nsp_head  # pretraining heads: allocated, never filled
        self.first_token = architecture.first_token
        self.pooler.activation = self.first_token.activation()  # pyright: ignore[reportAttributeAccessIssue]
        size = architecture.embedding_size(hf_config)
        if size is not None:
            self.embed = ProjectedEmbed(self.cfg, size).to(device)
        if offset := architecture.position_offset(hf_config):
            self.embed = PadSkippingEmbed(self.cfg, offset).to(device)
            self.register_load_state_dict_pre_hook(_renamed)
        if architecture.token_types is not None:
            types = torch.empty(architecture.token_types(hf_config), size or self.cfg.d_model, device=device)
            self.embed.token_type_embed.W_token_type = nn.Parameter(types)
        self._attach(architecture, hf_config, labels, tokenizer)
        self.embed.ln.register_forward_hook(_drop(self.dropout.embedding))

    @override
    def classify(self, tokens: Tokens) -> Float[Tensor, "batch label"]:
        types = tokens.types if self.architecture.token_types is not None else None
        first = self.encoder_output(tokens.ids, types, tokens.mask)[:, :1]
        if self.first_token.drops_input:
            first = functional.dropout(first, self.dropout.classifier, self.training)
        return self.classifier(functional.dropout(self.pooler(first), self.dropout.classifier, self.training))

    @override
    def to_tokens(
        self, input: str | list[str], move_to_device: bool = True, truncate: bool = True
    ) -> tuple[Int[Tensor, "batch pos"], Int[Tensor, "batch pos"], Int[Tensor, "batch pos"]]:
        """Ids, token types (zeros when the tokenizer has none) and mask, as HookedEncoder.to_tokens."""
        if self.tokenizer is None:
            raise ValueError("to_tokens needs a tokenizer: pass tokenizer=... to load_model")
        limit = self.max_length if truncate else None
        encoded = self.tokenizer(input, return_tensors="pt", padding=True, truncation=truncate, max_length=limit)
        ids: Tensor = encoded["input_ids"]
        types: Tensor = encoded.get("token_type_ids", torch.zeros_like(ids))
        mask: Tensor = encoded["attention_mask"]
        device = self.classifier.weight.device if move_to_device else ids.device
        return ids.to(device), types.to(device), mask.to(device)


class DecoderClassifier(Classifier, HookedTransformer):  # pyright: ignore[reportIncompatibleMethodOverride]
    """GPT-2 and its relatives: a linear layer without bias on the final state of each row's last token that is no pad token."""

    def __init__(
        self,
        architecture: Architecture,
        hf_config: PretrainedConfig,
        labels: tuple[str, ...],
        tokenizer: PreTrainedTokenizerBase | None = None,
        device: str = "cpu",
    ) -> None:
        """An uninitialised model: load a full state dict into it."""
        with deprecation_expected():
            HookedTransformer.__init__(self, architecture.hooked_config(hf_config, device))
        del self.unembed
        self._attach(architecture, hf_config, labels, tokenizer)
        if self.tokenizer is not None:
            self.cfg.tokenizer_prepends_bos = len(self.tokenizer.encode("")) > 0

    @override
    def classify(self, tokens: Tokens) -> Float[Tensor, "batch label"]:
        resid = self.hook_embed(self.embed(tokens.ids))
        if self.cfg.positional_embedding_type == "standard":
            resid = resid + self.hook_pos_embed(self.pos_embed(tokens.ids))
        resid = functional.dropout(resid, self.dropout.embedding, self.training)
        for block in self.blocks:
            resid = block(resid)  # no mask: the padding comes last, where causal attention does not look
        resid = self.ln_final(resid)
        rows = torch.arange(len(resid), device=resid.device)
        return self.classifier(resid[rows, last_text_position(tokens, self.pad_id)])


def classifier_class(architecture: Architecture) -> type[EncoderClassifier] | type[DecoderClassifier]:
    """The class of a family's classifiers."""
    return DecoderClassifier if architecture.first_token is None else EncoderClassifier


def _renamed(module: nn.Module, state: dict[str, Tensor], *rest: object) -> None:
    """Take a state dict of earlier versions, which kept `embed.position_prefix` one level up."""
    if "position_prefix" in state:
        state["embed.position_prefix"] = state.pop("position_prefix")


@contextmanager
def deprecation_expected() -> Generator[None]:
    """Silence TransformerLens 3.9's notice that 4.0 will remove the hooked classes: the pin `<4` is on purpose."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Hooked.* is deprecated", category=DeprecationWarning)
        yield


def _drop(rate: float) -> Callable[[nn.Module, object, Tensor], Tensor]:
    """A module hook that drops its output in train mode."""

    def hook(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        return functional.dropout(output, rate, module.training)

    return hook


def zero_all_but(model: nn.Module, trained: set[str]) -> None:
    """Make constants of the parameters that transformers does not have, mostly biases: training must not move them."""
    for name, parameter in list(model.named_parameters()):
        if name not in trained:
            module, _, leaf = name.rpartition(".")
            owner = model.get_submodule(module)
            delattr(owner, leaf)
            owner.register_buffer(leaf, torch.zeros_like(parameter))


def right_padding(tokenizer: PreTrainedTokenizerBase | None) -> PreTrainedTokenizerBase | None:
    """The tokenizer, or a copy that pads on the right and has a pad token (GPT-2's has none)."""
    if tokenizer is None or (tokenizer.padding_side == "right" and tokenizer.pad_token is not None):
        return tokenizer
    tokenizer = copy.deepcopy(tokenizer)
    tokenizer.padding_side = "right"
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    return tokenizer


def pad_id_of(hf_config: PretrainedConfig, tokenizer: PreTrainedTokenizerBase | None) -> int | None:
    """The id that pads rows: the config's, else the tokenizer's, else that of the end of a text."""
    tokenizer_pad = None if tokenizer is None else tokenizer.pad_token_id
    candidates = (getattr(hf_config, "pad_token_id", None), tokenizer_pad, getattr(hf_config, "eos_token_id", None))
    return next((pad for pad in candidates if isinstance(pad, int) and pad >= 0), None)
