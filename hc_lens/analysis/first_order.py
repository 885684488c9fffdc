"""What mean-ablating every unit would cost, estimated from one backward pass, and how well the estimate ranks the units.

A gate g on a unit, x' = mu + g (x - mu), turns the full model at g = 1 into the ablated one at g = 0. The effect of ablation,
value(1) - value(0), is to first order the derivative of the value at g = 1, and one backward pass gives that of every gate.
Attribution patching is this estimate for patched activations (Nanda 2023). Michel, Levy and Neubig (2019, "Are Sixteen Heads
Really Better than One?") rank heads by the mean size, without its sign, of a loss's derivative with respect to such a gate,
with 0 in the place of mu.
"""

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from hc_lens.analysis.effects import Ablation, UnitSet, same_rows
from hc_lens.analysis.measure import Measure, Metric, measured
from hc_lens.data.task import Task
from hc_lens.forward import Inputs, device_of, mode, run_batch
from hc_lens.gates import gate_edits
from hc_lens.hooks import HookedModel, hooked
from hc_lens.means import ActivationMeans
from hc_lens.models import fused
from hc_lens.progress import progress
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.statistics import bootstrap_means, centred_ranks, cosine, percentile_interval
from hc_lens.units import Head, Mlp, Unit


def first_order_effects(
    model: HookedModel,
    data: Task | Inputs,
    means: ActivationMeans,
    sample: Sample = ALL_ROWS,
    *,
    metric: Metric | None = None,
) -> Ablation:
    """Estimate what ablating each head and each MLP alone costs, on every row, from the gradient of the full model.

    On a `Task` the margin, on other data a `metric` of one's own, which must be differentiable; rows are chosen as by `ablate`.
    The result is an `Ablation` of all single units whose ablated values are estimates: its `table` has the columns of a real
    one. The estimate is exact where the value is linear in the gate, and blind to saturation and to units that make up for each
    other.

    Raises:
        ValueError: for a task with a metric, other data without one, or a metric that is not one value per row.
        LabelOrderError: if the model's labels do not fit the task.
        MeansError: for means of another model.
    """
    means.require_model(model)
    measure = measured(model, data, metric, sample)
    full, effects = _full_and_effects(model, measure, means.to(device_of(model)))
    groups: dict[str, UnitSet] = {}
    ablated: dict[UnitSet, dict[str, Float[np.ndarray, " row"]]] = {}
    for layer in range(means.n_layers):
        units: list[Unit] = [*(Head(layer, index) for index in range(means.n_heads)), Mlp(layer)]
        for place, unit in enumerate(units):
            groups[str(unit)] = (unit,)
            ablated[(unit,)] = {measure.smooth_scale: full - effects[:, layer, place]}
    return Ablation(groups, {}, measure.cases, {measure.smooth_scale: full}, ablated, measure.rows)


def _full_and_effects(
    model: HookedModel, measure: Measure, means: ActivationMeans
) -> tuple[Float[np.ndarray, " row"], Float[np.ndarray, "row layer unit"]]:
    """Each row's value, and its derivative with respect to gates of the row's own."""
    units = (means.n_layers, means.n_heads + 1)
    full: list[Tensor] = []
    effects: list[Tensor] = []
    read: list[Tensor] = []
    with mode(model, training=False), fused(model, narrow=True), progress("estimating", len(measure.batches)) as advance:
        for batch in measure.batches:
            here = batch.to(device_of(model))
            gates = torch.ones(len(batch), *units, device=device_of(model), requires_grad=True)
            with torch.enable_grad(), hooked(model, gate_edits(means, gates)):
                output = run_batch(model, here)
                values = measure.smooth(output, here)
                if values.shape != (len(batch),):
                    raise ValueError(
                        f"a metric must return one value per row, ({len(batch)},), it returned {tuple(values.shape)}"
                    )
                (gradient,) = torch.autograd.grad(values.sum(), gates)
            full.append(values.detach().double().cpu())
            effects.append(gradient.double().cpu())
            read.append(measure.read(output.detach(), here).float().cpu())
            advance()
    order = torch.cat([batch.rows for batch in measure.batches]).argsort()
    measure.check(torch.cat(read)[order])
    return torch.cat(full)[order].numpy(), torch.cat(effects)[order].numpy()


def rank_correlation(estimate: Ablation, exact: Ablation, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """Spearman correlation, over units, of estimated and exact mean effects: one row per (case, scale) that both have.

    | column               | meaning                                                                      |
    |----------------------|------------------------------------------------------------------------------|
    | `case`, `case_group`, `scale`, `n` | as in `Ablation.table`                                         |
    | `units`              | single units that both have                                                    |
    | `spearman`           | rank correlation of their effects, ties with average ranks; NaN if one side ranks nothing |
    | `low`, `high`        | 95 % bootstrap interval: rows are resampled, the same for both                 |

    Resampling rows adds noise to both sides, so that the interval lies a little low.

    Raises:
        ValueError: for ablations of different rows, or with fewer than two single units in common.
    """
    if not same_rows(estimate, exact):
        raise ValueError("estimate and exact ablation are of different rows: give both the same data and sample")
    units = [units for units in estimate.ablated if len(units) == 1 and units in exact.ablated]
    if len(units) < 2:
        raise ValueError(f"a rank correlation needs at least two single units that both have, got {len(units)}")
    rows: list[dict[str, object]] = []
    for case in estimate.cases:
        for scale in (scale for scale in estimate.full if scale in exact.full):
            effects = np.stack([side.effect(u, scale, case) for side in (estimate, exact) for u in units], axis=1)
            drawn = cosine(*map(centred_ranks, np.split(bootstrap_means(effects, n_bootstrap, seed), 2, axis=1)))
            found = float(cosine(*map(centred_ranks, np.split(effects.mean(0), 2))))
            low, high = percentile_interval(drawn) if np.isfinite(drawn).all() else (float("nan"), float("nan"))
            where = {"case": case.name, "case_group": case.group, "scale": scale, "n": case.stop - case.start}
            rows.append({**where, "units": len(units), "spearman": found, "low": low, "high": high})
    return pd.DataFrame(rows)
