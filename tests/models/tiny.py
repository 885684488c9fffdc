"""Small random transformers models of every family, and batches to run through them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    DistilBertConfig,
    ElectraConfig,
    GPT2Config,
    GPTNeoXConfig,
    LlamaConfig,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2Config,
    RobertaConfig,
)

from hc_lens.models import DropoutRates
from hc_lens.models.architecture import NO_DROPOUT

VOCAB = 37
LENGTHS = (13, 3, 8, 1)


class TinyBatch(NamedTuple):
    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor | None


@dataclass(frozen=True)
class TinyFamily:
    """A config of unequal sizes, so that no two axes can be confused: 3 layers, width 40, odd vocabulary."""

    config: type[PretrainedConfig]
    fields: Mapping[str, object]
    is_decoder: bool = False
    n_heads: int = 5
    pad: int = 0
    has_types: bool = False
    dropout: Mapping[str, float] = field(default_factory=dict)
    """A rate of its own for every field of the config that says one."""
    rates: DropoutRates = NO_DROPOUT
    """What the model must make of them."""


_ENCODER = {
    "vocab_size": VOCAB,
    "hidden_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 5,
    "intermediate_size": 28,
    "max_position_embeddings": 16,
}
_DECODER = {**_ENCODER, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2}
# Narrower weights: a gated MLP's products of two activations would make rounding errors large.
_GROUPED = {**_DECODER, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.1}
_ENCODER_DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.2, "classifier_dropout": 0.4}
_ENCODER_RATES = DropoutRates(0.1, 0.2, 0.1, 0.1, 0.4)

TINY: Mapping[str, TinyFamily] = {
    "bert": TinyFamily(BertConfig, _ENCODER, has_types=True, dropout=_ENCODER_DROPOUT, rates=_ENCODER_RATES),
    "roberta": TinyFamily(
        RobertaConfig,
        {**_ENCODER, "max_position_embeddings": 18, "pad_token_id": 1, "type_vocab_size": 1},
        pad=1,
        dropout=_ENCODER_DROPOUT,
        rates=_ENCODER_RATES,
    ),
    "distilbert": TinyFamily(
        DistilBertConfig,
        {"vocab_size": VOCAB, "dim": 40, "n_layers": 3, "n_heads": 5, "hidden_dim": 28, "max_position_embeddings": 16},
        dropout={"dropout": 0.1, "attention_dropout": 0.2, "seq_classif_dropout": 0.4},
        rates=DropoutRates(0.1, 0.2, 0.0, 0.1, 0.4),
    ),
    "electra": TinyFamily(
        ElectraConfig,
        {**_ENCODER, "embedding_size": 24},
        has_types=True,
        dropout=_ENCODER_DROPOUT,
        rates=_ENCODER_RATES,
    ),
    "gpt2": TinyFamily(
        GPT2Config,
        {
            **{"vocab_size": VOCAB, "n_embd": 40, "n_layer": 3, "n_head": 5, "n_positions": 16},
            **{"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2},
        },
        is_decoder=True,
        dropout={"embd_pdrop": 0.1, "attn_pdrop": 0.2, "resid_pdrop": 0.3},
        rates=DropoutRates(0.1, 0.2, 0.3, 0.3, 0.0),
    ),
    "gpt_neox": TinyFamily(
        GPTNeoXConfig,
        {**_DECODER, "rotary_pct": 0.5},
        is_decoder=True,
        dropout={"hidden_dropout": 0.1, "attention_dropout": 0.2},
        rates=DropoutRates(0.1, 0.2, 0.1, 0.1, 0.0),
    ),
    "llama": TinyFamily(
        LlamaConfig,
        {**_GROUPED, "head_dim": 8, "rope_theta": 500.0},
        is_decoder=True,
        n_heads=4,
        dropout={"attention_dropout": 0.2},
        rates=DropoutRates(0.0, 0.2, 0.0, 0.0, 0.0),
    ),
    "qwen2": TinyFamily(
        Qwen2Config,
        _GROUPED,
        is_decoder=True,
        n_heads=4,
        dropout={"attention_dropout": 0.2},
        rates=DropoutRates(0.0, 0.2, 0.0, 0.0, 0.0),
    ),
}
FAMILIES = tuple(TINY)


def config(family: str, **changes: object) -> PretrainedConfig:
    """The family's tiny config, with wide initial weights and three labels."""
    made = TINY[family].config(**{"initializer_range": 0.2, "num_labels": 3, **TINY[family].fields, **changes})
    made._attn_implementation = "eager"
    return made


def transformers_model(family: str, **changes: object) -> PreTrainedModel:
    """Random weights everywhere, biases and LayerNorms included, so that none can be dropped unnoticed."""
    torch.manual_seed(7)
    model = AutoModelForSequenceClassification.from_config(config(family, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(family: str) -> TinyBatch:
    """Rows of mixed length, right-padded, with token types where the family has them."""
    generator = torch.Generator().manual_seed(3)
    width = max(LENGTHS)
    ids = torch.randint(3, VOCAB, (len(LENGTHS), width), generator=generator)
    mask = (torch.arange(width) < torch.tensor(LENGTHS)[:, None]).long()
    types = torch.randint(0, 2, ids.shape, generator=generator) if TINY[family].has_types else None
    return TinyBatch(ids.masked_fill(mask == 0, TINY[family].pad), mask, types)


def reference_logits(model: PreTrainedModel, tokens: TinyBatch) -> Tensor:
    """What transformers itself answers."""
    types = {} if tokens.token_type_ids is None else {"token_type_ids": tokens.token_type_ids}
    with torch.no_grad():
        return model(tokens.input_ids, attention_mask=tokens.attention_mask, **types).logits


def tokenizer(pad: bool = True, side: str = "right") -> PreTrainedTokenizerFast:
    """Words to ids, without any file."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["[PAD]", "[UNK]", "[END]", "the", "cat", "dog", "saw", "slept"]
    built = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    built.pre_tokenizer = pre_tokenizers.Whitespace()
    special = {"pad_token": "[PAD]"} if pad else {}
    return PreTrainedTokenizerFast(
        tokenizer_object=built, unk_token="[UNK]", bos_token="[END]", eos_token="[END]", padding_side=side, **special
    )
