"""Gates of all seeds trained, and what becomes of them: the cut, what is recorded with it, the gates that give none."""

import time
from collections.abc import Container, Sequence
from dataclasses import dataclass, replace

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
from hc_lens.models.finite import require_finite_model
from hc_lens.progress import progress
from hc_lens.provenance import provenance
from hc_lens.pruning.advice import CLOSED, OPEN, Ended, warnings_of
from hc_lens.pruning.checkpoint import GateCheckpoint, GateCheckpoints
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss, imitation
from hc_lens.pruning.training import HISTORY, STRETCH, GateTraining, PruneError, data_order, runs_together
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
        if not self.seeds:
            return ()
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

    def warnings(self) -> tuple[str, ...]:
        """What to be wary of when the gates are cut after the last step, and what to change."""
        step, collapsed = max(self.log_alpha), self.collapsed()
        found = zip(self.seeds, self.sparsity(step), undecided(self.log_alpha[step]).tolist(), strict=True)
        return warnings_of(self.config, [Ended(seed, at, share, collapsed.get(seed)) for seed, at, share in found])

    def collapsed(self) -> dict[int, str]:
        """By seed, what went wrong with runs whose gates ended all open or all closed."""
        found: dict[int, str] = {}
        for seed, gates in zip(self.seeds, self.log_alpha[max(self.log_alpha)], strict=True):
            if bool((gates > UNDECIDED).all()):
                found[seed] = OPEN
            elif bool((gates < -UNDECIDED).all()):
                found[seed] = CLOSED
        return found

    def alive(self) -> "TrainedGates":
        """The runs that did not collapse; their history, too.

        Raises:
            PruneError: if all did, with the reason and what to change.
        """
        collapsed = self.collapsed()
        if len(collapsed) == len(self.seeds):
            raise PruneError("; ".join(self.warnings()))
        return self.only([seed for seed in self.seeds if seed not in collapsed])

    def only(self, seeds: Container[int]) -> "TrainedGates":
        """The runs of these seeds."""
        places = [i for i, seed in enumerate(self.seeds) if seed in seeds]
        return replace(
            self,
            seeds=tuple(self.seeds[i] for i in places),
            log_alpha={step: gates[places] for step, gates in self.log_alpha.items()},
            history=self.history[:, places],
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
    checkpoints: GateCheckpoints | None = None,
) -> TrainedGates:
    """Train the gates of every seed, as many together as `config.memory_gib` allows, and keep them at these steps.

    With `checkpoints`, gates that an earlier call left in training go on from where they were kept.

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN.
        RunError: for a damaged checkpoint.
        ValueError: without seeds, for weights that are not finite, and for a model whose output the default loss does not fit.
    """
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds: needs at least one, all different, got {list(seeds)}")
    require_finite_model(model)
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
        kept = None if checkpoints is None else GateCheckpoint.of(training, checkpoints, chunk)
        gates.append(train_gates(training, steps, f"prune to {config.sparsity:g}, seeds {chunk[0]}..{chunk[-1]}", kept))
        histories.append(training.history.cpu())
    log_alpha = {step: torch.cat(parts) for step, parts in zip(steps, zip(*gates, strict=True), strict=True)}
    return TrainedGates(config, tuple(seeds), means, encoded, log_alpha, torch.cat(histories, dim=1))


def train_gates(
    training: GateTraining, cuts: Sequence[int], title: str, kept: GateCheckpoint | None = None
) -> list[Float[Tensor, "run layer unit"]]:
    """Take every step of a training; returns the gates, on the CPU, after each of the steps `cuts`, counted from 0.

    With `kept`, it starts where the checkpoint is, and keeps one at the intervals that it says and after the last step.

    Raises:
        PruneError: if a loss is not finite, at the next of the regular checks.
        RunError: for a damaged checkpoint.
    """
    steps = training.config.steps
    with progress(title, steps) as advance, training:
        found = [] if kept is None else kept.resume(training)
        advance(training.taken)
        saved = time.monotonic()
        while (step := training.taken) < steps:
            training.step()
            found += [training.log_alpha.detach().clone()] * cuts.count(step)
            if training.taken % STRETCH and training.taken < steps:
                continue
            training.require_finite()
            advance(step % STRETCH + 1, _state(training.history[step]))
            if kept is not None and (training.taken == steps or time.monotonic() - saved >= kept.every):
                kept.save(training, found)
                saved = time.monotonic()
    return [gates.cpu() for gates in found]


def _state(latest: Float[Tensor, "run column"]) -> str:
    """How gates in training are, on average over runs."""
    means = dict(zip(HISTORY, latest.mean(0).tolist(), strict=True))
    return "sparsity {sparsity:.3f} of {target:.3f}  loss {loss:.4f}  lambda {lambda1:.2f}, {lambda2:.2f}".format(**means)
