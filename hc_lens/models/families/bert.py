"""BERT (MiniLM included) and RoBERTa (DistilRoBERTa included)."""

import torch
from torch import nn
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, DropoutRates, FirstToken, activation, require
from hc_lens.models.weights import Entry, head_bias, into_heads, linear, norm, out_of_heads, same


def encoder_config(config: PretrainedConfig, device: str, position_offset: int = 0) -> HookedTransformerConfig:
    """The hooked config of BERT and what is built like it."""
    require(config, "is_decoder", False)
    require(config, "position_embedding_type", "absolute")
    d_model: int = config.hidden_size
    return HookedTransformerConfig(
        model_name=config.model_type,
        d_model=d_model,
        d_head=d_model // config.num_attention_heads,
        n_heads=config.num_attention_heads,
        n_layers=config.num_hidden_layers,
        n_ctx=config.max_position_embeddings - position_offset,
        d_mlp=config.intermediate_size,
        d_vocab=config.vocab_size,
        act_fn=activation(config.hidden_act),
        eps=config.layer_norm_eps,
        attention_dir="bidirectional",
        init_weights=False,
        device=device,
    )


def encoder_dropout(config: PretrainedConfig) -> DropoutRates:
    """Dropout of BERT and what is built like it: the classifier's is the hidden states' unless it has its own."""
    hidden: float = config.hidden_dropout_prob
    classifier: float | None = getattr(config, "classifier_dropout", None)
    return DropoutRates(
        hidden, config.attention_probs_dropout_prob, hidden, hidden, hidden if classifier is None else classifier
    )


def embeddings(prefix: str, position: Entry) -> list[Entry]:
    """Words, positions and token types of BERT and what is built like it."""
    theirs = f"{prefix}.embeddings"
    return [
        same(f"{theirs}.word_embeddings.weight", "embed.embed.W_E"),
        position,
        same(f"{theirs}.token_type_embeddings.weight", "embed.token_type_embed.W_token_type"),
        *norm(f"{theirs}.LayerNorm", "embed.ln"),
    ]


def positions(prefix: str) -> Entry:
    """A position table whose first row is the first token's."""
    return same(f"{prefix}.embeddings.position_embeddings.weight", "embed.pos_embed.W_pos")


def blocks(prefix: str, config: PretrainedConfig) -> list[Entry]:
    """All blocks of BERT and what is built like it."""
    return [entry for layer in range(config.num_hidden_layers) for entry in _block(prefix, layer, config.num_attention_heads)]


def _block(prefix: str, layer: int, n_heads: int) -> list[Entry]:
    theirs, ours = f"{prefix}.encoder.layer.{layer}", f"blocks.{layer}"
    attention = f"{theirs}.attention.self"
    return [
        into_heads(f"{attention}.query.weight", f"{ours}.attn.W_Q", n_heads),
        head_bias(f"{attention}.query.bias", f"{ours}.attn.b_Q", n_heads),
        into_heads(f"{attention}.key.weight", f"{ours}.attn.W_K", n_heads),
        head_bias(f"{attention}.key.bias", f"{ours}.attn.b_K", n_heads),
        into_heads(f"{attention}.value.weight", f"{ours}.attn.W_V", n_heads),
        head_bias(f"{attention}.value.bias", f"{ours}.attn.b_V", n_heads),
        out_of_heads(f"{theirs}.attention.output.dense.weight", f"{ours}.attn.W_O", n_heads),
        same(f"{theirs}.attention.output.dense.bias", f"{ours}.attn.b_O"),
        *norm(f"{theirs}.attention.output.LayerNorm", f"{ours}.ln1"),
        *linear(f"{theirs}.intermediate.dense", f"{ours}.mlp.W_in", f"{ours}.mlp.b_in"),
        *linear(f"{theirs}.output.dense", f"{ours}.mlp.W_out", f"{ours}.mlp.b_out"),
        *norm(f"{theirs}.output.LayerNorm", f"{ours}.ln2"),
    ]


def output_layer(theirs: str) -> list[Entry]:
    """The layer from the pooled state to the logits."""
    return [
        same(f"{theirs}.weight", "classifier.weight", is_head=True),
        same(f"{theirs}.bias", "classifier.bias", is_head=True),
    ]


def _bert_entries(config: PretrainedConfig) -> list[Entry]:
    return [
        *embeddings("bert", positions("bert")),
        *blocks("bert", config),
        *linear("bert.pooler.dense", "pooler.W", "pooler.b", is_head=True),
        *output_layer("classifier"),
    ]


def _roberta_entries(config: PretrainedConfig) -> list[Entry]:
    offset = _roberta_offset(config)
    # Rows before that of the first token come first: the last of them is the pad token's.
    position = Entry(
        "roberta.embeddings.position_embeddings.weight",
        ("embed.position_prefix", "embed.pos_embed.W_pos"),
        lambda w: (w[:offset], w[offset:]),
        lambda parts: torch.cat(parts),
    )
    return [
        *embeddings("roberta", position),
        *blocks("roberta", config),
        # RoBERTa's head is a tanh layer on the first token before the output layer: BERT's pooler by another name.
        *linear("classifier.dense", "pooler.W", "pooler.b", is_head=True),
        *output_layer("classifier.out_proj"),
    ]


def _roberta_offset(config: PretrainedConfig) -> int:
    """RoBERTa counts positions from pad_token_id + 1.

    Raises:
        ValueError: for a config without a pad token.
    """
    if config.pad_token_id is None or config.pad_token_id < 0:
        raise ValueError(f"roberta with pad_token_id={config.pad_token_id} is not supported: positions are counted from it")
    return config.pad_token_id + 1


BERT = Architecture(
    family="bert",
    hf_class="BertForSequenceClassification",
    hooked_config=encoder_config,
    entries=_bert_entries,
    dropout=encoder_dropout,
    first_token=FirstToken(nn.Tanh, drops_input=False),
    token_types=lambda config: config.type_vocab_size,
)

ROBERTA = Architecture(
    family="roberta",
    hf_class="RobertaForSequenceClassification",
    hooked_config=lambda config, device: encoder_config(config, device, _roberta_offset(config)),
    entries=_roberta_entries,
    dropout=encoder_dropout,
    first_token=FirstToken(nn.Tanh, drops_input=True),
    token_types=lambda config: config.type_vocab_size,
    position_offset=_roberta_offset,
)
