"""Do gates that are trained on the true answers find the neurons that memorise the corrupted labels?"""

from dataclasses import dataclass, field

import torch
from jaxtyping import Float
from sklearn.metrics import roc_auc_score
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.forward import device_of, mode
from hc_lens.gates import HardConcrete, top_k
from hc_lens.hooks import Edit, HookFunction, hooked
from hc_lens.modular.config import GENERALIZING
from hc_lens.modular.corrupted import Trained
from hc_lens.modular.networks import answers, neuron_point
from hc_lens.modular.neurons import Neurons
from hc_lens.modular.training import loss_of, targets_of
from hc_lens.pruning import PruneConfig
from hc_lens.pruning.objective import lagrangian


@dataclass(frozen=True, eq=False)
class GatedNeurons:
    """Trained gates: their locations, the subnetwork of the neurons that they keep, and how well they tell neurons apart.

    `auc` is the chance that a periodic neuron's gate is more open than that of a neuron of low IPR: 1 if every one is, 0.5 for
    gates that know nothing of it, NaN if all neurons are of one kind.
    """

    log_alpha: Float[Tensor, " neuron"] = field(repr=False)
    neurons: Neurons
    auc: float


def gate_neurons(trained: Trained, config: PruneConfig, seed: int = 0) -> GatedNeurons:
    """Train hard-concrete gates on a network's neurons, zero behind them, against the true answers to its training pairs.

    Of the configuration, what concerns gates, multipliers and steps is used; every step sees all training pairs.
    """
    gates = _trained_gates(trained, config, torch.Generator().manual_seed(seed))
    mask = top_k(gates[None, None], config.sparsity)[0, 0]
    auc = separation(gates, trained.ipr)
    return GatedNeurons(gates, Neurons.of(trained.model, mask, seed=seed), auc)


def separation(score: Float[Tensor, " neuron"], ipr: Float[Tensor, " neuron"], threshold: float = GENERALIZING) -> float:
    """The area under the ROC curve of a score that is to be high for neurons with an IPR of at least the threshold."""
    periodic = ipr >= threshold
    if periodic.all() or not periodic.any():
        return float("nan")
    return float(roc_auc_score(periodic.numpy(), score.numpy()))


def _trained_gates(trained: Trained, config: PruneConfig, generator: torch.Generator) -> Float[Tensor, " neuron"]:
    model, data, concrete = trained.model, trained.data, HardConcrete()
    numbers, point = data.train_numbers, neuron_point(model)
    targets = targets_of(data.true_labels, data.pairs.p, trained.config.fit.loss).to(device_of(model))
    scale = data.pairs.p if targets.is_floating_point() else 1  # squared error per pair, not per entry: of the size of 1
    start = config.gate_mean + config.gate_std * torch.randn(len(trained.ipr), generator=generator)
    log_alpha, multipliers = start.requires_grad_(), torch.zeros(1, 2, requires_grad=True)
    optimizer = torch.optim.AdamW(
        [
            {"params": [log_alpha], "lr": config.lr_gates},
            {"params": [multipliers], "lr": config.lr_multipliers, "maximize": True},
        ],
        weight_decay=config.weight_decay,
    )
    with mode(model, training=False):
        for step in range(config.steps):
            gates = concrete.sample(log_alpha, concrete.noise(tuple(log_alpha.shape), generator))
            with hooked(model, [Edit(point, _times(gates))]):
                loss = scale * loss_of(answers(model, numbers), targets)
            sparsity = 1 - concrete.p_open(log_alpha).mean()
            total = loss + lagrangian(config.target(step), sparsity[None], multipliers)[0]
            log_alpha.grad, multipliers.grad = torch.autograd.grad(total, [log_alpha, multipliers])  # none for the weights
            optimizer.step()
    return log_alpha.detach()


def _times(gates: Float[Tensor, " neuron"]) -> HookFunction:
    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        return activation * gates.to(activation.device)

    return hook
