"""A subnetwork: which heads and MLPs of one model stay, what the others are replaced with, and where it came from."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, cast, get_args

from safetensors import SafetensorError, safe_open

from hc_lens.atomic import write_tensors
from hc_lens.json_text import parse_json
from hc_lens.provenance import Provenance
from hc_lens.units import Head, Mlp, Unit, require_in_model

if TYPE_CHECKING:
    from jaxtyping import Bool
    from torch import Tensor

    from hc_lens.hooks import Edit, HookedModel, HookFunction
    from hc_lens.means import ActivationMeans
    from hc_lens.models import Classifier, Cut


class SubnetworkError(ValueError):
    """A subnetwork that is damaged, of another model, or combined with one of another model."""


Format = Literal["compact", "transformers"]


@dataclass(frozen=True, eq=False)
class Subnetwork:
    """Frozen masks over the units of one model, with the means that stand in for the closed ones.

    `mask[l, h]` is whether head h of layer l stays; `mask[l, n_heads]` whether the layer's MLP does. The set operations `&`,
    `|`, `-` and `~` act on the kept units; the first three need two subnetworks with the same means. `provenance` records the
    fingerprints of model and data, the configuration's digest, versions and how the gates ended; for a combination, how it was
    made.
    """

    mask: Bool[Tensor, "layer unit"] = field(repr=False)
    means: ActivationMeans = field(repr=False)
    seed: int | None = None
    provenance: Provenance = field(default_factory=dict[str, str | int | float | bool | None], repr=False)

    def __post_init__(self) -> None:
        expected = (self.means.n_layers, self.means.n_heads + 1)
        if tuple(self.mask.shape) != expected:
            raise SubnetworkError(
                f"a mask of {tuple(self.mask.shape)} (layer, unit) is not one of this model, which has {expected}"
            )

    @property
    def n_layers(self) -> int:
        return self.means.n_layers

    @property
    def n_heads(self) -> int:
        return self.means.n_heads

    @property
    def heads(self) -> frozenset[Head]:
        """The heads that stay."""
        return frozenset(
            Head(layer, index) for layer, index in cast(list[list[int]], self.mask[:, : self.n_heads].nonzero().tolist())
        )

    @property
    def mlps(self) -> frozenset[Mlp]:
        """The MLPs that stay."""
        return frozenset(Mlp(layer) for layer in cast(list[int], self.mask[:, self.n_heads].nonzero().flatten().tolist()))

    @property
    def closed(self) -> frozenset[Unit]:
        """Heads and MLPs that are ablated."""
        return (~self).heads | (~self).mlps

    @property
    def sparsity(self) -> float:
        """Share of all units, heads and MLPs weighing the same, that is ablated."""
        return int((~self.mask).sum()) / self.mask.numel()

    def edits(self) -> list[Edit]:
        """Edits that turn the full model into this subnetwork."""
        return self.means.edits(self.closed)

    def fwd_hooks(self) -> list[tuple[str, HookFunction]]:
        """The same for TransformerLens: `model.run_with_hooks(tokens, fwd_hooks=subnetwork.fwd_hooks())`."""
        return [(edit.point, edit.apply) for edit in self.edits()]

    def compact(self, model: HookedModel) -> Classifier:
        """This subnetwork as a model of its own: `model` without the ablated units, what they always add folded into biases.

        Its logits are those of `model` under `edits()`, for less work. What stays whole shares its memory with `model`.

        Raises:
            MeansError: for another model.
            SubnetworkError: for a model that is not a hooked classifier, and for means that are not one constant per unit.
        """
        from hc_lens.models import compacted

        return compacted(self._require_classifier(model), self._cut, self._origin)

    def export(self, directory: str | Path, model: HookedModel, *, format: Format = "compact") -> Path:
        """Write this subnetwork of `model` as a model directory, with logits equal to those under `edits()`.

        "compact": without the ablated units, for `load_compact`. "transformers": in the shapes of `model`, with zeros where
        units are gone, for `AutoModelForSequenceClassification.from_pretrained` without hc_lens, and for `load_model`.

        Raises:
            MeansError, SubnetworkError: as `compact`.
            ValueError: for another format; and for "transformers" where the family has no bias for what ablated units always
                add (Qwen2).
            FileExistsError: when `directory` holds something else than a model in this format.
            OSError: when the disk is full or not writable.
        """
        from hc_lens.models import save_compact, zeroed

        if format not in get_args(Format):
            raise ValueError(f"format must be one of {list(get_args(Format))}, got {format!r}")
        if format == "compact":
            return save_compact(self.compact(model), Path(directory))
        return zeroed(self._require_classifier(model), self._cut).save_pretrained(directory)

    def compact_for(self, model: HookedModel, tokens: int) -> Classifier | None:
        """`compact(model)` where it can be built, and saves more time over that many tokens than building it takes.

        `model` must have passed `require_model`, which is not repeated here.
        """
        from hc_lens.models import Classifier, compacted, compacting_pays

        if (
            not isinstance(model, Classifier)
            or not self.means.positionwise
            or not compacting_pays(model, self._cut.units, tokens)
        ):
            return None
        return compacted(model, self._cut, self._origin)

    def without(self, *units: Unit) -> Subnetwork:
        """This subnetwork with these units ablated as well.

        Raises:
            ValueError: naming a unit the model does not have.
        """
        return self._with(units, stays=False)

    def having(self, *units: Unit) -> Subnetwork:
        """This subnetwork with these units kept as well.

        Raises:
            ValueError: naming a unit the model does not have.
        """
        return self._with(units, stays=True)

    def require_model(self, model: HookedModel) -> None:
        """Check that this is a subnetwork of `model`.

        Raises:
            MeansError: when its means belong to another model.
        """
        self.means.require_model(model)

    def __eq__(self, other: object) -> bool:
        """Equal: the same units of the same model, with the same stand-ins. Provenance does not count."""
        return isinstance(other, Subnetwork) and self.means.digest == other.means.digest and self.mask.equal(other.mask)

    def __hash__(self) -> int:
        return hash((self.means.digest, self.mask.numpy().tobytes()))

    def __and__(self, other: Subnetwork) -> Subnetwork:
        return self._combine(other, "&", operator.and_)

    def __or__(self, other: Subnetwork) -> Subnetwork:
        return self._combine(other, "|", operator.or_)

    def __sub__(self, other: Subnetwork) -> Subnetwork:
        return self._combine(other, "-", lambda a, b: a & ~b)

    def __invert__(self) -> Subnetwork:
        return replace(self, mask=~self.mask, seed=None, provenance={"made by": f"~{self._label}"})

    def save(self, path: str | Path) -> Path:
        """Write mask and provenance (one or two kilobytes) to `path`.

        The means go, once for all subnetworks that share them, to `means/<digest>.safetensors` beside it.
        """
        path = Path(path)
        self.means.save(path.parent / "means")
        metadata = {"means": self.means.digest, "seed": json.dumps(self.seed), "provenance": json.dumps(dict(self.provenance))}
        write_tensors(path, {"mask": self.mask}, metadata)
        return path

    @classmethod
    def load(cls, path: str | Path, model: HookedModel | None = None) -> Subnetwork:
        """Read a subnetwork written by `save`; with `model`, refuse one of another model.

        Raises:
            SubnetworkError: if the file is absent or damaged.
            MeansError: if its means are absent, damaged, or (with `model`) of another model.
        """
        from hc_lens.means import ActivationMeans

        path = Path(path)
        try:
            with safe_open(path, framework="pt") as file:
                metadata, mask = file.metadata(), file.get_tensor("mask")
            digest, seed = metadata["means"], cast("int | None", parse_json(metadata["seed"]))
            provenance = cast(Provenance, parse_json(metadata["provenance"]))
        except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
            raise SubnetworkError(f"{path} does not hold a subnetwork: {error}; delete it to redo it") from error
        subnetwork = cls(mask, ActivationMeans.load(path.parent / "means" / f"{digest}.safetensors"), seed, provenance)
        if model is not None:
            subnetwork.require_model(model)
        return subnetwork

    @property
    def _cut(self) -> Cut:
        from hc_lens.models import Cut

        return Cut(self.heads | self.mlps, self.means.head, self.means.mlp)

    @property
    def _origin(self) -> Provenance:
        origin = {"seed": self.seed, "ablation": self.means.kind, "model": self.means.model, "means": self.means.digest}
        return {**origin, **self.provenance}

    def _require_classifier(self, model: HookedModel) -> Classifier:
        from hc_lens.models import Classifier

        self.require_model(model)
        if not isinstance(model, Classifier):
            raise SubnetworkError(f"a {type(model).__name__} cannot be made compact: only a hooked classifier (load_model) can")
        if not self.means.positionwise:
            raise SubnetworkError(
                f"{self.means.kind!r} ablation cannot be folded into biases, which are the same at every position of every "
                "row; only 'mean' and 'zero' ablation can"
            )
        return model

    @property
    def _label(self) -> str:
        return f"seed {self.seed}" if self.seed is not None else str(self.provenance.get("made by", "subnetwork"))

    def _with(self, units: tuple[Unit, ...], *, stays: bool) -> Subnetwork:
        require_in_model(units, self.n_layers, self.n_heads)
        mask = self.mask.clone()
        for unit in units:
            mask[unit.layer, unit.index if isinstance(unit, Head) else self.n_heads] = stays
        sign = "+" if stays else "-"
        label = f"({self._label}) {sign} {{{', '.join(map(str, units))}}}"
        return replace(self, mask=mask, seed=None, provenance={"made by": label})

    def _combine(self, other: Subnetwork, sign: str, rule: Callable[[Tensor, Tensor], Tensor]) -> Subnetwork:
        if self.means.digest != other.means.digest:
            raise SubnetworkError(
                f"these subnetworks have different means ({self.means.digest[:12]} and {other.means.digest[:12]}): "
                "sets of units can only be combined within one model and one set of means"
            )
        label = f"({self._label}) {sign} ({other._label})"
        return replace(self, mask=rule(self.mask, other.mask), seed=None, provenance={"made by": label})
