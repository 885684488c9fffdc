"""What an ablated unit's activation is replaced with: its mean over the training data, or one of the stated alternatives."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal, cast, get_args

import torch
from jaxtyping import Float
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint

from hc_lens.data.batches import Encoded
from hc_lens.forward import Inputs, device_of, inputs_of, run_batch
from hc_lens.hooks import Edit, HookFunction, captured, mlp_point, z_point
from hc_lens.models import fingerprint, fused
from hc_lens.runs import atomic_path
from hc_lens.units import Head, Unit, require_in_model

Ablation = Literal["mean", "position", "zero", "resample"]


class MeansError(ValueError):
    """Reference activations that are absent, damaged, or of another model."""


@dataclass(frozen=True)
class ActivationMeans:
    """Reference activations of every head and MLP of one model.

    Attributes:
        kind: "mean" (one vector per unit, over all real positions), "position" (one per position), "zero", or "resample"
            (a pool of activations of random training tokens, drawn anew for each position of each row).
        head: context vectors before W_O. The axis between layer and head is absent for "mean" and "zero", positions for
            "position", pool samples for "resample".
        mlp: MLP outputs, bias included, with the same axes.
        tokens: how many real positions the statistics are over.
        model: fingerprint of the model they belong to.
        data: fingerprint of the rows they were collected on.
        seed: of the draws of "resample".
    """

    kind: Ablation
    head: Float[Tensor, "layer *sample head d_head"] = field(repr=False)
    mlp: Float[Tensor, "layer *sample d_model"] = field(repr=False)
    tokens: int
    model: str
    data: str
    seed: int = 0

    @property
    def n_layers(self) -> int:
        return self.head.shape[0]

    @property
    def n_heads(self) -> int:
        return self.head.shape[-2]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the contents: the name under which the means are stored and referred to."""
        parts = hashlib.sha256(f"{self.kind}|{self.model}|{self.data}|{self.tokens}|{self.seed}".encode())
        for tensor in (self.head, self.mlp):
            parts.update(str(tuple(tensor.shape)).encode())
            parts.update(tensor.detach().cpu().contiguous().numpy().tobytes())
        return parts.hexdigest()

    @classmethod
    def collect(
        cls,
        model: HookedRootModule,
        data: Inputs,
        *,
        kind: Ablation = "mean",
        max_rows: int | None = 100_000,
        max_length: int | None = None,
        batch_size: int = 64,
        pool: int = 512,
        seed: int = 0,
    ) -> "ActivationMeans":
        """Collect reference activations on `data` with the model in eval mode.

        Real positions only: padding never counts, [CLS] and [SEP] do; every token weighs the same (The Heuristic Core, section
        4). `max_rows` takes the first rows, the paper's 100,000 by default. `pool` is the number of tokens kept for "resample".

        Raises:
            ValueError: for an unknown kind.
        """
        if kind not in get_args(Ablation):
            raise ValueError(f"ablation kind must be one of {list(get_args(Ablation))}, got {kind!r}")
        encoded = inputs_of(model, data, max_length)
        rows = range(min(len(encoded), max_rows or len(encoded)))
        n_layers = cast(int, model.cfg.n_layers)
        totals = _Totals(n_layers, by_position=kind == "position", pool=pool if kind == "resample" else 0, seed=seed)
        _stream(model, encoded, rows, batch_size, totals)
        head, mlp = totals.freeze()
        if kind == "zero":
            head, mlp = torch.zeros_like(head), torch.zeros_like(mlp)
        return cls(kind, head, mlp, totals.tokens, fingerprint(model), f"{encoded.fingerprint}[:{len(rows)}]", seed)

    def to(self, device: torch.device) -> "ActivationMeans":
        """The same means on another device."""
        return replace(self, head=self.head.to(device), mlp=self.mlp.to(device))

    def require_model(self, model: HookedRootModule) -> None:
        """Check that these means belong to `model`.

        Raises:
            MeansError: naming both fingerprints.
        """
        if (actual := fingerprint(model)) != self.model:
            raise MeansError(
                f"these means belong to another model (weights {self.model[:12]}, this model's are {actual[:12]}): "
                "collect them with ActivationMeans.collect(model, ...)"
            )

    def head_reference(self, layer: int) -> HookFunction:
        """From `hook_z`'s activation to its reference, which broadcasts to it or is one draw for each (batch, pos)."""
        return self._reference(self.head, layer)

    def mlp_reference(self, layer: int) -> HookFunction:
        """From `hook_mlp_out`'s activation to its reference, likewise."""
        return self._reference(self.mlp, layer)

    def edits(self, units: Iterable[Unit]) -> list[Edit]:
        """Edits that ablate these units: each one's activation becomes its reference, at every position.

        Raises:
            ValueError: naming a unit the model does not have.
        """
        chosen = sorted(set(units), key=str)
        require_in_model(chosen, self.n_layers, self.n_heads)
        edits: list[Edit] = []
        for layer in range(self.n_layers):
            if heads := sorted(unit.index for unit in chosen if isinstance(unit, Head) and unit.layer == layer):
                edits.append(Edit(z_point(layer), _replace_heads(heads, self.head_reference(layer))))
            if any(unit.layer == layer for unit in chosen if not isinstance(unit, Head)):
                edits.append(Edit(mlp_point(layer), _replace_all(self.mlp_reference(layer))))
        return edits

    def save(self, directory: Path) -> Path:
        """Write the means once, as `directory/<digest>.safetensors`, and return that path."""
        path = directory / f"{self.digest}.safetensors"
        if not path.exists():
            metadata = {
                "kind": self.kind,
                "tokens": str(self.tokens),
                "model": self.model,
                "data": self.data,
                "seed": str(self.seed),
            }
            directory.mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as temporary:
                save_file({"head": self.head.cpu().contiguous(), "mlp": self.mlp.cpu().contiguous()}, temporary, metadata)
        return path

    @classmethod
    def load(cls, path: Path) -> "ActivationMeans":
        """Read means written by `save`.

        Raises:
            MeansError: if the file is absent, damaged, or does not hold what its name says.
        """
        if not path.is_file():
            raise MeansError(
                f"no means at {path}: an ablation without its means would silently be zero ablation, so nothing is loaded"
            )
        try:
            with safe_open(path, framework="pt") as file:
                metadata, head, mlp = file.metadata(), file.get_tensor("head"), file.get_tensor("mlp")
            means = cls(
                metadata["kind"], head, mlp, int(metadata["tokens"]), metadata["model"], metadata["data"], int(metadata["seed"])
            )
        except (SafetensorError, KeyError, TypeError) as error:
            raise MeansError(f"{path} does not hold activation means: {error}") from error
        if means.digest != path.stem:
            raise MeansError(
                f"{path} holds means with digest {means.digest[:12]}, not the one in its name: the file was changed"
            )
        return means

    def _reference(self, table: Tensor, layer: int) -> HookFunction:
        values = table[layer]
        if self.kind in ("mean", "zero"):

            def constant(activation: Tensor, hook: HookPoint) -> Tensor:
                return values.to(activation.device)

            return constant
        if self.kind == "position":

            def by_position(activation: Tensor, hook: HookPoint) -> Tensor:
                length = activation.shape[1]
                if length > values.shape[0]:
                    raise MeansError(
                        f"a batch of {length} positions, but means for {values.shape[0]}: collect with a larger max_length"
                    )
                return values[:length].to(activation.device)

            return by_position

        def resampled(activation: Tensor, hook: HookPoint) -> Tensor:
            # One draw for a layer's head and MLP alike, fixed by seed and layer: an edit is a function, the same at every call.
            draw = torch.Generator().manual_seed(self.seed * 1_000_003 + layer)
            index = torch.randint(values.shape[0], tuple(activation.shape[:2]), generator=draw)
            return values[index.to(values.device)].to(activation.device)

        return resampled


class _Totals:
    """Streaming float64 sums over real positions; frozen into means at the end."""

    def __init__(self, n_layers: int, *, by_position: bool, pool: int, seed: int) -> None:
        self.points = [(z_point(layer), mlp_point(layer)) for layer in range(n_layers)]
        self.by_position = by_position
        self.pool = pool
        self.generator = torch.Generator().manual_seed(seed)
        self.sums: dict[str, Tensor] = {}
        self.counts: Tensor | None = None
        self.tokens = 0
        self.kept: dict[str, Tensor] = {}
        self.keys: Tensor | None = None

    def update(self, seen: dict[str, Tensor], mask: Tensor) -> None:
        real = mask.bool()
        self.tokens += int(real.sum())
        self._count(real)
        chosen = self._choose(real) if self.pool else None
        for point, activation in seen.items():
            kept = torch.where(real.view(*real.shape, *(1,) * (activation.ndim - 2)), activation, 0).sum(0, dtype=torch.float64)
            if point in self.sums and len(kept) > len(self.sums[point]):
                self.sums[point] = _padded(self.sums[point], len(kept))
            elif point in self.sums:
                kept = _padded(kept, len(self.sums[point]))
            self.sums[point] = kept + self.sums.get(point, 0)
            if chosen is not None:
                new = torch.cat([self.kept[point], activation[real]]) if point in self.kept else activation[real]
                self.kept[point] = new[chosen.to(new.device)]

    def freeze(self) -> tuple[Tensor, Tensor]:
        if self.pool:
            stacked = [torch.stack([self.kept[pair[i]] for pair in self.points]).float().cpu() for i in (0, 1)]
            return stacked[0], stacked[1]
        head, mlp = (torch.stack([self._mean(pair[i]) for pair in self.points]).float().cpu() for i in (0, 1))
        return head, mlp

    def _mean(self, point: str) -> Tensor:
        total = self.sums[point].sum(0) / self.tokens
        if not self.by_position:
            return total
        assert self.counts is not None
        counts = self.counts.view(-1, *(1,) * total.ndim)
        # Positions no row reached have no mean of their own: they get the overall one.
        return torch.where(counts > 0, self.sums[point] / counts.clamp(min=1), total)

    def _count(self, real: Tensor) -> None:
        counts = real.sum(0)
        if self.counts is None:
            self.counts = counts
            return
        length = max(len(counts), len(self.counts))
        self.counts = _padded(self.counts, length) + _padded(counts, length)

    def _choose(self, real: Tensor) -> Tensor:
        # A random key for every token; the pool is the tokens with the smallest keys: a uniform sample of the stream.
        new = torch.rand(int(real.sum()), generator=self.generator)
        keys = new if self.keys is None else torch.cat([self.keys, new])
        chosen = keys.argsort()[: self.pool]
        self.keys = keys[chosen]
        return chosen


def _padded(tensor: Tensor, length: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


@torch.no_grad()
def _stream(model: HookedRootModule, encoded: Encoded, rows: range, batch_size: int, totals: _Totals) -> None:
    device, training = device_of(model), model.training
    model.eval()
    try:
        with fused(model), captured(model, [point for pair in totals.points for point in pair]) as seen:
            order = sorted(rows, key=lambda row: int(encoded.lengths[row]))
            for start in range(0, len(order), batch_size):
                batch = encoded.batch(order[start : start + batch_size]).to(device)
                run_batch(model, batch)
                totals.update(seen, batch.attention_mask)
    finally:
        model.train(training)


def _replace_heads(heads: list[int], reference: HookFunction) -> HookFunction:
    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        edited = activation.clone()
        edited[..., heads, :] = reference(activation, hook=hook)[..., heads, :].to(activation.dtype)
        return edited

    return hook


def _replace_all(reference: HookFunction) -> HookFunction:
    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        return reference(activation, hook=hook).to(activation.dtype).expand_as(activation)

    return hook
