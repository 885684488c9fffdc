"""Gates of all seeds trained, and what becomes of them: the cut, what is recorded with it, the gates that give none."""

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from hc_lens.atomic import canonical_json
from hc_lens.data.batches import Encoded
from hc_lens.forward import Inputs, inputs_of
from hc_lens.gates import UNDECIDED, discretise, undecided
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.provenance import provenance
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss, imitation
from hc_lens.pruning.training import HISTORY, GateTraining, PruneError, data_order, runs_together, train_gates
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class TrainedGates:
    """The gates of every seed at each of the steps that were asked for, and how they got there.

    Attributes:
        log_alpha: by step, counted from 0, Float[Tensor, "run layer unit"].
        history: Float[Tensor, "step run column"], columns as in `HISTORY`.
    """

    config: PruneConfig
    seeds: tuple[int, ...]
    means: ActivationMeans
    encoded: Encoded
    log_alpha: dict[int, Float[Tensor, "run layer unit"]]
    history: Float[Tensor, "step run column"]

    def sparsity(self, step: int) -> list[float]:
        """Each run's own sparsity around a step: the draws' is noisy, so the mean over the 2 % of the steps that end there."""
        tail = max(1, self.config.steps // 50)
        return self.history[: step + 1][-tail:, :, HISTORY.index("sparsity")].mean(0).tolist()

    def cut(self, step: int, target: float) -> tuple[Subnetwork, ...]:
        """The subnetwork of each run's gates at a step, cut to sparsity `target`."""
        masks = discretise(self.log_alpha[step], target, self.config.discretisation)
        shares = undecided(self.log_alpha[step]).tolist()
        versions = provenance()
        return tuple(
            Subnetwork(
                mask,
                self.means,
                seed,
                {
                    "model": self.means.model,
                    "data": self.encoded.fingerprint,
                    "config": canonical_json(self.config.as_dict()),
                    "target": target,
                    "trained_sparsity": sparsity,
                    "sparsity": int((~mask).sum()) / mask.numel(),
                    "undecided": share,
                    **versions,
                },
            )
            for mask, seed, sparsity, share in zip(masks, self.seeds, self.sparsity(step), shares, strict=True)
        )

    def table(self) -> pd.DataFrame:
        """The history as a table: `seed`, `step`, then the columns `HISTORY`."""
        frames = [pd.DataFrame(self.history[:, run].numpy(), columns=list(HISTORY)) for run in range(len(self.seeds))]
        for seed, frame in zip(self.seeds, frames, strict=True):
            frame.insert(0, "seed", seed)
            frame.insert(1, "step", range(len(frame)))
        return pd.concat(frames, ignore_index=True)


def train_seeds(
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig,
    seeds: Sequence[int],
    loss: Loss | None,
    steps: Sequence[int],
    title: str,
) -> TrainedGates:
    """Train the gates of every seed, as many together as `config.memory_gib` allows, and keep them at these steps.

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN, or if a run's gates all ended open or all closed.
        ValueError: without seeds, or for a model whose output the default loss does not fit.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds: needs at least one, all different, got {list(seeds)}")
    means.require_model(model)
    encoded = inputs_of(model, data, config.max_length)
    orders = {seed: data_order(encoded, config, seed) for seed in seeds}
    if loss is None:
        loss = imitation(model, encoded, config, list(orders.values()))
    together = runs_together(model, encoded, config)
    gates: list[list[Tensor]] = []
    histories: list[Tensor] = []
    for start in range(0, len(seeds), together):
        chunk = list(seeds[start : start + together])
        training = GateTraining(model, encoded, means, config, chunk, loss, [orders[seed] for seed in chunk])
        gates.append(train_gates(training, steps, f"{title}, seeds {chunk[0]}..{chunk[-1]}"))
        histories.append(training.history.cpu())
    log_alpha = {step: torch.cat(parts) for step, parts in zip(steps, zip(*gates, strict=True), strict=True)}
    for run, seed in enumerate(seeds):
        _require_no_collapse(seed, log_alpha[steps[-1]][run], config)
    return TrainedGates(config, tuple(seeds), means, encoded, log_alpha, torch.cat(histories, dim=1))


def _require_no_collapse(seed: int, log_alpha: Float[Tensor, "layer unit"], config: PruneConfig) -> None:
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
