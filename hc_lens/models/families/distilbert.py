"""DistilBERT: BERT's blocks without token types, with a ReLU layer of its own in the head."""

from torch import nn
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, DropoutRates, FirstToken, activation
from hc_lens.models.families.bert import output_layer, positions
from hc_lens.models.weights import Entry, head_bias, into_heads, linear, norm, out_of_heads, same

_EPS = 1e-12  # of every LayerNorm; the config has no field for it


def _hooked_config(config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    return HookedTransformerConfig(
        model_name="distilbert",
        d_model=config.dim,
        d_head=config.dim // config.n_heads,
        n_heads=config.n_heads,
        n_layers=config.n_layers,
        n_ctx=config.max_position_embeddings,
        d_mlp=config.hidden_dim,
        d_vocab=config.vocab_size,
        act_fn=activation(config.activation),
        eps=_EPS,
        attention_dir="bidirectional",
        init_weights=False,
        device=device,
    )


def _entries(config: PretrainedConfig) -> list[Entry]:
    return [
        same("distilbert.embeddings.word_embeddings.weight", "embed.embed.W_E"),
        positions("distilbert"),
        *norm("distilbert.embeddings.LayerNorm", "embed.ln"),
        *(entry for layer in range(config.n_layers) for entry in _block(layer, config.n_heads)),
        *linear("pre_classifier", "pooler.W", "pooler.b", is_head=True),
        *output_layer("classifier"),
    ]


def _block(layer: int, n_heads: int) -> list[Entry]:
    theirs, ours = f"distilbert.transformer.layer.{layer}", f"blocks.{layer}"
    return [
        into_heads(f"{theirs}.attention.q_lin.weight", f"{ours}.attn.W_Q", n_heads),
        head_bias(f"{theirs}.attention.q_lin.bias", f"{ours}.attn.b_Q", n_heads),
        into_heads(f"{theirs}.attention.k_lin.weight", f"{ours}.attn.W_K", n_heads),
        head_bias(f"{theirs}.attention.k_lin.bias", f"{ours}.attn.b_K", n_heads),
        into_heads(f"{theirs}.attention.v_lin.weight", f"{ours}.attn.W_V", n_heads),
        head_bias(f"{theirs}.attention.v_lin.bias", f"{ours}.attn.b_V", n_heads),
        out_of_heads(f"{theirs}.attention.out_lin.weight", f"{ours}.attn.W_O", n_heads),
        same(f"{theirs}.attention.out_lin.bias", f"{ours}.attn.b_O"),
        *norm(f"{theirs}.sa_layer_norm", f"{ours}.ln1"),
        *linear(f"{theirs}.ffn.lin1", f"{ours}.mlp.W_in", f"{ours}.mlp.b_in"),
        *linear(f"{theirs}.ffn.lin2", f"{ours}.mlp.W_out", f"{ours}.mlp.b_out"),
        *norm(f"{theirs}.output_layer_norm", f"{ours}.ln2"),
    ]


def _dropout(config: PretrainedConfig) -> DropoutRates:
    # transformers has no dropout behind DistilBERT's attention.
    return DropoutRates(config.dropout, config.attention_dropout, 0.0, config.dropout, config.seq_classif_dropout)


DISTILBERT = Architecture(
    family="distilbert",
    hf_class="DistilBertForSequenceClassification",
    hooked_config=_hooked_config,
    entries=_entries,
    dropout=_dropout,
    first_token=FirstToken(nn.ReLU, drops_input=False),
)
