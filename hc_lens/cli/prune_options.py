"""How the commands over checkpoints and sparsities prune: a preset, and any of its settings changed."""

from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import tyro

from hc_lens.cli.prune import with_steps
from hc_lens.limits import Count
from hc_lens.precision import Precision
from hc_lens.pruning import PruneConfig

_also = tyro.conf.arg


@dataclass(frozen=True)
class PruneOptions:
    """How checkpoints are pruned: None leaves a setting to the preset. Settings are described by `hc-lens prune --help`."""

    preset: Literal["desk", "paper"] = "desk"
    """How to prune: the short recipe, or every setting of the paper."""
    prune_steps: Count | None = None
    """Optimiser steps of a pruning run. The preset's phases take their share of them."""
    prune_ramp_steps: Annotated[int | None, _also(aliases=["--ramp-steps"])] = None
    """Steps over which the target sparsity rises."""
    prune_batch_size: Count | None = None
    """Rows of a pruning step."""
    prune_accumulation: Annotated[int | None, _also(aliases=["--accumulation"])] = None
    """Micro-batches of an optimiser step."""
    prune_max_length: Annotated[int | None, _also(aliases=["--max-length"])] = None
    """Tokens a pair is cut at."""
    prune_bucket: Annotated[bool | None, _also(aliases=["--bucket"])] = None
    """Whether batches hold rows of like length."""
    prune_gate_mean: Annotated[float | None, _also(aliases=["--gate-mean"])] = None
    """Mean that log_alpha starts from."""
    prune_gate_std: Annotated[float | None, _also(aliases=["--gate-std"])] = None
    """Its standard deviation."""
    prune_lr_gates: Annotated[float | None, _also(aliases=["--lr-gates"])] = None
    """Learning rate of log_alpha."""
    prune_lr_multipliers: Annotated[float | None, _also(aliases=["--lr-multipliers"])] = None
    """Learning rate of the Lagrange multipliers."""
    prune_schedule: Annotated[Literal["constant", "linear"] | None, _also(aliases=["--schedule"])] = None
    """Of both learning rates."""
    prune_warmup_steps: Annotated[int | None, _also(aliases=["--warmup-steps"])] = None
    """Steps over which a linear schedule rises."""
    prune_weight_decay: Annotated[float | None, _also(aliases=["--weight-decay"])] = None
    """Decoupled decay of log_alpha and of the multipliers."""
    prune_clip: Annotated[float | None, _also(aliases=["--clip"])] = None
    """Largest gradient norm of a run; inf for no clipping."""
    prune_dropout: Annotated[bool | None, _also(aliases=["--dropout"])] = None
    """Whether the model's dropout is on."""
    prune_estimate: Annotated[Literal["expected", "sampled"] | None, _also(aliases=["--estimate"])] = None
    """Sparsity in the Lagrangian: in closed form, or of the draw."""
    prune_discretisation: Annotated[Literal["top_k", "two_stage"] | None, _also(aliases=["--discretisation"])] = None
    """How gates are cut to a mask."""
    prune_precision: Annotated[Precision | None, _also(aliases=["--precision"])] = None
    """Of the model's forward and backward in pruning: auto, whichever is faster here, fp32 or bf16. Evaluation is in fp32."""
    prune_memory_gib: Annotated[float | None, _also(aliases=["--memory-gib"])] = None
    """Activation memory that decides how many runs share a forward pass."""
    prune_init_seed: Annotated[int | None, _also(aliases=["--init-seed"])] = None
    """One initialisation for all runs."""
    prune_noise_seed: Annotated[int | None, _also(aliases=["--noise-seed"])] = None
    """One stream of gate noise for all runs."""
    prune_order_seed: Annotated[int | None, _also(aliases=["--order-seed"])] = None
    """One order of the rows for all runs."""

    def config(self, sparsity: float) -> PruneConfig:
        """The pruning configuration of one sparsity.

        Raises:
            ValueError: for a sparsity outside (0, 1), or a setting that `PruneConfig` refuses.
        """
        preset = PruneConfig.paper(sparsity) if self.preset == "paper" else PruneConfig.desk(sparsity)
        sized = preset if self.prune_steps is None else with_steps(preset, self.prune_steps)
        asked: dict[str, Any] = {name.removeprefix("prune_"): value for name, value in vars(self).items() if value is not None}
        return replace(sized, **{name: value for name, value in asked.items() if name not in ("preset", "steps")})
