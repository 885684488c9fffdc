"""From trained gates to subnetworks: the cut, what is recorded with it, and the gates that give none."""

from collections.abc import Sequence

import pandas as pd
from jaxtyping import Float
from torch import Tensor

from hc_lens.atomic import canonical_json
from hc_lens.data.batches import Encoded
from hc_lens.gates import UNDECIDED, discretise, undecided
from hc_lens.means import ActivationMeans
from hc_lens.provenance import provenance
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.training import HISTORY, PruneError
from hc_lens.subnetwork import Subnetwork


def cut(
    log_alpha: Float[Tensor, "run layer unit"],
    target: float,
    trained: Sequence[float],
    *,
    config: PruneConfig,
    seeds: Sequence[int],
    means: ActivationMeans,
    encoded: Encoded,
) -> tuple[Subnetwork, ...]:
    """The subnetwork of each run's gates at sparsity `target`; `trained` are the gates' own sparsities before the cut."""
    masks = discretise(log_alpha, target, config.discretisation)
    shares = undecided(log_alpha).tolist()
    versions = provenance()
    return tuple(
        Subnetwork(
            mask,
            means,
            seed,
            {
                "model": means.model,
                "data": encoded.fingerprint,
                "config": canonical_json(config.as_dict()),
                "target": target,
                "trained_sparsity": sparsity,
                "sparsity": int((~mask).sum()) / mask.numel(),
                "undecided": share,
                **versions,
            },
        )
        for mask, seed, sparsity, share in zip(masks, seeds, trained, shares, strict=True)
    )


def require_no_collapse(seed: int, log_alpha: Float[Tensor, "layer unit"], config: PruneConfig) -> None:
    """Check that a finished run's gates do not all stand open, or all closed.

    Raises:
        PruneError: if they do, saying what to change.
    """
    state = "open" if bool((log_alpha > UNDECIDED).all()) else "closed" if bool((log_alpha < -UNDECIDED).all()) else None
    if state is not None:
        raise PruneError(
            f"seed {seed}: every gate ended {state}, so there is no subnetwork to cut at sparsity {config.sparsity}; "
            + ("raise steps, lr_gates or lr_multipliers" if state == "open" else "lower lr_multipliers or the target sparsity")
        )


def history_table(seeds: Sequence[int], history: Float[Tensor, "step run column"]) -> pd.DataFrame:
    """The history of runs trained together as a table: `seed`, `step`, then the columns `HISTORY`."""
    frames = [pd.DataFrame(history[:, run].numpy(), columns=list(HISTORY)) for run in range(len(seeds))]
    for seed, frame in zip(seeds, frames, strict=True):
        frame.insert(0, "seed", seed)
        frame.insert(1, "step", range(len(frame)))
    return pd.concat(frames, ignore_index=True)
