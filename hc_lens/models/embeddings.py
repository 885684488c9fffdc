"""Embeddings of encoders that are not BERT's: narrower ones, and positions that skip pad tokens."""

import copy

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformer_lens.components.bert_embed import BertEmbed
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from typing_extensions import override


class ProjectedEmbed(BertEmbed):
    """Embeddings of `size` components, each position's projected to the residual stream's width (ELECTRA)."""

    def __init__(self, cfg: HookedTransformerConfig, size: int) -> None:
        narrow = copy.copy(cfg)
        narrow.d_model = size
        super().__init__(narrow)
        self.ln.cfg = cfg  # it computes in the model's own dtype, which `to` may change
        self.project = nn.Linear(size, cfg.d_model)

    @override
    def forward(
        self, input_ids: Int[Tensor, "batch pos"], token_type_ids: Int[Tensor, "batch pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        return self.project(super().forward(input_ids, token_type_ids))


class PadSkippingEmbed(BertEmbed):
    """Embeddings whose positions count all tokens but pad tokens, which have a position of their own (RoBERTa).

    `position_prefix` are the rows of the position table before that of the first token; the pad token's is the last of them.
    """

    position_prefix: Float[Tensor, "offset d_model"]

    def __init__(self, cfg: HookedTransformerConfig, offset: int) -> None:
        super().__init__(cfg)
        self.register_buffer("position_prefix", torch.zeros(offset, cfg.d_model, dtype=cfg.dtype))

    @override
    def forward(
        self, input_ids: Int[Tensor, "batch pos"], token_type_ids: Int[Tensor, "batch pos"] | None = None
    ) -> Float[Tensor, "batch pos d_model"]:
        text = input_ids != len(self.position_prefix) - 1
        places = (text.cumsum(dim=1) - 1).clamp(min=0)
        positions = torch.where(text.unsqueeze(-1), self.pos_embed.W_pos[places], self.position_prefix[-1])
        types = self.token_type_embed(torch.zeros_like(input_ids) if token_type_ids is None else token_type_ids)
        words = self.hook_embed(self.embed(input_ids))
        return self.ln(words + self.hook_pos_embed(positions) + self.hook_token_type_embed(types))
