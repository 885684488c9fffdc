"""GPT-NeoX: Pythia and its relatives."""

from einops import rearrange
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, DropoutRates, activation
from hc_lens.models.families.rotary import set_rotary
from hc_lens.models.weights import Entry, linear, norm, out_of_heads, same


def _hooked_config(config: PretrainedConfig, device: str) -> HookedTransformerConfig:
    d_head: int = config.hidden_size // config.num_attention_heads
    cfg = HookedTransformerConfig(
        model_name="gpt_neox",
        d_model=config.hidden_size,
        d_head=d_head,
        n_heads=config.num_attention_heads,
        n_layers=config.num_hidden_layers,
        n_ctx=config.max_position_embeddings,
        d_mlp=config.intermediate_size,
        d_vocab=config.vocab_size,
        act_fn=activation(config.hidden_act),
        eps=config.layer_norm_eps,
        parallel_attn_mlp=config.use_parallel_residual,
        attention_dir="causal",
        default_prepend_bos=False,
        init_weights=False,
        device=device,
    )
    return set_rotary(cfg, config, int(d_head * config.rope_parameters["partial_rotary_factor"]))


def _entries(config: PretrainedConfig) -> list[Entry]:
    return [
        same("gpt_neox.embed_in.weight", "embed.W_E"),
        *(entry for layer in range(config.num_hidden_layers) for entry in _block(layer, config)),
        *norm("gpt_neox.final_layer_norm", "ln_final"),
        same("score.weight", "classifier.weight", is_head=True),
    ]


def _block(layer: int, config: PretrainedConfig) -> list[Entry]:
    theirs, ours = f"gpt_neox.layers.{layer}", f"blocks.{layer}"
    n_heads: int = config.num_attention_heads
    qkv = Entry(
        f"{theirs}.attention.query_key_value.weight",
        (f"{ours}.attn.W_Q", f"{ours}.attn.W_K", f"{ours}.attn.W_V"),
        lambda w: tuple(rearrange(w, "(head qkv d_head) d_model -> qkv head d_model d_head", qkv=3, head=n_heads)),
        lambda parts: rearrange(list(parts), "qkv head d_model d_head -> (head qkv d_head) d_model"),
    )
    biases = [
        Entry(
            f"{theirs}.attention.query_key_value.bias",
            (f"{ours}.attn.b_Q", f"{ours}.attn.b_K", f"{ours}.attn.b_V"),
            lambda b: tuple(rearrange(b, "(head qkv d_head) -> qkv head d_head", qkv=3, head=n_heads)),
            lambda parts: rearrange(list(parts), "qkv head d_head -> (head qkv d_head)"),
        ),
        same(f"{theirs}.attention.dense.bias", f"{ours}.attn.b_O"),
    ]
    return [
        qkv,
        out_of_heads(f"{theirs}.attention.dense.weight", f"{ours}.attn.W_O", n_heads),
        *(biases if config.attention_bias else []),
        *norm(f"{theirs}.input_layernorm", f"{ours}.ln1"),
        *norm(f"{theirs}.post_attention_layernorm", f"{ours}.ln2"),
        *linear(f"{theirs}.mlp.dense_h_to_4h", f"{ours}.mlp.W_in", f"{ours}.mlp.b_in"),
        *linear(f"{theirs}.mlp.dense_4h_to_h", f"{ours}.mlp.W_out", f"{ours}.mlp.b_out"),
    ]


def _dropout(config: PretrainedConfig) -> DropoutRates:
    hidden: float = config.hidden_dropout
    return DropoutRates(hidden, config.attention_dropout, hidden, hidden, 0.0)


GPT_NEOX = Architecture(
    family="gpt_neox",
    hf_class="GPTNeoXForSequenceClassification",
    hooked_config=_hooked_config,
    entries=_entries,
    dropout=_dropout,
    bias_flags={"attn": "attention_bias"},
)
