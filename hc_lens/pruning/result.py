"""What pruning gives back: subnetworks, how the gates got there, and what to be wary of."""

from dataclasses import dataclass, field

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from hc_lens.pruning.config import PruneConfig
from hc_lens.subnetwork import Subnetwork

MISSED = 0.05
UNDECIDED_SHARE = 0.10


@dataclass(frozen=True)
class PruneResult:
    """Subnetworks of one configuration, one per seed.

    Attributes:
        subnetworks: in the order of the seeds.
        log_alpha: trained gates, Float[Tensor, "run layer unit"].
        history: one row per seed and step: seed, step, target, sparsity, loss (KL in nats, unless another loss was given),
            lambda1, lambda2, undecided (share of gates with |log_alpha| < 1.6).
        warnings: a sentence for each seed that missed its target by more than 5 points before discretisation, or left more than
            10 % of its gates undecided.
    """

    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    log_alpha: Float[Tensor, "run layer unit"] = field(repr=False)
    history: pd.DataFrame = field(repr=False)
    warnings: tuple[str, ...]

    def table(self) -> pd.DataFrame:
        """Per seed: target, trained (before discretisation) and realised sparsity, undecided share, loss, kept units."""
        last = self.history.groupby("seed", sort=False).last()
        return pd.DataFrame(
            {
                "seed": [sub.seed for sub in self.subnetworks],
                "target": self.config.sparsity,
                "trained_sparsity": [sub.provenance["trained_sparsity"] for sub in self.subnetworks],
                "sparsity": [sub.sparsity for sub in self.subnetworks],
                "undecided": [sub.provenance["undecided"] for sub in self.subnetworks],
                "loss": last["loss"].to_list(),
                "heads": [len(sub.heads) for sub in self.subnetworks],
                "mlps": [len(sub.mlps) for sub in self.subnetworks],
            }
        )


def warnings_for(seed: int, config: PruneConfig, trained: float, undecided: float) -> list[str]:
    """What to be wary of in one run, and what to change."""
    found: list[str] = []
    if abs(trained - config.sparsity) > MISSED:
        found.append(
            f"seed {seed}: trained sparsity {trained:.3f} misses the target {config.sparsity} "
            f"by more than {100 * MISSED:g} points; raise lr_multipliers or steps"
        )
    if undecided > UNDECIDED_SHARE:
        found.append(
            f"seed {seed}: {undecided:.0%} of the gates at sparsity {config.sparsity} are undecided (|log_alpha| < 1.6), "
            "so the mask depends on the cut; train longer or raise lr_gates"
        )
    return found
