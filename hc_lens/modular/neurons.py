"""A subnetwork over hidden neurons: which of one network's neurons stay, and what stands in for the others."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.atomic import RunError, read_metadata, read_tensors, write_tensors
from hc_lens.hooks import Edit, HookFunction
from hc_lens.json_text import parse_json
from hc_lens.models import fingerprint
from hc_lens.modular.networks import Network, neuron_count, neuron_point
from hc_lens.provenance import Provenance
from hc_lens.subnetwork import SubnetworkError


@dataclass(frozen=True, eq=False)
class Neurons:
    """Frozen masks over the neurons of one network, as `hc_lens.Subnetwork` is over heads and MLPs.

    `mask[k]` is whether neuron k stays; `reference[k]` is the activation that stands in for it if it does not, zero or a mean.
    `&`, `|`, `-` and `~` act on the neurons that stay. `model` is the fingerprint of the network's weights.
    """

    mask: Bool[Tensor, " neuron"] = field(repr=False)
    reference: Float[Tensor, " neuron"] = field(repr=False)
    point: str
    model: str = field(repr=False)
    seed: int | None = None
    provenance: Provenance = field(default_factory=dict[str, str | int | float | bool | None], repr=False)

    @staticmethod
    def of(
        model: Network,
        mask: Bool[Tensor, " neuron"],
        reference: Float[Tensor, " neuron"] | None = None,
        seed: int | None = None,
    ) -> "Neurons":
        """The neurons of `model` that a mask keeps; zero stands in for the others unless a reference is given.

        Raises:
            SubnetworkError: if the mask has not one place for each neuron.
        """
        width = neuron_count(model)
        if len(mask) != width:
            raise SubnetworkError(f"a mask of {len(mask)} places is not one of this network, which has {width} neurons")
        return Neurons(
            mask, torch.zeros(width) if reference is None else reference, neuron_point(model), fingerprint(model), seed
        )

    @staticmethod
    def all_of(model: Network, reference: Float[Tensor, " neuron"] | None = None) -> "Neurons":
        """Every neuron of `model`: what others are made from by `without`."""
        return Neurons.of(model, torch.ones(neuron_count(model), dtype=torch.bool), reference)

    @property
    def kept(self) -> frozenset[int]:
        """The neurons that stay."""
        return frozenset(self.mask.nonzero().flatten().tolist())

    @property
    def closed(self) -> frozenset[int]:
        """The neurons that are ablated."""
        return (~self).kept

    @property
    def sparsity(self) -> float:
        """Share of the neurons that is ablated."""
        return int((~self.mask).sum()) / len(self.mask)

    def edits(self) -> list[Edit]:
        """Edits that turn the full network into this subnetwork."""

        def keep(activation: Tensor, hook: HookPoint) -> Tensor:
            return torch.where(self.mask.to(activation.device), activation, self.reference.to(activation))

        return [Edit(self.point, keep)]

    def fwd_hooks(self) -> list[tuple[str, HookFunction]]:
        """The same for TransformerLens's `run_with_hooks`."""
        return [(edit.point, edit.apply) for edit in self.edits()]

    def without(self, *neurons: int) -> "Neurons":
        """This subnetwork with these neurons ablated as well.

        Raises:
            SubnetworkError: naming a neuron that the network does not have.
        """
        if outside := [neuron for neuron in neurons if not 0 <= neuron < len(self.mask)]:
            raise SubnetworkError(f"neuron {outside[0]} is not in this network: neurons are 0..{len(self.mask) - 1}")
        mask = self.mask.clone()
        mask[list(neurons)] = False
        label = f"({self._label}) - {len(neurons)} neurons"
        return replace(self, mask=mask, seed=None, provenance={"made by": label})

    def require_model(self, model: Network) -> None:
        """Check that this is a subnetwork of `model`.

        Raises:
            SubnetworkError: if the network has other weights.
        """
        if (other := fingerprint(model)) != self.model:
            raise SubnetworkError(f"these neurons are of the network {self.model[:12]}, not of {other[:12]}")

    def __eq__(self, other: object) -> bool:
        """Equal: the same neurons of the same network, with the same stand-ins. Provenance does not count."""
        return isinstance(other, Neurons) and self._same_network(other) and torch.equal(self.mask, other.mask)

    def __hash__(self) -> int:
        return hash((self.model, self.mask.numpy().tobytes()))

    def __and__(self, other: "Neurons") -> "Neurons":
        return self._combine(other, "&", torch.logical_and)

    def __or__(self, other: "Neurons") -> "Neurons":
        return self._combine(other, "|", torch.logical_or)

    def __sub__(self, other: "Neurons") -> "Neurons":
        return self._combine(other, "-", lambda a, b: a & ~b)

    def __invert__(self) -> "Neurons":
        return replace(self, mask=~self.mask, seed=None, provenance={"made by": f"~{self._label}"})

    def save(self, path: Path) -> Path:
        """Write mask, stand-ins and provenance to `path` as safetensors."""
        metadata = {"point": self.point, "model": self.model, "seed": json.dumps(self.seed)}
        metadata["provenance"] = json.dumps(dict(self.provenance))
        write_tensors(path, {"mask": self.mask, "reference": self.reference}, metadata)
        return path

    @classmethod
    def load(cls, path: Path, model: Network | None = None) -> "Neurons":
        """Read what `save` wrote; with `model`, refuse neurons of another network.

        Raises:
            SubnetworkError: if the file is absent or damaged, or (with `model`) of another network.
        """
        try:
            tensors, metadata = read_tensors(path), read_metadata(path)
            seed = cast("int | None", parse_json(metadata["seed"]))
            provenance = cast(Provenance, parse_json(metadata["provenance"]))
            neurons = cls(tensors["mask"], tensors["reference"], metadata["point"], metadata["model"], seed, provenance)
        except (RunError, KeyError, ValueError) as error:
            raise SubnetworkError(f"{path} does not hold a subnetwork of neurons: {error}") from error
        if model is not None:
            neurons.require_model(model)
        return neurons

    @property
    def _label(self) -> str:
        return f"seed {self.seed}" if self.seed is not None else str(self.provenance.get("made by", "neurons"))

    def _same_network(self, other: "Neurons") -> bool:
        return (self.model, self.point) == (other.model, other.point) and torch.equal(self.reference, other.reference)

    def _combine(self, other: "Neurons", sign: str, rule: Callable[[Tensor, Tensor], Tensor]) -> "Neurons":
        if not self._same_network(other):
            raise SubnetworkError(
                f"these neurons are of different networks or have different stand-ins ({self.model[:12]} and "
                f"{other.model[:12]}): only sets of one network's neurons can be combined"
            )
        label = f"({self._label}) {sign} ({other._label})"
        return replace(self, mask=rule(self.mask, other.mask), seed=None, provenance={"made by": label})
