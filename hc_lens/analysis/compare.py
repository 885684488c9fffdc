"""Two or more sets of subnetworks side by side: of one model at two sparsities, or of two models of the same shape.

Models of the same shape are two checkpoints or two fine-tuning seeds of one pretrained model, so that head (l, h) has the same
origin in both. Between models that were pretrained apart, heads with the same name have nothing in common.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int

from hc_lens.analysis.chance import Chance, chance_of_sharing
from hc_lens.analysis.overlap import Core, heuristic_core, jaccard, kept_units, spearman, units_of_chance
from hc_lens.statistics import RankCorrelation, percentile_interval
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head

ENOUGH = 3
"""With fewer subnetworks than this on a side there is no bootstrap interval over seeds (NaN)."""


@dataclass(frozen=True, eq=False)
class SharedCore:
    """The cores of several sets of subnetworks, and the heads that are in all of them.

    `chance` is the distribution of the number of shared heads if each core had its number of heads in each layer, but at random
    places: what the layers alone explain. That the heads of one core are kept by all its subnetworks is taken as given, so that
    this asks only whether the cores agree.
    """

    names: tuple[str, ...]
    cores: tuple[Core, ...]
    heads: tuple[Head, ...]
    chance: Chance = field(repr=False)

    @property
    def p_value(self) -> float:
        """The probability of at least as many shared heads by chance."""
        return self.chance.p_value(len(self.heads))

    @property
    def jaccard(self) -> pd.DataFrame:
        """Jaccard similarity of each two cores, 1 between two empty ones; labelled by name."""
        sets = [set(core.heads) for core in self.cores]
        table = [[len(a & b) / len(a | b) if a | b else 1.0 for b in sets] for a in sets]
        return pd.DataFrame(table, index=list(self.names), columns=list(self.names))

    @property
    def frequency(self) -> pd.DataFrame:
        """For each head that is in some core: `layer`, `head`, `count` of `of` cores; most frequent first."""
        heads = sorted({head for core in self.cores for head in core.heads})
        counts = [sum(head in core.heads for core in self.cores) for head in heads]
        table = pd.DataFrame(
            {
                "layer": [head.layer for head in heads],
                "head": [head.index for head in heads],
                "count": counts,
                "of": len(self.cores),
            }
        )
        return table.sort_values("count", ascending=False, kind="stable", ignore_index=True)


def shared_over(runs: Sequence[Sequence[Subnetwork]], k: int | None = None, names: Sequence[str] | None = None) -> SharedCore:
    """The core of each set of subnetworks, what at least `k` (all) of them keep, and the heads that are in every core.

    Raises:
        ValueError: for fewer than two sets, names that are not one for each, subnetworks of models of different shape, or `k`
            outside 1..n of a set.
    """
    if len(runs) < 2:
        raise ValueError(f"at least two sets of subnetworks are compared, got {len(runs)}")
    labels = tuple(f"run {index}" for index in range(len(runs))) if names is None else tuple(names)
    if len(labels) != len(runs) or len(set(labels)) != len(labels):
        raise ValueError(f"each of the {len(runs)} sets needs a name of its own, got {list(labels)}")
    shape = kept_units([sub for run in runs for sub in run]).shape
    cores = tuple(heuristic_core(run, k) for run in runs)
    shared = set(cores[0].heads).intersection(*(core.heads for core in cores[1:]))
    sizes = np.array([np.bincount([head.layer for head in core.heads], minlength=shape[1]) for core in cores], dtype=np.int64)
    return SharedCore(labels, cores, tuple(sorted(shared)), chance_of_sharing(sizes, shape[2] - 1))


@dataclass(frozen=True, eq=False)
class Comparison:
    """Two sets of subnetworks compared.

    Attributes:
        cores: the core of each, what they share, and its null.
        rank: Spearman correlation of head frequencies over all heads of the model.
        frequency: one row per head: `layer`, `head`, `first` of `first_of` and `second` of `second_of` subnetworks keep it, and
            `core`: "both", one set's name, or "neither".
        similarity: Jaccard similarity of the kept heads of every two subnetworks, those of the first set first.
        pairs: its means by kind of pair: `kind`, `mean`, `low`, `high` (95 % bootstrap over seeds; NaN where a set has fewer
            than three), `n` pairs. Kinds: "within <name>" for each, "between" (the two sets; other seeds), "between, same seed"
            where there are such pairs, since one pruning seed fixes the noise of both, and "within - between".
    """

    cores: SharedCore
    rank: RankCorrelation
    frequency: pd.DataFrame = field(repr=False)
    similarity: pd.DataFrame = field(repr=False)
    pairs: pd.DataFrame = field(repr=False)


def compare_runs(
    first: Sequence[Subnetwork],
    second: Sequence[Subnetwork],
    k: int | None = None,
    names: tuple[str, str] = ("first", "second"),
    *,
    n_bootstrap: int = 2_000,
    seed: int = 0,
) -> Comparison:
    """Compare two sets of subnetworks: their cores (heads in at least `k` of each; all), frequencies and similarities.

    Raises:
        ValueError: as `shared_over`, and for fewer than one bootstrap sample.
    """
    cores = shared_over([first, second], k, names)
    similarity = jaccard([*first, *second])
    labels = [f"{name}, {label}" for name, label in zip(_names_of(names, first, second), similarity.index, strict=True)]
    similarity.index, similarity.columns = pd.Index(labels), pd.Index(labels)
    return Comparison(
        cores=cores,
        rank=spearman(first, second),
        frequency=_frequency(cores),
        similarity=similarity,
        pairs=_pairs(similarity.to_numpy(dtype=np.float64), _Sides.of(first, second), names, n_bootstrap, seed),
    )


def _names_of(names: tuple[str, str], first: Sequence[Subnetwork], second: Sequence[Subnetwork]) -> list[str]:
    return [names[0]] * len(first) + [names[1]] * len(second)


def _frequency(cores: SharedCore) -> pd.DataFrame:
    a, b = (core.frequency for core in cores.cores)
    where = np.select(
        [a["core"] & b["core"], a["core"], b["core"]],
        ["both", *cores.names],
        "neither",
    )
    return pd.DataFrame(
        {
            "layer": a["layer"],
            "head": a["head"],
            "first": a["count"],
            "first_of": a["of"],
            "second": b["count"],
            "second_of": b["of"],
            "core": where,
        }
    )


class _Sides(NamedTuple):
    """Which set every subnetwork is of (0 or 1), and its seed: a negative number of its own for a subnetwork without one."""

    side: Int[np.ndarray, " run"]
    seed: Int[np.ndarray, " run"]

    @staticmethod
    def of(first: Sequence[Subnetwork], second: Sequence[Subnetwork]) -> "_Sides":
        return _Sides(np.array([0] * len(first) + [1] * len(second)), np.array(units_of_chance([*first, *second])))

    def kinds(self, names: tuple[str, str]) -> dict[str, Bool[np.ndarray, "run run"]]:
        """The pairs of each kind, every pair once."""
        once = np.triu(np.ones((len(self.side), len(self.side)), dtype=bool), 1)
        same_side = self.side[:, None] == self.side
        same_seed = self.seed[:, None] == self.seed
        kinds = {f"within {name}": once & same_side & (self.side == side) for side, name in enumerate(names)}
        kinds |= {"between": once & ~same_side & ~same_seed, "between, same seed": once & ~same_side & same_seed}
        return {kind: pairs for kind, pairs in kinds.items() if kind == "between" or pairs.any()}

    def resampled(self, n: int, seed: int) -> Int[np.ndarray, "draw run"]:
        """How often each subnetwork is in each bootstrap sample; a seed that both sets have is drawn for both together."""
        generator = np.random.default_rng(seed)
        counts = np.zeros((n, len(self.seed)), dtype=np.int64)
        shared = np.intersect1d(self.seed[self.side == 0], self.seed[self.side == 1])
        in_both = np.isin(self.seed, shared)
        for stratum in (in_both, ~in_both & (self.side == 0), ~in_both & (self.side == 1)):
            seeds = np.unique(self.seed[stratum])
            if len(seeds):
                drawn = generator.multinomial(len(seeds), np.full(len(seeds), 1 / len(seeds)), size=n)
                counts[:, stratum] = drawn[:, np.searchsorted(seeds, self.seed[stratum])]
        return counts


def _pairs(
    similarity: Float[np.ndarray, "run run"], sides: _Sides, names: tuple[str, str], n_bootstrap: int, seed: int
) -> pd.DataFrame:
    if n_bootstrap < 1:
        raise ValueError(f"the number of bootstrap draws must be positive, got {n_bootstrap}")
    counts = sides.resampled(n_bootstrap, seed).astype(np.float64)
    kinds = sides.kinds(names)
    enough = min(np.bincount(sides.side)) >= ENOUGH
    means = {kind: float(similarity[pairs].mean()) if pairs.any() else np.nan for kind, pairs in kinds.items()}
    draws = {kind: _weighted(similarity, pairs, counts) for kind, pairs in kinds.items()}
    within = [kind for kind in kinds if kind.startswith("within ")]
    if within:
        means["within - between"] = float(np.mean([means[kind] for kind in within])) - means["between"]
        draws["within - between"] = np.mean([draws[kind] for kind in within], axis=0) - draws["between"]
    rows = []
    for kind, mean in means.items():
        # A sample may hold one seed only, and so no pair of two: it has no mean.
        drawn = draws[kind][~np.isnan(draws[kind])]
        low, high = percentile_interval(drawn) if enough and len(drawn) else (np.nan, np.nan)
        n = int((kinds[kind] if kind in kinds else np.logical_or.reduce([kinds[k] for k in (*within, "between")])).sum())
        rows.append({"kind": kind, "mean": mean, "low": low, "high": high, "n": n})
    return pd.DataFrame(rows)


def _weighted(
    similarity: Float[np.ndarray, "run run"], pairs: Bool[np.ndarray, "run run"], counts: Float[np.ndarray, "draw run"]
) -> Float[np.ndarray, " draw"]:
    """The mean over pairs in each sample; a pair is in it as often as its two members, multiplied."""
    total = np.einsum("di,ij,dj->d", counts, similarity * pairs, counts, optimize=True)
    weight = np.einsum("di,ij,dj->d", counts, pairs.astype(np.float64), counts, optimize=True)
    return np.divide(total, weight, out=np.full(len(counts), np.nan), where=weight > 0)
