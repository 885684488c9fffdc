"""ELECTRA: BERT's blocks on embeddings that may be narrower than the residual stream."""

from torch import nn
from transformers import PretrainedConfig

from hc_lens.models.architecture import Architecture, FirstToken
from hc_lens.models.families.bert import blocks, embeddings, encoder_config, encoder_dropout, output_layer, positions
from hc_lens.models.weights import Entry, linear, same


def _entries(config: PretrainedConfig) -> list[Entry]:
    projection = [
        same("electra.embeddings_project.weight", "embed.project.weight"),
        same("electra.embeddings_project.bias", "embed.project.bias"),
    ]
    return [
        *embeddings("electra", positions("electra")),
        *(projection if _embedding_size(config) is not None else []),
        *blocks("electra", config),
        *linear("classifier.dense", "pooler.W", "pooler.b", is_head=True),
        *output_layer("classifier.out_proj"),
    ]


def _embedding_size(config: PretrainedConfig) -> int | None:
    return None if config.embedding_size == config.hidden_size else config.embedding_size


ELECTRA = Architecture(
    family="electra",
    hf_class="ElectraForSequenceClassification",
    hooked_config=encoder_config,
    entries=_entries,
    dropout=encoder_dropout,
    first_token=FirstToken(nn.GELU, drops_input=True),
    token_types=lambda config: config.type_vocab_size,
    embedding_size=_embedding_size,
)
