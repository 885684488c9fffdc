"""Which tasks and examples, which transformer, and how it is trained: settings, apart from what computes with them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, get_args

from hc_lens.limits import require_not_negative, require_positive
from hc_lens.modular.limits import require_prime, require_tasks, train_size
from hc_lens.precision import Precision, require_precision

if TYPE_CHECKING:
    from transformer_lens import HookedTransformer

    from hc_lens.modular.incontext.tasks import ExampleSplit, TaskSplit

TaskRule = Literal["parallelogram", "random"]
"""How the tasks of pre-training are chosen: see `parallelogram_tasks` and `random_tasks`."""


@dataclass(frozen=True)
class ModelConfig:
    """The shape of the transformer.

    Attributes:
        depth: blocks.
        width: of the residual stream; the MLPs are four times as wide.
        heads: in each block; they share the width.
        init_std: standard deviation of the weights at the start; of what writes to the residual stream, that / sqrt(2 depth).

    Raises:
        ValueError: naming the field that is out of its range.
    """

    depth: int = 2
    width: int = 512
    heads: int = 4
    init_std: float = 0.02

    def __post_init__(self) -> None:
        for name in ("depth", "width", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        if self.width % (2 * self.heads):
            raise ValueError(f"width must be a multiple of 2 heads = {2 * self.heads}, for rotary pairs, got {self.width}")
        if not self.init_std > 0:
            raise ValueError(f"init_std must be positive, got {self.init_std}")


@dataclass(frozen=True)
class Data:
    """Which tasks and examples; the defaults are the paper's.

    Attributes:
        p: the modulus, a prime.
        n_tasks: tasks of pre-training, fewer than p^2.
        fraction: of the p^2 pairs (x, y), those that training examples are drawn from.
        n_shots: examples in a sequence.
        rule: how tasks are chosen.
        repeats: whether an example may come again in its sequence in training, where p is small and looking it up is a first
            step to matching ratios; in evaluation none does.
        seed: of both choices.
    """

    p: int = 29
    n_tasks: int = 512
    fraction: float = 0.6
    n_shots: int = 32
    rule: TaskRule = "parallelogram"
    repeats: bool = False
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse what could not be drawn, before anything is."""
        require_prime(self.p)
        if self.rule not in get_args(TaskRule):
            raise ValueError(f"rule must be one of {list(get_args(TaskRule))}, got {self.rule!r}")
        require_tasks(self.p, self.n_tasks, fours=self.rule == "parallelogram")
        n_train = train_size(self.fraction, self.p**2, "fraction")
        if not 2 <= self.n_shots <= n_train:
            raise ValueError(
                f"n_shots must be in 2..{n_train}, the different training pairs at p = {self.p} and fraction = "
                f"{self.fraction}, got {self.n_shots}"
            )

    def tasks(self) -> TaskSplit:
        """The seen and the unseen tasks.

        Raises:
            ValueError: as `parallelogram_tasks` and `random_tasks`, and for an unknown rule.
        """
        from hc_lens.modular.incontext.tasks import parallelogram_tasks, random_tasks

        choose = parallelogram_tasks if self.rule == "parallelogram" else random_tasks
        return choose(self.p, self.n_tasks, self.seed)

    def examples(self) -> ExampleSplit:
        """The train and the test pairs.

        Raises:
            ValueError: as `split_examples`, and if there are not as many training pairs as a sequence has examples.
        """
        from hc_lens.modular.incontext.tasks import split_examples

        return split_examples(self.p, self.fraction, self.seed)


@dataclass(frozen=True)
class Training:
    """How to train, with AdamW (decoupled decay, of matrices only); the defaults are the paper's.

    `lr` rises linearly over `warmup_steps` from a hundredth, then falls by a cosine to a tenth at `steps`. A batch of
    `batch_size` holds equally many sequences of every task. Checkpoints are kept and evaluated, `evaluate` sequences of each of
    the four sets, at step 0, every `checkpoint_every` steps and at the end; the mean loss is logged every `log_every`. `seed`
    decides the first weights and the batches. `precision` is that of matrix products and attention.

    Raises:
        ValueError: naming the field that is out of its range.
    """

    steps: int = 200_000
    batch_size: int = 1024
    lr: float = 1.5e-4
    weight_decay: float = 2.0
    betas: tuple[float, float] = (0.9, 0.98)
    warmup_steps: int = 10_000
    checkpoint_every: int = 5_000
    log_every: int = 100
    evaluate: int = 2_048
    seed: int = 0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "checkpoint_every", "log_every", "evaluate"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        require_positive("lr", self.lr)
        require_not_negative("weight_decay", self.weight_decay)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(f"warmup_steps must be in 0..steps - 1 = {self.steps - 1}, got {self.warmup_steps}")
        require_precision(self.precision)

    @property
    def checkpoint_steps(self) -> list[int]:
        """The steps at which weights are kept."""
        return [*range(0, self.steps, self.checkpoint_every), self.steps]


@dataclass(frozen=True)
class InContextConfig:
    """One setting: data, model and training.

    Raises:
        ValueError: if a batch cannot hold equally many sequences of every task.
    """

    data: Data = field(default_factory=Data)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: Training = field(default_factory=Training)

    def __post_init__(self) -> None:
        if self.training.batch_size % self.data.n_tasks:
            raise ValueError(
                f"batch_size must be a multiple of n_tasks, for a batch holds equally many sequences of each of the "
                f"{self.data.n_tasks} tasks, got {self.training.batch_size}"
            )

    def new_model(self) -> HookedTransformer:
        """The model before training, on the CPU."""
        from hc_lens.modular.incontext.model import new_transformer
        from hc_lens.modular.incontext.training import stream

        return new_transformer(self.model, self.data.p, self.data.n_shots, stream(self.training.seed, "weights"))
