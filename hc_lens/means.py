"""What an ablated unit's activation is replaced with: its mean over the training data, or one of the stated alternatives."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from safetensors import SafetensorError, safe_open

from hc_lens.atomic import write_tensors
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.units import Head, Unit, require_in_model

if TYPE_CHECKING:
    import torch
    from jaxtyping import Float
    from torch import Tensor
    from transformer_lens.hook_points import HookPoint

    from hc_lens.forward import Inputs
    from hc_lens.hooks import Edit, HookedModel, HookFunction

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
        model: HookedModel,
        data: Inputs,
        sample: Sample = ALL_ROWS,
        *,
        kind: Ablation = "mean",
        pool: int = 512,
    ) -> ActivationMeans:
        """Collect reference activations on `data` with the model in eval mode.

        Real positions only: padding never counts, [CLS] and [SEP] do; every token weighs the same (The Heuristic Core, section
        4). The sample's rows are random ones (the paper's were the first 100,000), and its seed is also that of "resample", for
        which `pool` tokens are kept.

        Raises:
            ValueError: for an unknown kind, or weights that are NaN or infinite.
            MeansError: for a compact model, some of whose units are gone, and for activations that are NaN or infinite.
        """
        import torch

        from hc_lens.accumulate import Accumulator, accumulate
        from hc_lens.data.sampling import some_rows
        from hc_lens.forward import inputs_of, shape_of
        from hc_lens.models import Classifier, fingerprint
        from hc_lens.models.finite import require_finite_model

        if kind not in get_args(Ablation):
            raise ValueError(f"ablation kind must be one of {list(get_args(Ablation))}, got {kind!r}")
        if isinstance(model, Classifier) and model.remains is not None:
            raise MeansError("this is a compact model, some of whose units are gone: collect the means of the whole model")
        require_finite_model(model)
        encoded, seed = inputs_of(model, data, sample.max_length), sample.seed
        rows = some_rows(len(encoded), sample.max_rows, seed)
        n_layers = shape_of(model).n_layers
        seen = Accumulator(n_layers, by_position=kind == "position", pool=pool if kind == "resample" else 0, seed=seed)
        accumulate(model, encoded, rows, sample.batch_size, seen)
        head, mlp = seen.freeze()
        if not (head.isfinite().all() and mlp.isfinite().all()):
            raise MeansError(f"activations of this {type(model).__name__} are NaN or infinite, though its weights are not")
        drawn = "" if len(rows) == len(encoded) else f"seed {seed}"
        told = f"{encoded.fingerprint}[{drawn}:{len(rows)}]"
        if kind == "zero":
            head, mlp = torch.zeros_like(head), torch.zeros_like(mlp)
        return cls(kind, head, mlp, seen.tokens, fingerprint(model), told, seed)

    def to(self, device: torch.device) -> ActivationMeans:
        """The same means on another device."""
        return replace(self, head=self.head.to(device), mlp=self.mlp.to(device))

    def require_model(self, model: HookedModel) -> None:
        """Check that these means belong to `model`.

        Raises:
            MeansError: naming both fingerprints.
        """
        from hc_lens.models import fingerprint

        if (actual := fingerprint(model)) != self.model:
            raise MeansError(
                f"these means belong to another model (weights {self.model[:12]}, this model's are {actual[:12]}): "
                "collect them with ActivationMeans.collect(model, ...)"
            )

    @property
    def positionwise(self) -> bool:
        """Whether the reference of an activation is the same at every position of every row."""
        return self.kind in ("mean", "zero")

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
        from hc_lens.hooks import Edit, mlp_point, positionwise, z_point

        chosen = sorted(set(units), key=str)
        require_in_model(chosen, self.n_layers, self.n_heads)
        edits: list[Edit] = []
        for layer in range(self.n_layers):
            if heads := sorted(unit.index for unit in chosen if isinstance(unit, Head) and unit.layer == layer):
                replace_heads = _replace_heads(heads, self.head_reference(layer))
                edits.append(Edit(z_point(layer), positionwise(replace_heads, when=self.positionwise)))
            if any(unit.layer == layer for unit in chosen if not isinstance(unit, Head)):
                replace_mlp = _replace_all(self.mlp_reference(layer))
                edits.append(Edit(mlp_point(layer), positionwise(replace_mlp, when=self.positionwise)))
        return edits

    def save(self, directory: str | Path) -> Path:
        """Write the means once, as `directory/<digest>.safetensors`, and return that path."""
        path = Path(directory) / f"{self.digest}.safetensors"
        if not path.exists():
            metadata = {
                "kind": self.kind,
                "tokens": str(self.tokens),
                "model": self.model,
                "data": self.data,
                "seed": str(self.seed),
            }
            write_tensors(path, {"head": self.head, "mlp": self.mlp}, metadata)
        return path

    @classmethod
    def load(cls, path: str | Path) -> ActivationMeans:
        """Read means written by `save`.

        Raises:
            MeansError: if the file is absent, damaged, or does not hold what its name says.
        """
        path = Path(path)
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
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise MeansError(f"{path} does not hold activation means: {error}; delete it to redo it") from error
        if means.digest != path.stem:
            raise MeansError(
                f"{path} holds means with digest {means.digest[:12]}, not the one in its name: "
                "the file was changed; delete it to redo it"
            )
        return means

    def _reference(self, table: Tensor, layer: int) -> HookFunction:
        import torch

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
            # One draw for a layer's heads and MLP alike, fixed by seed, layer and the batch's shape: an edit is a function.
            draw = torch.Generator().manual_seed(self.seed * 1_000_003 + layer)
            index = torch.randint(values.shape[0], tuple(activation.shape[:2]), generator=draw)
            return values[index.to(values.device)].to(activation.device)

        return resampled


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
