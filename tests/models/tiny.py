"""Small random transformers models of every family, and batches to run through them."""

from typing import NamedTuple

import torch
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    GPT2Config,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

FAMILIES = ("bert", "roberta", "gpt2")
VOCAB = 37
LENGTHS = (13, 3, 8, 1)


class TinyBatch(NamedTuple):
    input_ids: Tensor
    attention_mask: Tensor
    token_type_ids: Tensor | None


def config(family: str, **changes: object) -> PretrainedConfig:
    """Unequal sizes, so that no two axes can be confused: 3 layers, 5 heads, odd vocabulary."""
    encoder = {
        "vocab_size": VOCAB,
        "hidden_size": 40,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "intermediate_size": 28,
        "initializer_range": 0.2,
        "num_labels": 3,
    }
    if family == "bert":
        made: PretrainedConfig = BertConfig(**{**encoder, "max_position_embeddings": 16, **changes})
    elif family == "roberta":
        roberta = {"max_position_embeddings": 18, "pad_token_id": 1, "type_vocab_size": 1}
        made = RobertaConfig(**{**encoder, **roberta, **changes})
    else:
        decoder = {"vocab_size": VOCAB, "n_embd": 40, "n_layer": 3, "n_head": 5, "n_positions": 16, "initializer_range": 0.2}
        special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 2, "num_labels": 3}
        made = GPT2Config(**{**decoder, **special, **changes})
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
    pad = 1 if family == "roberta" else 0
    generator = torch.Generator().manual_seed(3)
    width = max(LENGTHS)
    ids = torch.randint(3, VOCAB, (len(LENGTHS), width), generator=generator)
    mask = (torch.arange(width) < torch.tensor(LENGTHS)[:, None]).long()
    types = torch.randint(0, 2, ids.shape, generator=generator) if family == "bert" else None
    return TinyBatch(ids.masked_fill(mask == 0, pad), mask, types)


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
