"""What a pruning run is told: target, schedule, gates, optimiser, estimate, discretisation."""

import math
from dataclasses import asdict, dataclass
from typing import Literal

from hc_lens.precision import Precision, require_precision


@dataclass(frozen=True)
class PruneConfig:
    """Configuration of one pruning run; the defaults are the short ("desk") recipe, `paper` has every setting of the paper.

    Attributes:
        sparsity: target share of units (heads and MLPs weighing the same) to remove, in (0, 1).
        steps: optimiser steps T.
        ramp_steps: steps W over which the target rises linearly from 0 to `sparsity`; constant afterwards.
        batch_size: rows per micro-batch; every micro-batch has its own draw of each gate.
        accumulation: micro-batches per optimiser step.
        max_length: tokens a pair is cut at.
        bucket: batches of rows of like length, which saves padding; the paper's are uniform draws.
        gate_mean, gate_std: of the normal distribution log_alpha starts from.
        lr_gates, lr_multipliers: learning rates of log_alpha (minimised) and of the two Lagrange multipliers (maximised).
        schedule: "constant", or "linear": `warmup_steps` up from 0, then linearly down to 0 at T. Both groups follow it.
        weight_decay: decoupled decay (AdamW) of log_alpha AND of the multipliers.
        clip: largest gradient norm of a run, log_alpha and multipliers jointly; None for no clipping.
        dropout: whether the model's dropout is on while gates train (the teacher's never is).
        estimate: sparsity in the Lagrangian: "expected" (closed form, 1 - mean P(g > 0)) or "sampled" (1 - mean g of the draw).
        discretisation: "top_k" (hits the target exactly) or "two_stage" (the paper's n0 and tau).
        precision: of the model's forward and backward; gates, loss and Lagrangian are always fp32. "auto": whichever is
            faster on the machine where a run begins.
        memory_gib: estimated activation memory that decides how many runs share a forward pass, at most half of
            what the device has; one always runs.
        init_seed, noise_seed, order_seed: fix one stream of randomness over all runs, to tell which one makes subnetworks
            differ; None derives the stream from the run's own seed.
    """

    sparsity: float = 0.5
    steps: int = 600
    ramp_steps: int = 510
    batch_size: int = 32
    accumulation: int = 1
    max_length: int = 128
    bucket: bool = True
    gate_mean: float = 2.0
    gate_std: float = 0.01
    lr_gates: float = 0.1
    lr_multipliers: float = 1.0
    schedule: Literal["constant", "linear"] = "constant"
    warmup_steps: int = 0
    weight_decay: float = 0.0
    clip: float | None = None
    dropout: bool = False
    estimate: Literal["expected", "sampled"] = "expected"
    discretisation: Literal["top_k", "two_stage"] = "top_k"
    precision: Precision = "auto"
    memory_gib: float = 4.0
    init_seed: int | None = None
    noise_seed: int | None = None
    order_seed: int | None = None

    def __post_init__(self) -> None:
        if not 0 < self.sparsity < 1:
            raise ValueError(f"sparsity: the target must be in (0, 1), got {self.sparsity}")
        require_precision(self.precision)
        for name in ("steps", "batch_size", "accumulation", "max_length"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name}: must be at least 1, got {getattr(self, name)}")
        if not 0 <= self.ramp_steps <= self.steps:
            raise ValueError(f"ramp_steps: must be in 0..steps = {self.steps}, got {self.ramp_steps}")
        if not 0 <= self.warmup_steps < self.steps:
            raise ValueError(f"warmup_steps: must be in 0..steps - 1 = {self.steps - 1}, got {self.warmup_steps}")
        for name in ("lr_gates", "lr_multipliers", "memory_gib"):
            if not (getattr(self, name) > 0 and math.isfinite(getattr(self, name))):
                raise ValueError(f"{name}: must be positive and finite, got {getattr(self, name)}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip: must be positive or None, got {self.clip}")

    @classmethod
    def desk(cls, sparsity: float = 0.5, steps: int = 600) -> "PruneConfig":
        """The short recipe, which decides gates in hundreds of steps.

        log_alpha starts from 2, without decay; sparsity in closed form, its target reached at 85 % of the steps; top-k masks.
        """
        return cls(sparsity=sparsity, steps=steps, ramp_steps=round(0.85 * steps))

    @classmethod
    def paper(cls, sparsity: float = 0.5) -> "PruneConfig":
        """Every setting of The Heuristic Core: W = 6500 + 50 S and T = W + 6 S steps for S = 100 `sparsity`.

        Includes what the paper's code does and its text does not say: weight decay on log_alpha and multipliers, joint
        clipping, dropout on, four gate draws a step.
        """
        percent = 100 * sparsity
        ramp = round(6500 + 50 * percent)
        return cls(
            sparsity=sparsity,
            steps=ramp + round(6 * percent),
            ramp_steps=ramp,
            accumulation=4,
            bucket=False,
            gate_mean=10.0,
            schedule="linear",
            warmup_steps=200,
            weight_decay=0.01,
            clip=1.0,
            dropout=True,
            estimate="sampled",
            discretisation="two_stage",
            precision="fp32",
        )

    def target(self, step: int) -> float:
        """t(k): the target sparsity in force at step k, counted from 0."""
        return self.sparsity if step >= self.ramp_steps else self.sparsity * step / self.ramp_steps

    def rate(self, step: int) -> float:
        """Factor on both learning rates at step k, counted from 0."""
        if self.schedule == "constant":
            return 1.0
        if step < self.warmup_steps:
            return step / self.warmup_steps
        return max(0.0, (self.steps - step) / (self.steps - self.warmup_steps))

    def as_dict(self) -> dict[str, str | int | float | bool | None]:
        """The fields, JSON-ready."""
        return asdict(self)
