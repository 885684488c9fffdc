"""How to fine-tune: one frozen configuration, with the published recipes as presets, and its learning-rate schedule."""

from dataclasses import dataclass, replace
from typing import Literal

from hc_lens.limits import require_not_negative, require_positive
from hc_lens.precision import Precision, require_precision


@dataclass(frozen=True)
class TrainConfig:
    """How to fine-tune, with AdamW (which is Adam while `weight_decay` is 0).

    `lr` rises linearly over `warmup_steps`, then falls linearly to zero at `steps` or stays (`decay`). Gradients are clipped to
    norm `clip` over all weights (None: not at all). `max_length` is in tokens, capped by what the model can read; `bucket` puts
    rows of similar length into one batch. Checkpoints are kept at step 0, every `checkpoint_every` steps and at the end; the
    mean loss is logged every `log_every`. `seed` decides the order of the data and the dropout, each by its own stream.
    `precision` is that of products and attention (bf16 by autocast; `auto`: whichever is faster on the machine where a run
    begins), the loss is fp32. `dropout` trains with the model's own rates, or without any.
    """

    steps: int = 3_000
    batch_size: int = 32
    lr: float = 2e-5
    weight_decay: float = 0.0
    betas: tuple[float, float] = (0.9, 0.999)
    warmup_steps: int = 0
    decay: Literal["linear", "constant"] = "linear"
    clip: float | None = 1.0
    max_length: int = 128
    bucket: bool = True
    checkpoint_every: int = 500
    log_every: int = 50
    seed: int = 0
    precision: Precision = "auto"
    dropout: bool = True

    def __post_init__(self) -> None:
        for name in ("steps", "batch_size", "max_length", "checkpoint_every", "log_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        require_precision(self.precision)
        require_positive("lr", self.lr)
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip must be positive or None, got {self.clip}")
        require_not_negative("weight_decay", self.weight_decay)
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas must be in [0, 1), got {self.betas}")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(f"warmup_steps must be in 0..steps - 1 = {self.steps - 1}, got {self.warmup_steps}")

    @staticmethod
    def paper_mnli() -> "TrainConfig":
        """MNLI as in The Heuristic Core: 61,360 steps of 32 pairs; clipping, on which it is silent, at the usual 1.0."""
        return TrainConfig(steps=61_360, bucket=False, precision="fp32")

    @staticmethod
    def paper_qqp() -> "TrainConfig":
        """QQP as in The Heuristic Core: 40,000 steps of 128 pairs, otherwise as `paper_mnli`."""
        return replace(TrainConfig.paper_mnli(), steps=40_000, batch_size=128)

    @property
    def checkpoint_steps(self) -> tuple[int, ...]:
        """The steps after which a checkpoint is kept: 0, every `checkpoint_every`, and the last."""
        return (*range(0, self.steps, self.checkpoint_every), self.steps)


def learning_rate(config: TrainConfig, step: int) -> float:
    """The learning rate of the update that follows `step` finished ones (0 at the start of a warm-up)."""
    if step < config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.decay == "constant":
        return config.lr
    return config.lr * (config.steps - step) / (config.steps - config.warmup_steps)
