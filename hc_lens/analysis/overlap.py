"""What subnetworks share: how often each head is kept, how alike two sets of runs are, and the heads that all runs keep."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from hc_lens.analysis.null import NullResult, core_null
from hc_lens.statistics import RankCorrelation, jaccard_matrix, rank_correlation
from hc_lens.units import Head, subnetwork_name

if TYPE_CHECKING:
    from jaxtyping import Bool

    from hc_lens.subnetwork import Subnetwork


def kept_units(subnetworks: Sequence[Subnetwork]) -> Bool[np.ndarray, "run layer unit"]:
    """The masks of the subnetworks, stacked.

    Raises:
        ValueError: for no subnetworks, or subnetworks of models of different shape.
    """
    if not subnetworks:
        raise ValueError("no subnetworks to compare: give at least one")
    shapes = [tuple(sub.mask.shape) for sub in subnetworks]
    if odd := [index for index, shape in enumerate(shapes) if shape != shapes[0]]:
        raise ValueError(
            f"subnetwork {odd[0]} has a mask of shape {shapes[odd[0]]} (layer, unit), the first one {shapes[0]}: "
            "they are not of one model"
        )
    return np.stack([sub.mask.cpu().numpy() for sub in subnetworks])


def head_frequency(subnetworks: Sequence[Subnetwork]) -> pd.DataFrame:
    """In how many subnetworks each head is kept: `layer`, `head`, `count` of `of` subnetworks; one row per head of the model.

    Raises:
        ValueError: for no subnetworks, or subnetworks of models of different shape.
    """
    return _frequency(kept_units(subnetworks)[:, :, :-1])


def _frequency(kept: Bool[np.ndarray, "run layer head"]) -> pd.DataFrame:
    n_runs, n_layers, n_heads = kept.shape
    return pd.DataFrame(
        {
            "layer": np.repeat(np.arange(n_layers), n_heads),
            "head": np.tile(np.arange(n_heads), n_layers),
            "count": kept.sum(0).ravel(),
            "of": n_runs,
        }
    )


def mlp_frequency(subnetworks: Sequence[Subnetwork]) -> pd.DataFrame:
    """In how many subnetworks each MLP is kept: `layer`, `count` of `of`; the paper says that MLPs are never pruned.

    Raises:
        ValueError: for no subnetworks, or subnetworks of models of different shape.
    """
    return _mlp_frequency(kept_units(subnetworks)[:, :, -1])


def _mlp_frequency(kept: Bool[np.ndarray, "run layer"]) -> pd.DataFrame:
    return pd.DataFrame({"layer": np.arange(kept.shape[1]), "count": kept.sum(0), "of": kept.shape[0]})


def joint_histogram(first: Sequence[Subnetwork], second: Sequence[Subnetwork]) -> pd.DataFrame:
    """How many heads are kept in `i` of the first subnetworks and in `j` of the second: `i`, `j`, `heads`, zeros included.

    Raises:
        ValueError: for no subnetworks on a side, or subnetworks of models of different shape.
    """
    a, b = _counts(first, second)
    table = np.zeros((len(first) + 1, len(second) + 1), dtype=np.int64)
    np.add.at(table, (a, b), 1)
    i, j = np.indices(table.shape)
    return pd.DataFrame({"i": i.ravel(), "j": j.ravel(), "heads": table.ravel()})


def spearman(first: Sequence[Subnetwork], second: Sequence[Subnetwork]) -> RankCorrelation:
    """Rank correlation of head frequencies in two sets of subnetworks: over ALL heads of the model, ties with average ranks.

    NaN where one side keeps every head equally often: it then ranks nothing.

    Raises:
        ValueError: for no subnetworks on a side, or subnetworks of models of different shape.
    """
    return rank_correlation(*_counts(first, second))


def _counts(first: Sequence[Subnetwork], second: Sequence[Subnetwork]) -> tuple[np.ndarray, np.ndarray]:
    kept = kept_units([*first, *second])
    if not first or not second:
        raise ValueError(f"two sets of subnetworks are compared, got {len(first)} and {len(second)}: each needs at least one")
    heads = kept[:, :, :-1].reshape(len(kept), -1)
    return heads[: len(first)].sum(0), heads[len(first) :].sum(0)


def jaccard(subnetworks: Sequence[Subnetwork]) -> pd.DataFrame:
    """|A & B| / |A | B| of the kept heads of each pair of subnetworks, 1 between two that keep none; labelled by run.

    Raises:
        ValueError: for no subnetworks, or subnetworks of models of different shape.
    """
    kept = kept_units(subnetworks)[:, :, :-1].reshape(len(subnetworks), -1)
    names = [subnetwork_name(sub.seed, i) for i, sub in enumerate(subnetworks)]
    return pd.DataFrame(jaccard_matrix(kept), index=names, columns=names)


@dataclass(frozen=True, eq=False)
class Core:
    """The heads that at least `k` of `n` subnetworks keep (The Heuristic Core, section 5: all of them).

    `kept` are the subnetworks' masks, unit `n_heads` of a layer being its MLP; `seeds` says which of them are of one seed, and
    so not independent (empty: all are).
    """

    heads: tuple[Head, ...]
    k: int
    kept: Bool[np.ndarray, "run layer unit"] = field(repr=False)
    seeds: tuple[int, ...] = ()

    @property
    def n(self) -> int:
        """How many subnetworks there are."""
        return len(self.kept)

    @property
    def frequency(self) -> pd.DataFrame:
        """`layer`, `head`, `count`, `of`, and whether the head is `core`."""
        table = _frequency(self.kept[:, :, :-1])
        return table.assign(core=table["count"] >= self.k)

    @property
    def mlps(self) -> pd.DataFrame:
        """MLPs kept: `layer`, `count`, `of`."""
        return _mlp_frequency(self.kept[:, :, -1])

    def null(self, n: int = 10_000, seed: int = 0) -> NullResult:
        """How many heads would be shared by chance: see `core_null`, with `n` permutations; runs of one seed count as one.

        Raises:
            ValueError: if `n` is not positive.
        """
        return core_null(self.kept, self.k, n=n, seed=seed, units=self.seeds or None)


def heuristic_core(subnetworks: Sequence[Subnetwork], k: int | None = None) -> Core:
    """The heads that at least `k` of the subnetworks keep; all of them by default.

    Raises:
        ValueError: for no subnetworks, subnetworks of models of different shape, or `k` outside 1..n.
    """
    kept = kept_units(subnetworks)
    threshold = len(subnetworks) if k is None else k
    if not 1 <= threshold <= len(subnetworks):
        raise ValueError(f"k must be in 1..{len(subnetworks)}, the number of subnetworks, got {k}")
    shared = np.argwhere(kept[:, :, :-1].sum(0) >= threshold)
    heads = tuple(Head(int(layer), int(index)) for layer, index in shared)
    return Core(heads, threshold, kept, units_of_chance(subnetworks))


def units_of_chance(subnetworks: Sequence[Subnetwork]) -> tuple[int, ...]:
    """The seed of each subnetwork; one without a seed is of a (negative) number of its own."""
    return tuple(-1 - index if sub.seed is None else sub.seed for index, sub in enumerate(subnetworks))
