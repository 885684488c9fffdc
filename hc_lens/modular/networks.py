"""What can be trained on pairs modulo a prime, and the same questions put to each: its answers, its neurons, their weights."""

from typing import cast

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer, HookedTransformerConfig

from hc_lens.forward import device_of
from hc_lens.models.classifier import deprecation_expected
from hc_lens.modular.config import MlpConfig, TransformerConfig
from hc_lens.modular.mlp import ModularMlp

Network = ModularMlp | HookedTransformer
"""An MLP, or a transformer of one block that reads the pair as two tokens and answers at the second."""


def new_network(config: MlpConfig | TransformerConfig, seed: int) -> Network:
    """A network with random weights drawn from `seed`; the global random state is left as it was."""
    if isinstance(config, MlpConfig):
        return ModularMlp(config, seed)
    shape = HookedTransformerConfig(
        n_layers=1,
        d_model=config.d_model,
        n_heads=config.n_heads,
        d_head=config.d_model // config.n_heads,
        d_mlp=4 * config.d_model,
        n_ctx=2,
        d_vocab=config.p,
        act_fn="relu",
        normalization_type=None,
        attention_dir="bidirectional",
        device="cpu",
    )
    with torch.random.fork_rng([]), deprecation_expected():
        torch.manual_seed(seed)
        return HookedTransformer(shape)


def answers(model: Network, numbers: Int[Tensor, "batch term"]) -> Float[Tensor, "batch residue"]:
    """Logits of the p answers, on the network's device."""
    logits: Tensor = model(numbers.to(device_of(model)))
    return logits if isinstance(model, ModularMlp) else logits[:, -1]


def neuron_point(model: Network) -> str:
    """Hook point of the hidden neurons after their activation function; their axis is the last."""
    return "hook_post" if isinstance(model, ModularMlp) else "blocks.0.mlp.hook_post"


def neuron_count(model: Network) -> int:
    """How many hidden neurons a network has."""
    return model.config.n_neurons if isinstance(model, ModularMlp) else cast(int, model.cfg.d_mlp)


def neuron_weights(model: Network) -> list[Float[Tensor, "residue neuron"]]:
    """Each neuron's weight vectors over the numbers that go in (one for each term) and over the answers: detached, on the CPU.

    A transformer's are those of the paths without attention: W_E W_in, the same for both terms, and W_out W_U.
    """
    with torch.no_grad():
        if isinstance(model, ModularMlp):
            return [*model.U.detach().cpu(), model.W.detach().cpu().T]
        mlp = model.blocks[0].mlp
        return [(model.W_E @ mlp.W_in).cpu(), (mlp.W_out @ model.W_U).T.cpu()]
