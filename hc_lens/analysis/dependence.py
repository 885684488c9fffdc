"""Which heads build on a core: how much a later head's output changes when a core head is mean-ablated."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Literal, get_args

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.analysis.controls import layer_matched_sets
from hc_lens.analysis.effects import control_summary
from hc_lens.analysis.interaction import alone_and_together
from hc_lens.data.batches import Batch
from hc_lens.data.sampling import some_rows
from hc_lens.forward import Inputs, device_of, inference, inputs_of, run_batch
from hc_lens.hooks import Edit, HookedModel, HookFunction, captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans
from hc_lens.models.resume import can_resume, recorded, resumed
from hc_lens.progress import progress
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.statistics import bootstrap_means, percentile_interval
from hc_lens.units import Head, require_in_model

Through = Literal["all paths", "direct path"]
"""How a head's ablation reaches a later head: through everything between them, or through the residual stream alone."""

_Heads = tuple[Head, ...]


def dependence_on(
    model: HookedModel,
    data: Inputs,
    means: ActivationMeans,
    heads: Collection[Head],
    sample: Sample = ALL_ROWS,
    *,
    through: Through = "all paths",
    controls: int = 0,
) -> pd.DataFrame:
    """How much the output z of every later head changes when each of these heads, or all together, are mean-ablated.

    The change of a target head is |z_ablated - z| / |z - mean|, norms of its context vector before W_O summed over all real
    tokens: 0 if the target does not depend on the source, 1 if it changes by as much as if the target itself were ablated.
    Along the "direct path" all other heads and MLPs keep what they give in the full model: the target then sees the source only
    through what it writes into the residual stream, and the LayerNorms on the way.

    One row per source and head in a later block (of several: than the earliest source):

    | column                    | meaning                                                                   |
    |---------------------------|---------------------------------------------------------------------------|
    | `source`                  | the ablated head, or "all together"                                       |
    | `layer`, `head`           | the target                                                                |
    | `among`                   | whether the target is itself one of `heads`                               |
    | `n`                       | rows                                                                      |
    | `change`, `low`, `high`   | its relative change, with a 95 % interval that resamples rows             |
    | `controls`                | random sources outside `heads`, from the same layers, that come before the target |
    | `control_mean`, `control_low`, `control_high`, `control_p` | their changes of the same target (NaN without) |

    A target whose z never departs from its mean has a change of NaN. Nothing is kept of a batch but norms.

    Raises:
        ValueError: for no heads, heads the model does not have or only of its last block, or negative `controls`.
        MeansError: for means of another model.
    """
    sources = alone_and_together(heads)
    if through not in get_args(Through):
        raise ValueError(f"through must be one of {list(get_args(Through))}, got {through!r}")
    require_in_model(heads, means.n_layers, means.n_heads)
    means.require_model(model)
    if min(head.layer for head in heads) == means.n_layers - 1:
        raise ValueError(f"{', '.join(sources)}: no block comes after the model's last one, so no head can depend on them")
    matched = _matched(sources, controls, means, sample.seed)
    encoded = inputs_of(model, data, sample.max_length)
    batches = encoded.batches(sample.batch_size, some_rows(len(encoded), sample.max_rows, sample.seed))
    runs = list(dict.fromkeys(units for units in (*sources.values(), *(u for sets in matched.values() for u in sets))))
    norms = _Norms(means, runs)
    with inference(model, sample.precision), progress(f"ablating {len(runs)} sets", len(batches)) as advance:
        for batch in batches:
            _measure(model, batch.to(device_of(model)), means, through, norms)
            advance()
    return norms.table(sources, matched, sample.seed)


def _matched(sources: Mapping[str, _Heads], n_sets: int, means: ActivationMeans, seed: int) -> dict[str, list[_Heads]]:
    """Random sources for each source; fewer, or none, where the model holds no more."""
    if n_sets < 0:
        raise ValueError(f"controls must not be negative, got {n_sets}")
    barred = {head for units in sources.values() for head in units}
    left = means.n_layers * means.n_heads - len(barred)
    return {
        name: layer_matched_sets(units, n_sets, n_layers=means.n_layers, n_heads=means.n_heads, exclude=barred, seed=seed)
        for name, units in sources.items()
        if n_sets and len(units) <= left
    }


def _measure(model: HookedModel, batch: Batch, means: ActivationMeans, through: Through, norms: "_Norms") -> None:
    """One batch through the full model and under each source."""
    layers = range(means.n_layers)
    resumes = can_resume(model)
    starts = {units: min(head.layer for head in units) for units in norms.runs}
    points = [*map(z_point, layers), *(map(mlp_point, layers) if through == "direct path" else ())]
    with recorded(model, sorted(set(starts.values())) if resumes else ()) as inputs, captured(model, points) as full:
        run_batch(model, batch)
    norms.start(full, batch)
    for units, start in starts.items():
        later = range(start + 1, means.n_layers)
        # Captured first, so that what is seen is what a head computes, not what it is then set back to.
        with ExitStack() as stack:
            if resumes:
                stack.enter_context(resumed(model, start, inputs[start]))
            seen = stack.enter_context(captured(model, list(map(z_point, later))))
            stack.enter_context(
                hooked(model, [*(_frozen(full, start, later) if through == "direct path" else ()), *means.edits(units)])
            )
            run_batch(model, batch)
        norms.add(units, seen, full, batch)


def _frozen(full: Mapping[str, Tensor], start: int, later: Iterable[int]) -> list[Edit]:
    """Edits that set all that comes after the heads of block `start` back to what the full model gives."""
    heads = [Edit(z_point(layer), _constant(full[z_point(layer)])) for layer in later]
    return [*heads, *(Edit(mlp_point(layer), _constant(full[mlp_point(layer)])) for layer in (start, *later))]


def _constant(value: Tensor) -> HookFunction:
    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        return value

    return hook


class _Norms:
    """Norms of z - mean and, for each source, of the change of z: summed over each row's real tokens, for every head."""

    def __init__(self, means: ActivationMeans, runs: Sequence[_Heads]) -> None:
        self.runs = runs
        self._means = means
        self._departure: list[Tensor] = []
        self._changes: dict[_Heads, list[Tensor]] = {units: [] for units in runs}

    def start(self, full: Mapping[str, Tensor], batch: Batch) -> None:
        """Add the full model's z of a batch."""
        layers = range(self._means.n_layers)
        z = [full[z_point(layer)] for layer in layers]
        references = [self._means.head_reference(layer)(z[layer], hook=HookPoint()) for layer in layers]
        self._departure.append(torch.stack([_norm(a - b, batch) for a, b in zip(z, references, strict=True)], dim=1))

    def add(self, units: _Heads, seen: Mapping[str, Tensor], full: Mapping[str, Tensor], batch: Batch) -> None:
        """Add the z of a batch with these heads ablated; heads that come before them have not changed."""
        points = map(z_point, range(self._means.n_layers))
        changes = [seen[p] - full[p] if p in seen else torch.zeros_like(full[p]) for p in points]
        self._changes[units].append(torch.stack([_norm(change, batch) for change in changes], dim=1))

    def table(self, sources: Mapping[str, _Heads], matched: Mapping[str, Sequence[_Heads]], seed: int) -> pd.DataFrame:
        departure = _rows(self._departure)
        total = departure.sum(0)
        controls = {units: _ratio(_rows(self._changes[units]).sum(0), total) for sets in matched.values() for units in sets}
        heads = {head for units in sources.values() for head in units}
        found: list[dict[str, object]] = []
        for name, units in sources.items():
            later = self._after(units)
            change = _rows(self._changes[units])
            columns = np.concatenate([rows[:, later] for rows in (change, departure)], axis=1)
            draws = bootstrap_means(columns, seed=seed)
            ratios = _ratio(*np.split(draws, 2, axis=1))
            values = _ratio(change.sum(0), total)[later]
            for target, value, drawn in zip(zip(*np.nonzero(later), strict=True), values, ratios.T, strict=True):
                head = Head(*map(int, target))
                random = matched.get(name, ()) if np.isfinite(value) else ()
                others = [float(controls[other][head]) for other in random if self._after(other)[head]]
                low, high = percentile_interval(drawn)
                found.append(
                    {
                        "source": name,
                        "layer": head.layer,
                        "head": head.index,
                        "among": head in heads,
                        "n": len(change),
                        "change": float(value),
                        "low": low,
                        "high": high,
                        **control_summary(float(value), others),
                    }
                )
        return pd.DataFrame(found)

    def _after(self, units: _Heads) -> Bool[np.ndarray, "layer head"]:
        """The heads that could depend on these: in later blocks than the first of them, and not themselves ablated."""
        after = np.zeros((self._means.n_layers, self._means.n_heads), dtype=bool)
        after[min(head.layer for head in units) + 1 :] = True
        for head in units:
            after[head] = False
        return after


def _norm(vectors: Float[Tensor, "batch pos head d_head"], batch: Batch) -> Float[Tensor, "batch head"]:
    norms = vectors.float().norm(dim=-1)
    return torch.where(batch.attention_mask.bool()[..., None], norms, 0).sum(1).cpu()


def _rows(parts: Sequence[Float[Tensor, "_ layer head"]]) -> Float[np.ndarray, "row layer head"]:
    return torch.cat(list(parts)).numpy().astype(np.float64)


def _ratio(changes: Float[np.ndarray, "*columns"], departures: Float[np.ndarray, "*columns"]) -> Float[np.ndarray, "*columns"]:
    """NaN where a head's output never departs from its mean."""
    return np.divide(changes, departures, out=np.full(changes.shape, np.nan), where=departures > 0)
