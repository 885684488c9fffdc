"""Gates in training: several runs in one forward pass, each with its own draws, data order, clipping and multipliers."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import cast

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from hc_lens import machine
from hc_lens.data.batches import Batch, Encoded, move, shuffled_rows
from hc_lens.forward import device_of, dtype_of, mode, run_batch, shape_of
from hc_lens.gates import HardConcrete, gate_edits, undecided
from hc_lens.hooks import HookedModel, hooked
from hc_lens.means import ActivationMeans
from hc_lens.models import fused
from hc_lens.precision import resolve
from hc_lens.pruning.config import PruneConfig
from hc_lens.pruning.objective import Loss, lagrangian

_INIT, _NOISE, _ORDER, _POSITIONS, _DROPOUT = range(5)
STRETCH = 64
"""Steps whose noise is drawn at once. Between two stretches the losses are looked at, which waits for the device, and gates
can be kept: no drawn noise is left over then."""
HISTORY = ("target", "sparsity", "loss", "lambda1", "lambda2", "undecided")


class PruneError(RuntimeError):
    """A pruning run that cannot give a result: NaN, or gates that collapsed."""


def stream(seed: int, fixed: int | None, which: int) -> torch.Generator:
    """The CPU generator of one stream of a run's randomness: initialisation, gate noise, or data order.

    The CPU's, whatever device trains: the same draws everywhere. Streams of one seed are independent.
    """
    state = np.random.SeedSequence([seed if fixed is None else fixed, which]).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state >> np.uint64(1)))


@contextmanager
def frozen(model: nn.Module, *, dropout: bool) -> Generator[None]:
    """No weight requires a gradient; train mode only if `dropout`. Both are restored, also on error."""
    required = [parameter for parameter in model.parameters() if parameter.requires_grad]
    try:
        for parameter in required:
            parameter.requires_grad_(False)
        with mode(model, training=dropout):
            yield
    finally:
        for parameter in required:
            parameter.requires_grad_(True)


def data_order(encoded: Encoded, config: PruneConfig, seed: int) -> Int[Tensor, "micro batch"]:
    """The rows of every micro-batch of a run, `steps * accumulation` of them.

    With `config.bucket`, batches hold rows of like length. Which rows share a batch is the run's own; at which steps long
    batches come is the same for all runs, so that runs trained together need little padding.
    """
    generator, positions = stream(seed, config.order_seed, _ORDER), stream(0, None, _POSITIONS)
    n_batches = config.steps * config.accumulation
    return shuffled_rows(encoded.lengths, config.batch_size, n_batches, generator, config.bucket, positions)


def runs_together(model: HookedModel, encoded: Encoded, config: PruneConfig) -> int:
    """How many runs share a forward pass: as many as `config.memory_gib` holds the activations of, at least one.

    An estimate from above: about 20 fp32 values are kept for the backward pass per token, layer and unit of width. Whatever
    `memory_gib` says, half of what the device has is the most. With dropout on, runs do not share one: dropout is drawn for a
    whole batch, so that a run's draws would depend on the others.
    """
    if config.dropout:
        return 1
    width = shape_of(model).n_layers * shape_of(model).d_model
    tokens = config.batch_size * min(config.max_length, int(encoded.lengths.max()))
    budget = min(config.memory_gib, machine.memory_gib(device_of(model)) / 2)
    return max(1, int(budget * 2**30 / (80 * tokens * width)))


class GateTraining:
    """Gates of several runs in training: `step()` once per optimiser step; `log_alpha`, `multipliers`, `history` are its state.

    Runs trained together see exactly the draws and batches they would see alone; the loss is a sum over runs and clipping is
    per run, so that no run feels another. Nothing in a step waits for the device.

    Attributes:
        log_alpha: Float[Tensor, "run layer unit"].
        multipliers: Float[Tensor, "run 2"], lambda1 and lambda2.
        history: Float[Tensor, "step run column"], columns as in `HISTORY`; steps not taken are NaN.
    """

    def __init__(
        self,
        model: HookedModel,
        encoded: Encoded,
        means: ActivationMeans,
        config: PruneConfig,
        seeds: Sequence[int],
        loss: Loss,
        orders: Sequence[Int[Tensor, "micro batch"]],
    ) -> None:
        self.model, self.encoded, self.config, self.loss, self.orders = model, encoded, config, loss, orders
        self.device = device_of(model)
        self.means = means.to(self.device)
        self.concrete = HardConcrete()
        shape = (means.n_layers, means.n_heads + 1)
        start = [
            config.gate_mean + config.gate_std * torch.randn(shape, generator=stream(s, config.init_seed, _INIT)) for s in seeds
        ]
        self.log_alpha = torch.stack(start).to(self.device).requires_grad_()
        self.multipliers = torch.zeros(len(seeds), 2, device=self.device, requires_grad=True)
        self._noise_streams = [stream(s, config.noise_seed, _NOISE) for s in seeds]
        self._noise = torch.empty(0)
        self.optimiser = torch.optim.AdamW(
            [
                {"params": [self.log_alpha], "lr": config.lr_gates},
                {"params": [self.multipliers], "lr": config.lr_multipliers, "maximize": True},
            ],
            weight_decay=config.weight_decay,
        )
        self._dropout_seed = stream(seeds[0], config.noise_seed, _DROPOUT).initial_seed()
        self.history = torch.full((config.steps, len(seeds), len(HISTORY)), torch.nan, device=self.device)
        self.taken = 0

    def __enter__(self) -> "GateTraining":
        """Freeze and fuse the model for as long as the context lasts; dropout is drawn from the run's own stream."""
        self._stack = ExitStack()
        with ExitStack() as stack:
            stack.enter_context(torch.random.fork_rng([self.device] if self.device.type == "cuda" else []))
            torch.manual_seed(self._dropout_seed)
            stack.enter_context(frozen(self.model, dropout=self.config.dropout))
            stack.enter_context(fused(self.model, dtype=dtype_of(resolve(self.config.precision, self.model)), narrow=True))
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def step(self) -> None:
        """One optimiser step of every run."""
        config, k = self.config, self.taken
        target = config.target(k)
        for group, lr in zip(self.optimiser.param_groups, (config.lr_gates, config.lr_multipliers), strict=True):
            group["lr"] = lr * config.rate(k)
        losses, sparsities = zip(*(self._micro(k, micro, target) for micro in range(config.accumulation)), strict=True)
        self._record(k, target, torch.stack(losses).mean(0), torch.stack(sparsities).mean(0))
        if config.clip is not None:
            self._clip(config.clip)
        self.optimiser.step()
        self.optimiser.zero_grad(set_to_none=True)
        self.taken += 1

    def require_finite(self) -> None:
        """Wait for the device, and check every loss so far.

        Raises:
            PruneError: naming the first step whose loss was not finite, and what to change.
        """
        bad = ~self.history[: self.taken, :, HISTORY.index("loss")].isfinite().all(1).cpu()
        if bad.any():
            step, config = int(bad.nonzero()[0]), self.config
            advice = f"lower lr_gates ({config.lr_gates}) or lr_multipliers ({config.lr_multipliers})"
            if step == 0:
                advice = "no gate had moved yet, so look at the loss function and the model's logits"
            raise PruneError(
                f"the loss was NaN or infinite at pruning step {step}: {advice}, "
                f"or use precision 'fp32' (now {config.precision!r})"
            )

    def state(self) -> dict[str, Tensor]:
        """All that decides the next steps, after the last step of a stretch."""
        tensors = {"log_alpha": self.log_alpha, "multipliers": self.multipliers, "history": self.history[: self.taken]}
        moments = cast("dict[int, dict[str, Tensor]]", self.optimiser.state_dict()["state"])
        for index, values in moments.items():
            tensors |= {f"optimiser/{index}/{name}": value for name, value in values.items()}
        tensors |= {f"noise/{run}": generator.get_state() for run, generator in enumerate(self._noise_streams)}
        on_gpu = self.device.type == "cuda"
        tensors["dropout"] = torch.cuda.get_rng_state(self.device) if on_gpu else torch.get_rng_state()
        return tensors

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Tensor], taken: int) -> None:
        """Go on from a `state` after `taken` steps; to be called inside the context."""
        self.taken = taken
        self.log_alpha.copy_(tensors["log_alpha"])
        self.multipliers.copy_(tensors["multipliers"])
        self.history[:taken] = tensors["history"].to(self.device)
        moments: dict[int, dict[str, Tensor]] = {}
        for place, value in tensors.items():
            if place.startswith("optimiser/"):
                _, index, name = place.split("/")
                moments.setdefault(int(index), {})[name] = value
        self.optimiser.load_state_dict({"state": moments, "param_groups": self.optimiser.state_dict()["param_groups"]})
        for run, generator in enumerate(self._noise_streams):
            generator.set_state(tensors[f"noise/{run}"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["dropout"], self.device)
        else:
            torch.set_rng_state(tensors["dropout"])

    def _micro(self, k: int, micro: int, target: float) -> tuple[Float[Tensor, " run"], Float[Tensor, " run"]]:
        index = k * self.config.accumulation + micro
        batch = self._batch(index)
        gates = self.concrete.sample(self.log_alpha, self._draw(k, micro))
        with hooked(self.model, gate_edits(self.means, gates)):
            output = run_batch(self.model, batch)
        losses = self.loss(output, batch)
        if losses.shape != (len(batch),):
            raise ValueError(f"the loss must return one value per row, ({len(batch)},); it returned {tuple(losses.shape)}")
        loss = losses.view(len(self.orders), -1).mean(1)
        kept = self.concrete.p_open(self.log_alpha) if self.config.estimate == "expected" else gates
        sparsity = 1 - kept.mean((1, 2))
        total = loss + lagrangian(target, sparsity, self.multipliers)
        (total.sum() / self.config.accumulation).backward()
        return loss.detach(), sparsity.detach()

    def _batch(self, index: int) -> Batch:
        parts = [self.encoded.batch(order[index]) for order in self.orders]
        return (parts[0] if len(parts) == 1 else Batch.stack(parts)).to(self.device)

    def _draw(self, k: int, micro: int) -> Float[Tensor, "run layer unit"]:
        within = k % STRETCH
        if within == 0 and micro == 0:
            shape = (STRETCH, self.config.accumulation, *self.log_alpha.shape[1:])
            drawn = torch.stack([self.concrete.noise(shape, g) for g in self._noise_streams], dim=2)
            self._noise = move(drawn, self.device)
        return self._noise[within, micro]

    def _clip(self, largest: float) -> None:
        assert self.log_alpha.grad is not None
        assert self.multipliers.grad is not None
        norm = (self.log_alpha.grad.square().sum((1, 2)) + self.multipliers.grad.square().sum(1)).sqrt()
        factor = (largest / (norm + 1e-6)).clamp(max=1)
        self.log_alpha.grad *= factor.view(-1, 1, 1)
        self.multipliers.grad *= factor.view(-1, 1)

    @torch.no_grad()
    def _record(self, k: int, target: float, loss: Float[Tensor, " run"], sparsity: Float[Tensor, " run"]) -> None:
        goal = torch.full_like(loss, target)
        columns = (goal, sparsity, loss, self.multipliers[:, 0], self.multipliers[:, 1], undecided(self.log_alpha))
        self.history[k] = torch.stack(columns, dim=1)
