"""Prune a frozen model with hard-concrete gates: many seeds in one call, each a subnetwork that imitates the full model."""

from collections.abc import Sequence

import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens import HookedRootModule

from hc_lens.atomic import canonical_json
from hc_lens.data.batches import Encoded
from hc_lens.forward import Inputs, inputs_of
from hc_lens.gates import UNDECIDED, discretise, undecided
from hc_lens.means import ActivationMeans
from hc_lens.progress import progress
from hc_lens.provenance import provenance
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss, imitation
from hc_lens.pruning.result import PruneResult, warnings_for
from hc_lens.pruning.training import HISTORY, GateTraining, PruneError, data_order, runs_together
from hc_lens.subnetwork import Subnetwork

__all__ = ["GateTraining", "Loss", "PruneConfig", "PruneError", "PruneResult", "prune"]

CHECK_EVERY = 50


def prune(
    model: HookedRootModule,
    data: Inputs,
    means: ActivationMeans,
    config: PruneConfig | None = None,
    seeds: Sequence[int] = range(42, 54),
    loss: Loss | None = None,
) -> PruneResult:
    """Train hard-concrete gates on the frozen model, one run per seed, and cut each to a subnetwork.

    The method is that of The Heuristic Core, section 4.

    Args:
        data: a split, encoded rows, or, for a plain language model, token ids `Int[Tensor, "row pos"]`.
        loss: from the model's output and the batch to a value per row, to be minimised; default KL(full model || gated model).

    Raises:
        MeansError: if the means belong to another model.
        PruneError: if a loss is NaN, or if a run's gates all ended open or all closed.
        ValueError: without seeds, or for a model whose output the default loss does not fit.
    """
    config = config or PruneConfig()
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ValueError(f"seeds: needs at least one, all different, got {list(seeds)}")
    means.require_model(model)
    encoded = inputs_of(model, data, config.max_length)
    orders = {seed: data_order(encoded, config, seed) for seed in seeds}
    if loss is None:
        loss = imitation(model, encoded, config, list(orders.values()))
    together = runs_together(model, encoded, config)
    trained: list[tuple[Tensor, Tensor]] = []
    for start in range(0, len(seeds), together):
        chunk = list(seeds[start : start + together])
        training = GateTraining(model, encoded, means, config, chunk, loss, [orders[seed] for seed in chunk])
        trained.append(_train(training, f"prune {config.sparsity:g}, seeds {chunk[0]}..{chunk[-1]}"))
    log_alpha = torch.cat([alpha for alpha, _ in trained])
    history = torch.cat([history for _, history in trained], dim=1)
    return _result(config, seeds, means, encoded, log_alpha, history)


def _train(training: GateTraining, title: str) -> tuple[Float[Tensor, "run layer unit"], Float[Tensor, "step run column"]]:
    steps = training.config.steps
    with progress(title, steps) as advance, training:
        for step in range(steps):
            training.step()
            if (step + 1) % CHECK_EVERY == 0 or step + 1 == steps:
                training.require_finite()
                advance(step % CHECK_EVERY + 1, _state(training.history[step]))
    return training.log_alpha.detach().cpu(), training.history.cpu()


def _state(latest: Float[Tensor, "run column"]) -> str:
    """How gates in training are, on average over runs."""
    means = dict(zip(HISTORY, latest.mean(0).tolist(), strict=True))
    return "sparsity {sparsity:.3f} of {target:.3f}  loss {loss:.4f}  lambda {lambda1:.2f}, {lambda2:.2f}".format(**means)


def _result(
    config: PruneConfig,
    seeds: Sequence[int],
    means: ActivationMeans,
    encoded: Encoded,
    log_alpha: Float[Tensor, "run layer unit"],
    history: Float[Tensor, "step run column"],
) -> PruneResult:
    masks = discretise(log_alpha, config.sparsity, config.discretisation)
    tail = max(1, config.steps // 50)  # the draws' sparsity is noisy: the last 2 % of the steps say where a run ended
    ended = history[-tail:, :, HISTORY.index("sparsity")].mean(0).tolist()
    shares = undecided(log_alpha).tolist()
    versions = provenance()
    subnetworks: list[Subnetwork] = []
    warnings: list[str] = []
    for run, seed in enumerate(seeds):
        _require_no_collapse(seed, log_alpha[run], config)
        warnings += warnings_for(seed, config, ended[run], shares[run])
        facts = {
            "model": means.model,
            "data": encoded.fingerprint,
            "config": canonical_json(config.as_dict()),
            "target": config.sparsity,
            "trained_sparsity": ended[run],
            "sparsity": int((~masks[run]).sum()) / masks[run].numel(),
            "undecided": shares[run],
            **versions,
        }
        subnetworks.append(Subnetwork(masks[run], means, seed, facts))
    return PruneResult(config, tuple(subnetworks), log_alpha, _history_table(seeds, history), tuple(warnings))


def _require_no_collapse(seed: int, log_alpha: Float[Tensor, "layer unit"], config: PruneConfig) -> None:
    state = "open" if bool((log_alpha > UNDECIDED).all()) else "closed" if bool((log_alpha < -UNDECIDED).all()) else None
    if state is not None:
        raise PruneError(
            f"seed {seed}: every gate ended {state}, so there is no subnetwork to cut at sparsity {config.sparsity}; "
            + ("raise steps, lr_gates or lr_multipliers" if state == "open" else "lower lr_multipliers or the target sparsity")
        )


def _history_table(seeds: Sequence[int], history: Float[Tensor, "step run column"]) -> pd.DataFrame:
    frames = [pd.DataFrame(history[:, run].numpy(), columns=list(HISTORY)) for run in range(len(seeds))]
    for seed, frame in zip(seeds, frames, strict=True):
        frame.insert(0, "seed", seed)
        frame.insert(1, "step", range(len(frame)))
    return pd.concat(frames, ignore_index=True)
