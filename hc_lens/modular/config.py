"""What a network is, and how it is trained on which pairs: settings, apart from what computes with them."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from hc_lens.modular.limits import require_prime, require_xi, train_size

Activation = Literal["power", "relu", "gelu"]
"""phi; "power" is x^S for S terms: the square for pairs (Doshi et al. 2023), x^S for longer sums (Doshi et al. 2024)."""

LossName = Literal["mse", "cross_entropy"]
"""Mean squared error to one-hot answers, over all entries, or cross-entropy."""

Operation = Literal["add", "multiply"]
"""What the network learns: a + b or a b, modulo p."""

GENERALIZING = 0.5
"""A neuron with at least this IPR counts as periodic. Without weight decay hardly any lies between 0.1 and 0.7."""


@dataclass(frozen=True)
class MlpConfig:
    """The shape of a network.

    Attributes:
        p: the modulus, a prime: each input is one of 0..p-1, and so is the answer.
        n_neurons: N, width of the hidden layer.
        terms: S, how many numbers go in.
        activation: phi.
        dropout: rate at which pre-activations are dropped in training.
        batch_norm: whether a BatchNorm follows phi: W BN(phi(.)).

    Raises:
        ValueError: if a field is out of its range.
    """

    p: int
    n_neurons: int
    terms: int = 2
    activation: Activation = "power"
    dropout: float = 0.0
    batch_norm: bool = False

    def __post_init__(self) -> None:
        require_prime(self.p)
        if self.n_neurons < 1 or self.terms < 1:
            raise ValueError(f"n_neurons and terms must be at least 1, got {self.n_neurons} and {self.terms}")
        if self.activation not in get_args(Activation):
            raise ValueError(f"activation must be one of {list(get_args(Activation))}, got {self.activation!r}")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be in [0, 1), got {self.dropout}")


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a one-block transformer without LayerNorm; attention goes both ways (Doshi et al. 2023, appendix).

    Raises:
        ValueError: if a field is out of its range.
    """

    p: int
    d_model: int = 128
    n_heads: int = 4

    def __post_init__(self) -> None:
        require_prime(self.p)
        if self.n_heads < 1 or self.d_model < 1 or self.d_model % self.n_heads:
            raise ValueError(f"n_heads must divide d_model, both at least 1, got {self.n_heads} and {self.d_model}")


@dataclass(frozen=True)
class FitConfig:
    """How to train, with decoupled weight decay (Adam's L2 penalty of the same strength learns nothing).

    Attributes:
        batch_size: pairs in a step, each pair once per pass over them in an order drawn from `seed`; None: all at every step.
        measure_every, checkpoint_every: steps between two measurements, and between two checkpoints (None: at the end only).
        seed: of the order of the pairs and of dropout.

    Raises:
        ValueError: if a field is out of its range.
    """

    steps: int = 1_000
    lr: float = 0.01
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.98)
    loss: LossName = "mse"
    batch_size: int | None = None
    measure_every: int = 10
    checkpoint_every: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "measure_every", "checkpoint_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not self.lr > 0:
            raise ValueError(f"lr must be positive, got {self.lr}")
        if not self.weight_decay >= 0:
            raise ValueError(f"weight_decay must not be negative, got {self.weight_decay}")
        if self.loss not in get_args(LossName):
            raise ValueError(f"loss must be one of {list(get_args(LossName))}, got {self.loss!r}")

    @property
    def checkpoint_steps(self) -> list[int]:
        """The steps after which weights are kept: every `checkpoint_every`, and the last."""
        every = self.checkpoint_every or self.steps
        return [*range(every, self.steps, every), self.steps]


@dataclass(frozen=True)
class CorruptedConfig:
    """One training run on corrupted labels; the defaults are the protocol's network, without weight decay.

    Attributes:
        alpha: share of the p^2 pairs trained on.
        xi: share of their labels that is drawn anew.
        seed: of the weights, the split and the corruption; the order of batches and dropout have that of `fit`.

    Raises:
        ValueError: if a field is out of its range.
    """

    network: MlpConfig | TransformerConfig = field(default_factory=lambda: MlpConfig(97, 500))
    operation: Operation = "add"
    alpha: float = 0.5
    xi: float = 0.35
    fit: FitConfig = field(default_factory=FitConfig)
    seed: int = 0

    def __post_init__(self) -> None:
        if self.operation not in get_args(Operation):
            raise ValueError(f"operation must be one of {list(get_args(Operation))}, got {self.operation!r}")
        train_size(self.alpha, self.network.p**2)
        require_xi(self.xi)
