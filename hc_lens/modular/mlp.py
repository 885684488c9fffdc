"""Networks of one hidden layer over numbers modulo p: f(n_1, ..., n_S) = W phi(sum_s U_s[n_s])."""

from collections.abc import Callable
from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn import functional
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from hc_lens.modular.config import Activation, MlpConfig


class ModularMlp(HookedRootModule):
    """A network of one hidden layer without biases, whose inputs are looked up, not multiplied with one-hot vectors.

    Hook points, each Float[Tensor, "batch neuron"]: `hook_pre`, the sum of the terms; `hook_post`, what W multiplies.

    Attributes:
        U: Float[Tensor, "term residue neuron"], a table for each input.
        W: Float[Tensor, "neuron residue"].
    """

    def __init__(self, config: MlpConfig, seed: int = 0) -> None:
        """Weights are normal with standard deviation 0.5 / (2 N)^(1/3) (Doshi et al. 2023), drawn from `seed`."""
        super().__init__()
        self.config = config
        generator = torch.Generator().manual_seed(seed)
        std = 0.5 / (2 * config.n_neurons) ** (1 / 3)
        self.U = nn.Parameter(std * torch.randn(config.terms, config.p, config.n_neurons, generator=generator))
        self.W = nn.Parameter(std * torch.randn(config.n_neurons, config.p, generator=generator))
        self.dropout = nn.Dropout(config.dropout)
        self.activation = _activation(config)
        self.norm = nn.BatchNorm1d(config.n_neurons) if config.batch_norm else nn.Identity()
        self.hook_pre = HookPoint()
        self.hook_post = HookPoint()
        self.setup()

    @staticmethod
    def with_weights(
        U: Float[Tensor, "term residue neuron"], W: Float[Tensor, "neuron residue"], activation: Activation = "power"
    ) -> "ModularMlp":
        """The network of given weights, which become its parameters.

        Raises:
            ValueError: if the number of residues is not a prime.
        """
        terms, p, n_neurons = U.shape
        model = ModularMlp(MlpConfig(p, n_neurons, terms, activation))
        model.U.data, model.W.data = U, W
        return model

    def forward(self, numbers: Int[Tensor, "batch term"]) -> Float[Tensor, "batch residue"]:
        """Logits of the p answers for rows of S numbers in 0..p-1."""
        return self.readout(sum_of_terms(self.U, numbers))

    def readout(self, pre: Float[Tensor, "batch neuron"]) -> Float[Tensor, "batch residue"]:
        """Logits from pre-activations: for inputs that are mixtures of numbers, such as another network's softmax."""
        post = self.norm(self.activation(self.dropout(self.hook_pre(pre))))
        return self.hook_post(post) @ self.W


def sum_of_terms(U: Float[Tensor, "term residue neuron"], numbers: Int[Tensor, "batch term"]) -> Float[Tensor, "batch neuron"]:
    """sum_s U_s[n_s], gathered and added up in one pass."""
    terms, p, _ = U.shape
    return functional.embedding_bag(numbers + p * torch.arange(terms, device=numbers.device), U.flatten(0, 1), mode="sum")


def _activation(config: MlpConfig) -> Callable[[Tensor], Tensor]:
    if config.activation == "relu":
        return torch.relu
    if config.activation == "gelu":
        return functional.gelu
    return partial(torch.pow, exponent=config.terms)
