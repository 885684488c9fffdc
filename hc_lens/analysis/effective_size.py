"""Effective size: how small a subnetwork of each checkpoint can be and still do what the full model does."""

from collections.abc import Callable
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float

from hc_lens.analysis.choices import Curve, Semantics
from hc_lens.analysis.grid import Cells, cells
from hc_lens.statistics import mean_over_seeds, percentile_interval

_ROUNDING = 1e-9  # accuracies are ratios: 0.87 must not count as above 0.90 - 0.03 for a last binary digit
_FULL_SIZE = 100.0

Faithful = Callable[[Float[np.ndarray, "*runs target"], float, float], Bool[np.ndarray, "*runs target"]]
"""Whether accuracies are faithful to a full model's accuracy, within a tolerance."""


class _Rules(NamedTuple):
    """What a semantics means, apart from the order in which seeds are averaged."""

    weights: Literal["cases", "groups"]
    faithful: Faithful


def _not_much_worse(
    accuracy: Float[np.ndarray, "*runs target"], full: float, tolerance: float
) -> Bool[np.ndarray, "*runs target"]:
    return accuracy > full - tolerance + _ROUNDING


def _not_far_off(
    accuracy: Float[np.ndarray, "*runs target"], full: float, tolerance: float
) -> Bool[np.ndarray, "*runs target"]:
    return np.abs(accuracy - full) <= tolerance + _ROUNDING


_RULES = {"as_coded": _Rules("cases", _not_much_worse), "as_written": _Rules("groups", _not_far_off)}


def effective_size(
    grid: pd.DataFrame,
    full: pd.DataFrame | None = None,
    *,
    semantics: Semantics,
    tolerance: float = 0.03,
    curve: Curve = "raw",
    n_bootstrap: int = 2_000,
    seed: int = 0,
) -> pd.DataFrame:
    """The size of the smallest faithful subnetwork of each checkpoint: The Heuristic Core, section 6 and Figure 5.

    Size is the share of units kept in %, 100 - sparsity: 100 for the full model, which is also the size where no subnetwork of
    the grid is faithful. Sparsity is the one asked for (`target`). The paper describes one rule and its code applies another:

    | semantics      | faithful                                     | seeds                        | mixed set               |
    |----------------|----------------------------------------------|------------------------------|-------------------------|
    | `"as_coded"`   | accuracy > full - tolerance                  | sizes per seed, then averaged | every case weighs alike |
    | `"as_written"` | accuracy within tolerance of full, ends in   | accuracies averaged, one size | ID and OOD weigh alike  |

    A subnetwork far *better* than the full model is thus unfaithful as written. Missing runs are left out of both: a size is
    taken from the runs there are. Only as coded, a run marked `failed` is there, and unfaithful.

    The raw curve (the paper's) takes the sparsest faithful subnetwork, also where less sparse ones are not; the monotone one
    the sparsest such that it and every less sparse subnetwork there is are faithful, so it is never below the raw one.

    Args:
        grid: one row per pruning run and case: `step`, `seed`, `target` (0..1), `case`, `group` ("ID" or "OOD"), `accuracy`
            (0..1, NaN if missing), and optionally `failed`. Rows whose `subnetwork` is "full" are the full model.
        full: the full model's `step`, `case`, `accuracy`; by default its rows in `grid`.
        semantics: which rule.
        tolerance: in accuracy (0.03: three points).
        curve: which curve.
        n_bootstrap, seed: of the bootstrap over seeds, as written.

    Returns:
        One row per checkpoint and evaluation set ("ID", "OOD", and "mixed" where there are both):

        | column                | meaning                                                                             |
        |-----------------------|-------------------------------------------------------------------------------------|
        | `step`, `set`         | the checkpoint and the evaluation set                                               |
        | `size`                | in %; NaN where every run is missing                                                |
        | `low`, `high`, `n`    | 95 % interval over `n` seeds; NaN for one seed                                      |
        | `interval`            | "t" (as coded, of the sizes per seed) or "bootstrap" (as written, whole seeds)      |
        | `full`                | the full model's accuracy on the set                                                |
        | `bound`               | some size is the smallest of the grid: the true one may be smaller                  |
        | `floor`               | `full` <= tolerance: even a subnetwork that is always wrong is faithful             |
        | `missing`             | pruning runs of the grid that are missing (as coded: not counting failed ones)      |
        | `semantics`, `curve`, `tolerance` | as asked for                                                            |

    Raises:
        ValueError: for an unknown semantics or curve, a tolerance outside [0, 1), no rows of the full model, a target outside
            (0, 1), a run and case that come twice, or a missing column.
    """
    _require_options(semantics, curve, tolerance)
    rows: list[dict[str, object]] = []
    for cell in cells(grid, full, _RULES[semantics].weights):
        coded = semantics == "as_coded"
        size = _as_coded(cell, tolerance, curve) if coded else _as_written(cell, tolerance, curve, n_bootstrap, seed)
        rows.append(
            {"step": cell.step, "set": cell.set}
            | size
            | {
                "full": cell.full,
                "floor": cell.full <= tolerance + _ROUNDING,
                "missing": int((~_present(cell, semantics)).sum()),
                "semantics": semantics,
                "curve": curve,
                "tolerance": tolerance,
            }
        )
    return pd.DataFrame(rows)


def seed_sizes(
    grid: pd.DataFrame,
    full: pd.DataFrame | None = None,
    *,
    semantics: Semantics,
    tolerance: float = 0.03,
    curve: Curve = "raw",
) -> pd.DataFrame:
    """The effective size of every seed by itself: `step`, `set`, `seed`, `size` (%, NaN where all its runs are missing).

    As coded, `effective_size` is the mean of these; as written it is not, since it averages accuracies first. Arguments and
    errors are those of `effective_size`.
    """
    _require_options(semantics, curve, tolerance)
    rules = _RULES[semantics]
    tables = [
        pd.DataFrame(
            {
                "step": cell.step,
                "set": cell.set,
                "seed": cell.seeds,
                "size": _sizes(
                    rules.faithful(cell.accuracy, cell.full, tolerance), _present(cell, semantics), cell.targets, curve
                ),
            }
        )
        for cell in cells(grid, full, rules.weights)
    ]
    return pd.concat(tables, ignore_index=True)


def _as_coded(cell: Cells, tolerance: float, curve: Curve) -> dict[str, object]:
    """Sizes per seed, averaged after."""
    faithful = _not_much_worse(cell.accuracy, cell.full, tolerance)
    sizes = _sizes(faithful, _present(cell, "as_coded"), cell.targets, curve)
    mean, low, high, n = mean_over_seeds(sizes, 0.0, _FULL_SIZE)
    return {"size": mean, "low": low, "high": high, "n": n, "interval": "t", "bound": _bound(sizes, cell)}


def _as_written(cell: Cells, tolerance: float, curve: Curve, n_bootstrap: int, seed: int) -> dict[str, object]:
    """Accuracies averaged over seeds, then one size; the interval repeats both with resampled seeds."""
    measured = ~np.isnan(cell.accuracy)
    runs = measured.any(axis=1)
    n = int(runs.sum())
    if n == 0:
        return {"size": np.nan, "low": np.nan, "high": np.nan, "n": 0, "interval": "bootstrap", "bound": False}

    def size_of(rows: np.ndarray) -> np.ndarray:
        """The size that each row of chosen runs gives."""
        counts = measured[rows].sum(axis=-2)
        means = np.nansum(cell.accuracy[rows], axis=-2) / np.maximum(counts, 1)
        return _sizes(_not_far_off(means, cell.full, tolerance), counts > 0, cell.targets, curve)

    chosen = np.flatnonzero(runs)
    size = size_of(chosen[None])
    low, high = np.nan, np.nan
    if n > 1:
        draws = np.random.default_rng(seed).integers(n, size=(n_bootstrap, n))
        low, high = percentile_interval(size_of(chosen[draws]))
    return {"size": float(size[0]), "low": low, "high": high, "n": n, "interval": "bootstrap", "bound": _bound(size, cell)}


def _sizes(
    faithful: Bool[np.ndarray, "*runs target"],
    present: Bool[np.ndarray, "*runs target"],
    targets: Float[np.ndarray, " target"],
    curve: Curve,
) -> Float[np.ndarray, "*runs"]:
    """The size of the smallest faithful subnetwork in %: 100 if none is, NaN if none is present."""
    counted = faithful & present
    if curve == "monotone":
        counted &= np.logical_and.accumulate(faithful | ~present, axis=-1)
    sizes = np.where(counted, _kept(targets), _FULL_SIZE).min(axis=-1)
    return np.where(present.any(axis=-1), sizes, np.nan)


def _present(cell: Cells, semantics: Semantics) -> Bool[np.ndarray, "run target"]:
    measured = ~np.isnan(cell.accuracy)
    return measured | cell.failed if semantics == "as_coded" else measured


def _bound(sizes: Float[np.ndarray, " run"], cell: Cells) -> bool:
    return bool((sizes == _kept(cell.targets)[-1]).any())


def _kept(targets: Float[np.ndarray, " target"]) -> Float[np.ndarray, " target"]:
    """Units kept in %; 20 at a sparsity of 0.8, not 19.999999999999996."""
    return np.round(_FULL_SIZE * (1 - targets), 9)


def _require_options(semantics: str, curve: str, tolerance: float) -> None:
    if semantics not in _RULES:
        raise ValueError(f"the semantics is one of {sorted(_RULES)}, got {semantics!r}")
    if curve not in ("raw", "monotone"):
        raise ValueError(f"the curve is 'raw' or 'monotone', got {curve!r}")
    if not 0 <= tolerance < 1:
        raise ValueError(f"the tolerance is an accuracy in [0, 1), got {tolerance}")
