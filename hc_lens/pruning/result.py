"""What pruning gives back: subnetworks, how the gates got there, and what to be wary of."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from hc_lens.pruning.config import PruneConfig
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True)
class PruneResult:
    """Subnetworks of one configuration, one for each seed whose gates did not collapse.

    Attributes:
        subnetworks: in the order of the seeds.
        log_alpha: trained gates of these subnetworks, Float[Tensor, "run layer unit"].
        history: one row per seed and step, of collapsed seeds, too: seed, step, target, sparsity, loss (KL in nats, unless
            another loss was given), lambda1, lambda2, undecided (share of gates with |log_alpha| < 1.6).
        warnings: sentences on the seeds that collapsed, that missed the target by more than 5 points before discretisation, and
            that left more than 10 % of their gates undecided; with what to change.
        collapsed: by seed, why its gates give no subnetwork: all of them ended open, or all closed.
    """

    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    log_alpha: Float[Tensor, "run layer unit"] = field(repr=False)
    history: pd.DataFrame = field(repr=False)
    warnings: tuple[str, ...]
    collapsed: Mapping[int, str] = field(default_factory=dict[int, str])

    def table(self) -> pd.DataFrame:
        """Per subnetwork: target, trained (before discretisation) and realised sparsity, undecided share, loss, kept units."""
        seeds = [cast(int, sub.seed) for sub in self.subnetworks]
        losses = self.history.groupby("seed", sort=False)["loss"].last()
        return pd.DataFrame(
            {
                "seed": seeds,
                "target": self.config.sparsity,
                "trained_sparsity": [sub.provenance["trained_sparsity"] for sub in self.subnetworks],
                "sparsity": [sub.sparsity for sub in self.subnetworks],
                "undecided": [sub.provenance["undecided"] for sub in self.subnetworks],
                "loss": [losses[seed] for seed in seeds],
                "heads": [len(sub.heads) for sub in self.subnetworks],
                "mlps": [len(sub.mlps) for sub in self.subnetworks],
            }
        )
