"""When the heuristic core emerges: how much of the final core the subnetworks of each fine-tuning checkpoint hold.

The Heuristic Core prunes every checkpoint of fine-tuning. At the final checkpoint all its subnetworks hold the
core because they define it. What is informative there is the recall of a core that is found without the seed in question
(`held_out`): how much two seeds agree anyway, which is the ceiling for every earlier checkpoint.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool

from hc_lens.analysis.chance import chance_of_hits
from hc_lens.analysis.overlap import Core, heuristic_core, kept_units, spearman, units_of_chance
from hc_lens.statistics import Interval, jaccard_matrix, jackknife_interval, mean_over_seeds
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head

_MEASURED = ("recall", "held_out", "jaccard_core", "jaccard_final")


@dataclass(frozen=True, eq=False)
class Emergence:
    """How the subnetworks of every checkpoint compare with those of the final one.

    `runs`, one row per checkpoint and seed:

    | column              | meaning                                                                              |
    |---------------------|--------------------------------------------------------------------------------------|
    | `step`, `seed`      | the checkpoint and the pruning seed                                                    |
    | `heads`             | heads that the subnetwork keeps                                                        |
    | `kept`, `recall`    | how many core heads it keeps, and that as a share of the core                          |
    | `chance`            | expected recall of a random subnetwork with as many heads in each layer                |
    | `jaccard_core`      | Jaccard similarity of its heads and the core                                           |
    | `jaccard_final`     | the same with the final subnetworks of the OTHER seeds, averaged; NaN if there are none  |
    | `held_out`, `held_out_chance` | recall of the core of the other seeds' final subnetworks, and its chance     |

    `steps`, one row per checkpoint: `heads`, `recall`, `held_out` and the two similarities as means over `n` seeds, with 95 %
    intervals over seeds (Student's t; `low`, `high` for the recall, else `<column>_low`, `<column>_high`); and

    | column              | meaning                                                                              |
    |---------------------|--------------------------------------------------------------------------------------|
    | `by_construction`   | the final checkpoint, where its own seeds gave the core: its recall says nothing         |
    | `chance`, `chance_low`, `chance_high` | mean recall under the layer-stratified null, exact: its mean, central 95 %  |
    | `p_value`           | probability of at least this recall under that null; NaN where it is by construction     |
    | `rank`, `rank_p`    | Spearman correlation of all heads' frequencies with the final ones                       |
    | `rank_low`, `rank_high` | its 95 % interval, from leaving out one seed at a time (jackknife, Student's t)       |

    `cores`, one row per checkpoint, the core that its own subnetworks share:

    | column              | meaning                                                                              |
    |---------------------|--------------------------------------------------------------------------------------|
    | `k`, `n`            | kept by at least k of n                                                                |
    | `heads`, `size`     | names, separated by spaces, and their number                                             |
    | `shared`            | how many of them are in the final core                                                   |
    | `recall`, `precision`, `jaccard` | `shared` as a share of the final core, of this core, and of their union     |
    | `permuted`, `p_value` | the size that permuted subnetworks share, and the permutation p-value of this size      |

    `heads`, one row per checkpoint and core head: `step`, `layer`, `head`, `count` of `of` subnetworks that keep it.
    """

    core: Core
    final: int
    runs: pd.DataFrame = field(repr=False)
    steps: pd.DataFrame = field(repr=False)
    cores: pd.DataFrame = field(repr=False)
    heads: pd.DataFrame = field(repr=False)


def core_emergence(
    checkpoints: Mapping[int, Sequence[Subnetwork]],
    k: int | None = None,
    *,
    core: Core | None = None,
    final: int | None = None,
    permutations: int = 2_000,
    seed: int = 0,
) -> Emergence:
    """Compare the subnetworks of every checkpoint with the core of the final one's: what at least `k` of them (all) keep.

    Args:
        checkpoints: the subnetworks found at each fine-tuning step, one of each pruning seed; step 0 is the pretrained model.
        k: of the final subnetworks; a checkpoint's own core may miss a head as often as this one (n - k).
        core: the final core where other subnetworks of the final model gave it, more seeds or several sparsities: then the
            final checkpoint's recall of it says something, too, unless its seeds are among them.
        final: the checkpoint that the core is taken from; the last one by default.
        permutations: for the p-values of the checkpoints' own cores.
        seed: draws the permutations.

    Raises:
        ValueError: for fewer than two checkpoints, a final step that is not among them, subnetworks of models of different
            shape, two subnetworks of one seed at a step, `k` outside 1..n, or an empty final core.
    """
    last = _final_step(checkpoints, final)
    _require_comparable(checkpoints)
    own = heuristic_core(checkpoints[last], k)
    core = own if core is None else core
    if not core.heads:
        where = f" at step {last}" if core is own else ""
        raise ValueError(
            f"no head is kept by {core.k} of the {core.n} subnetworks{where}: their core is empty, choose a smaller k"
        )
    if core.kept.shape[1:] != own.kept.shape[1:]:
        raise ValueError(
            f"the core is of masks of shape {core.kept.shape[1:]} (layer, unit), the checkpoints' are {own.kept.shape[1:]}"
        )
    reference = _Reference(core, own, last)
    runs, steps, cores, heads = [], [], [], []
    for step in sorted(checkpoints):
        subs = checkpoints[step]
        measured = _runs(subs, reference).assign(step=step)
        runs.append(measured)
        steps.append({"step": step, **_summary(measured, subs, checkpoints[last], reference, step)})
        cores.append({"step": step, **_core_at(subs, reference, permutations, seed)})
        heads.append(_core_heads(subs, core).assign(step=step))
    return Emergence(
        core, last, runs=_stacked(runs), steps=pd.DataFrame(steps), cores=pd.DataFrame(cores), heads=_stacked(heads)
    )


def _stacked(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    table = pd.concat(tables, ignore_index=True)
    return table[["step", *(column for column in table.columns if column != "step")]]


def _final_step(checkpoints: Mapping[int, Sequence[Subnetwork]], final: int | None) -> int:
    if len(checkpoints) < 2:
        raise ValueError(f"emergence needs the subnetworks of at least two checkpoints, got those of {sorted(checkpoints)}")
    last = max(checkpoints) if final is None else final
    if last not in checkpoints:
        raise ValueError(f"the final step {last} is not among the checkpoints {sorted(checkpoints)}")
    return last


def _require_comparable(checkpoints: Mapping[int, Sequence[Subnetwork]]) -> None:
    shapes = {step: kept_units(subs).shape[1:] for step, subs in checkpoints.items()}
    first = next(iter(shapes))
    for step, shape in shapes.items():
        if shape != shapes[first]:
            raise ValueError(
                f"step {step} has masks of shape {shape} (layer, unit), step {first} {shapes[first]}: they are not of one model"
            )
    for step, subs in checkpoints.items():
        seeds = [sub.seed for sub in subs if sub.seed is not None]
        if twice := sorted({seed for seed in seeds if seeds.count(seed) > 1}):
            raise ValueError(f"step {step} has several subnetworks of seed {twice[0]}: give those of one sparsity")


class _Reference(NamedTuple):
    """What every checkpoint is compared with: the core, and the final step's own core with the subnetworks that it is of."""

    core: Core
    own: Core
    step: int

    @property
    def final(self) -> Bool[np.ndarray, "run layer head"]:
        return self.own.kept[:, :, :-1]

    @property
    def circular(self) -> bool:
        """Whether a final subnetwork is of a seed that the core is of: it then holds the core by construction."""
        return bool({*self.core.seeds} & {*self.own.seeds})

    @property
    def mask(self) -> Bool[np.ndarray, "layer head"]:
        return mask_of(self.core.heads, *self.final.shape[1:])

    def others(self, unit: int) -> Bool[np.ndarray, " run"]:
        """Which final subnetworks are not of this unit of chance: not of this seed or, without a seed, not in this place."""
        return np.array([own != unit for own in self.own.seeds])

    def held_out(self, others: Bool[np.ndarray, " run"]) -> Bool[np.ndarray, "layer head"]:
        """The core of some of the final subnetworks; as many of them may miss a head as for the whole core."""
        missing = self.own.n - self.own.k
        return self.final[others].sum(0) >= max(1, int(others.sum()) - missing)


def mask_of(heads: Sequence[Head], n_layers: int, n_heads: int) -> Bool[np.ndarray, "layer head"]:
    """The heads as a mask."""
    mask = np.zeros((n_layers, n_heads), dtype=bool)
    for head in heads:
        mask[head.layer, head.index] = True
    return mask


def _runs(subs: Sequence[Subnetwork], reference: _Reference) -> pd.DataFrame:
    rows: list[dict[str, object]] = []
    mask = reference.mask
    for sub, unit, heads in zip(subs, units_of_chance(subs), kept_units(subs)[:, :, :-1], strict=True):
        others = reference.others(unit)
        held_out = reference.held_out(others) if others.any() else np.zeros_like(mask)
        finals = [_jaccard(heads, one) for one in reference.final[others]]
        rows.append(
            {
                "seed": sub.seed,
                "heads": int(heads.sum()),
                "kept": int((heads & mask).sum()),
                "recall": _recall(heads, mask),
                "chance": _chance(heads, mask),
                "jaccard_core": _jaccard(heads, mask),
                "jaccard_final": float(np.mean(finals)) if finals else np.nan,
                "held_out": _recall(heads, held_out),
                "held_out_chance": _chance(heads, held_out),
            }
        )
    return pd.DataFrame(rows).astype({"seed": "Int64"})


def _recall(heads: Bool[np.ndarray, "layer head"], core: Bool[np.ndarray, "layer head"]) -> float:
    return float((heads & core).sum() / core.sum()) if core.any() else float("nan")


def _chance(heads: Bool[np.ndarray, "layer head"], core: Bool[np.ndarray, "layer head"]) -> float:
    """Mean over the core's heads of the share of their layer that is kept."""
    return float((heads.mean(1) * core.sum(1)).sum() / core.sum()) if core.any() else float("nan")


def _jaccard(a: Bool[np.ndarray, "layer head"], b: Bool[np.ndarray, "layer head"]) -> float:
    return float(jaccard_matrix(np.stack([a.ravel(), b.ravel()]))[0, 1])


def _summary(
    measured: pd.DataFrame,
    subs: Sequence[Subnetwork],
    final: Sequence[Subnetwork],
    reference: _Reference,
    step: int,
) -> dict[str, object]:
    row: dict[str, object] = {"n": len(measured), "heads": float(measured["heads"].mean())}
    for name in _MEASURED:
        prefix = "" if name == "recall" else f"{name}_"
        mean = mean_over_seeds(measured[name].to_numpy(dtype=np.float64), 0.0, 1.0)
        row |= {name: mean.mean, f"{prefix}low": mean.low, f"{prefix}high": mean.high}
    kept, mask = kept_units(subs)[:, :, :-1], reference.mask
    chance = chance_of_hits(mask.sum(1), kept.sum(2), mask.shape[1])
    possible = len(subs) * len(reference.core.heads)
    circular = step == reference.step and reference.circular
    rank = spearman(subs, final)
    rank_low, rank_high = _rank_interval(subs, final)
    return row | {
        "by_construction": circular,
        "chance": chance.mean / possible,
        "chance_low": chance.interval.low / possible,
        "chance_high": chance.interval.high / possible,
        "p_value": np.nan if circular else chance.p_value(int(measured["kept"].sum())),
        "held_out_chance": float(measured["held_out_chance"].mean()),
        "rank": rank.rho,
        "rank_low": rank_low,
        "rank_high": rank_high,
        "rank_p": np.nan if step == reference.step else rank.p_value,
    }


def _rank_interval(subs: Sequence[Subnetwork], final: Sequence[Subnetwork]) -> Interval:
    """Jackknife interval of the rank correlation, which is no mean over seeds."""
    without: list[float] = []
    for index, sub in enumerate(subs):
        rest = [other for i, other in enumerate(subs) if i != index]
        theirs = [other for i, other in enumerate(final) if (i != index if sub.seed is None else other.seed != sub.seed)]
        if rest and theirs:
            without.append(spearman(rest, theirs).rho)
    return jackknife_interval(np.array(without), spearman(subs, final).rho, -1.0, 1.0)


def _core_at(subs: Sequence[Subnetwork], reference: _Reference, permutations: int, seed: int) -> dict[str, object]:
    core = reference.core
    found = heuristic_core(subs, max(1, len(subs) - (reference.own.n - reference.own.k)))
    null = found.null(permutations, seed)
    shared, size = len({*found.heads} & {*core.heads}), len(found.heads)
    return {
        "k": found.k,
        "n": found.n,
        "heads": " ".join(map(str, found.heads)),
        "size": size,
        "shared": shared,
        "recall": shared / len(core.heads),
        "precision": shared / size if size else np.nan,
        "jaccard": shared / len({*found.heads} | {*core.heads}),
        "permuted": null.permutation_mean,
        "p_value": null.p_value,
    }


def _core_heads(subs: Sequence[Subnetwork], core: Core) -> pd.DataFrame:
    kept = kept_units(subs)
    counts = [int(kept[:, head.layer, head.index].sum()) for head in core.heads]
    layers, indices = [head.layer for head in core.heads], [head.index for head in core.heads]
    return pd.DataFrame({"layer": layers, "head": indices, "count": counts, "of": len(subs)})
