"""The transformer of "Learning to grok" as a HookedTransformer: rotary positions, ReLU, no biases, tied embeddings."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import HookedTransformer
from transformer_lens.components.embed import Embed
from transformer_lens.config.hooked_transformer_config import HookedTransformerConfig
from transformer_lens.hook_points import HookPoint
from typing_extensions import override

from hc_lens.models.classifier import deprecation_expected
from hc_lens.modular.incontext.config import ModelConfig


def new_transformer(config: ModelConfig, p: int, n_shots: int, seed: int) -> HookedTransformer:
    """A transformer with weights drawn from `seed`, on the CPU, that reads up to `n_shots` examples; its vocabulary is 0..p-1.

    Of the biases only those of the LayerNorms are parameters. TransformerLens adds the others all the same: they are zeros that
    no optimizer sees.
    """
    with deprecation_expected():
        model = HookedTransformer(_hooked_config(config, p, n_shots))
    model.unembed = TiedUnembed(model.embed)  # pyright: ignore[reportAttributeAccessIssue]
    generator = torch.Generator().manual_seed(seed)
    out = config.init_std / (2 * config.depth) ** 0.5
    for name, parameter in list(model.named_parameters()):
        module, _, leaf = name.rpartition(".")
        if leaf.startswith("b_"):
            owner = model.get_submodule(module)
            delattr(owner, leaf)
            owner.register_buffer(leaf, torch.zeros_like(parameter))
        elif leaf.startswith("W_"):
            std = out if leaf in ("W_O", "W_out") else config.init_std
            nn.init.normal_(parameter, std=std, generator=generator)
    model.setup()
    return model


class TiedUnembed(nn.Module):
    """Logits by the transposed embedding; it has no weights of its own."""

    def __init__(self, embed: Embed) -> None:
        super().__init__()
        self.embed = (embed,)  # a tuple hides it from PyTorch: the weights belong to the embedding alone
        self.hook_in = HookPoint()
        self.hook_out = HookPoint()

    @property
    def W_U(self) -> Float[Tensor, "d_model residue"]:  # noqa: N802
        """The embedding, transposed."""
        return self.embed[0].W_E.T

    @property
    def b_U(self) -> Float[Tensor, " residue"]:  # noqa: N802
        """Zeros."""
        return self.W_U.new_zeros(self.W_U.shape[1])

    @override
    def forward(self, residual: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos residue"]:
        return self.hook_out(functional.linear(self.hook_in(residual), self.embed[0].W_E))


def _hooked_config(config: ModelConfig, p: int, n_shots: int) -> HookedTransformerConfig:
    return HookedTransformerConfig(
        n_layers=config.depth,
        d_model=config.width,
        n_ctx=3 * n_shots,
        d_head=config.width // config.heads,
        n_heads=config.heads,
        d_mlp=4 * config.width,
        d_vocab=p,
        act_fn="relu",
        normalization_type="LN",
        positional_embedding_type="rotary",
        rotary_dim=config.width // config.heads,
        default_prepend_bos=False,
        init_weights=False,
        device="cpu",
    )
