"""One pruning run whose target rises through a grid of sparsities: a subnetwork at each, for the price of about one run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from hc_lens.forward import Inputs
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.precision import resolve_asked
from hc_lens.pruning.checkpoint import GateCheckpoints
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss
from hc_lens.pruning.trained import train_seeds
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True)
class PathResult:
    """Subnetworks along rising targets.

    Attributes:
        subnetworks: for each sparsity of the grid, one for each seed that did not collapse, in the order of the seeds.
        log_alpha: the gates of these at each of the cuts, Float[Tensor, "run layer unit"].
        history, collapsed: as in `PruneResult`; a seed collapses if its gates do by the end of the run.
    """

    config: PruneConfig
    subnetworks: Mapping[float, tuple[Subnetwork, ...]]
    log_alpha: Mapping[float, Float[Tensor, "run layer unit"]] = field(repr=False)
    history: pd.DataFrame = field(repr=False)
    collapsed: Mapping[int, str] = field(default_factory=dict[int, str])

    def table(self) -> pd.DataFrame:
        """Per target and seed: trained (before the cut) and realised sparsity, and the share of undecided gates."""
        rows = [
            {
                "target": target,
                "seed": sub.seed,
                "trained_sparsity": sub.provenance["trained_sparsity"],
                "sparsity": sub.sparsity,
                "undecided": sub.provenance["undecided"],
            }
            for target, subs in self.subnetworks.items()
            for sub in subs
        ]
        return pd.DataFrame(rows)


def prune_path(
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig,
    grid: Sequence[float],
    seeds: Sequence[int] = range(42, 45),
    loss: Loss | None = None,
    checkpoints: GateCheckpoints | None = None,
) -> PathResult:
    """Train gates once per seed under a rising target, and cut a subnetwork at each sparsity of the grid as it passes.

    The target rises from 0 to `config.sparsity`. A cut comes right after the first step whose target has reached its sparsity,
    the last one at the end of the run.

    `checkpoints` are as `prune`'s.

    The paper prunes anew for every sparsity (The Heuristic Core, section 5.1: 420 runs for its curves); how well the two agree
    is what `hc_lens.grid_agreement` measures. Cuts are exact (top-k) however far a run lags behind its rising target; each
    subnetwork's provenance has the sparsity its gates had.

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN, or if the gates of every run all ended open or all closed.
        ValueError: without seeds, unless the grid rises strictly from above 0 to `config.sparsity`, or unless cuts are top-k.
    """
    require_grid(grid, config)
    steps = cut_steps(config, grid)
    computed = replace(config, precision=resolve_asked(config.precision, model, config.batch_size, config.max_length))
    trained = train_seeds(model, data, means, computed, seeds, loss, steps, checkpoints)
    alive = trained.alive()
    at = dict(zip(grid, steps, strict=True))
    return PathResult(
        config,
        subnetworks={target: alive.cut(step, target) for target, step in at.items()},
        log_alpha={target: alive.log_alpha[step] for target, step in at.items()},
        history=trained.table(),
        collapsed=trained.collapsed(),
    )


def cut_steps(config: PruneConfig, grid: Sequence[float]) -> list[int]:
    """The step, counted from 0, after which each sparsity of the grid is cut."""
    reached = [next(step for step in range(config.steps) if config.target(step + 1) >= target - 1e-9) for target in grid[:-1]]
    return [*reached, config.steps - 1]


def require_grid(grid: Sequence[float], config: PruneConfig) -> None:
    rising = all(low < high for low, high in pairwise(grid))
    if not grid or not rising or not grid[0] > 0 or grid[-1] != config.sparsity:
        raise ValueError(f"grid: must rise strictly from above 0 up to config.sparsity = {config.sparsity}, got {list(grid)}")
    if config.discretisation != "top_k":
        raise ValueError(f"discretisation: cuts along a path are 'top_k', got {config.discretisation!r}")
