"""The onset of generalization in fine-tuning, and whether the core is whole before it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd

from hc_lens.analysis.emergence import Emergence
from hc_lens.statistics import Interval, mean_over_seeds
from hc_lens.tables import require_columns
from hc_lens.units import Head

_ARRIVED = 0.9


@dataclass(frozen=True, eq=False)
class Onset:
    """The first checkpoint at which the model generalizes, by a stated level of accuracy.

    Attributes:
        step: that checkpoint; None if there is none.
        before: the last checkpoint before it; None if it is the first one, or there is no onset.
        level: the accuracy to pass.
        stays: whether accuracy had to stay above the level at all later checkpoints.
        cases: the cases averaged.
        curve: `step`, `accuracy` (mean over the cases) and `above` the level.
    """

    step: int | None
    before: int | None
    level: float
    stays: bool
    cases: tuple[str, ...]
    curve: pd.DataFrame = field(repr=False)


def nearly_best(curve: pd.Series) -> float:
    """A level for `onset` that is a course's own: nine tenths of the way from its first checkpoint to its best."""
    first = float(curve.iloc[0])
    return first + _ARRIVED * (float(curve.max()) - first)


def onset(
    evaluations: pd.DataFrame,
    *,
    level: float | Callable[[pd.Series], float],
    cases: Sequence[str] | None = None,
    group: str = "OOD",
    stays: bool = False,
) -> Onset:
    """The first checkpoint whose accuracy, averaged over cases with equal weight, is above `level`.

    Choose the cases with care. On HANS, a model that calls every pair non-entailed is right on all non-entailed cases, and one
    that follows the heuristic is right on all entailed ones: a mean over all 30 cases is at one half for both, so that a
    level well above that tells neither of them from generalization. Over cases of one label it does not: name cases of both
    labels, as many of each.

    Args:
        evaluations: the full model at every checkpoint, as `hc_lens.train.evaluations` returns: `step`, `case`, `group`,
            `accuracy`. Rows of subnetworks (a `subnetwork` other than "full") are left out.
        level: to be passed, in (0, 1); or what finds it from the course, a series of accuracy by step: `nearly_best`.
        cases: those averaged, of whatever group; by default all of `group`.
        group: "OOD" or "ID".
        stays: whether accuracy must be above the level at all later checkpoints too, so that a single lucky one does not count.

    Raises:
        ValueError: for a level outside (0, 1), a case or group that is not in the table, a missing column, or a checkpoint that
            was not evaluated on all of the cases.
    """
    if not callable(level) and not 0 < level < 1:
        raise ValueError(f"the level of accuracy that marks the onset must be in (0, 1), got {level}")
    curve = _curve(evaluations, cases, group)
    if callable(level):
        level = level(curve)
    above = curve.gt(level)
    steps = [int(step) for step in curve.index]
    over = above.to_numpy()
    passed = [i for i in range(len(steps)) if (over[i:].all() if stays else over[i])]
    named = tuple(cases) if cases is not None else _cases_of(evaluations, group)
    table = pd.DataFrame({"step": steps, "accuracy": curve.to_numpy(), "above": over})
    first = passed[0] if passed else None
    before = steps[first - 1] if first else None
    return Onset(None if first is None else steps[first], before, level, stays, named, table)


def _cases_of(evaluations: pd.DataFrame, group: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(case) for case in evaluations.loc[evaluations["group"] == group, "case"]))


def _curve(evaluations: pd.DataFrame, cases: Sequence[str] | None, group: str) -> pd.Series:
    """Mean accuracy over the cases at every step, in order."""
    require_columns(evaluations, ("step", "case", "group", "accuracy"), "the evaluations")
    full = evaluations[evaluations["subnetwork"] == "full"] if "subnetwork" in evaluations.columns else evaluations
    known = list(dict.fromkeys(full["case"]))
    chosen = list(_cases_of(full, group)) if cases is None else list(cases)
    if unknown := [case for case in chosen if case not in known]:
        raise ValueError(f"no case {unknown[0]!r} was evaluated; the cases are {', '.join(map(str, known))}")
    if not chosen:
        raise ValueError(f"no case of group {group!r} to average over: the groups are {sorted(set(full['group']))}")
    wide = full[full["case"].isin(chosen)].pivot_table(index="step", columns="case", values="accuracy", dropna=False)
    wide = wide.reindex(columns=chosen, index=sorted(set(full["step"])))
    if len(absent := np.argwhere(wide.isna().to_numpy())):
        step, case = wide.index[absent[0][0]], chosen[absent[0][1]]
        raise ValueError(f"step {step} has no accuracy on {case!r}: the mean would be over other cases than elsewhere")
    return wide.mean(axis=1)


Wholeness = Literal["whole", "partly", "absent", "not measured"]
"""`whole`: every core head is in the checkpoint's own core; `partly`: more of them than by chance (p < 0.05); `absent`: not
clearly more; `not measured`: there is no onset, or no pruned checkpoint before it."""


@dataclass(frozen=True, eq=False)
class BeforeOnset:
    """How much of the final core is there at the last pruned checkpoint before the onset of generalization.

    Attributes:
        step: that checkpoint; None where nothing can be said (all numbers are NaN then).
        core: heads of the final core.
        missing: core heads that some subnetwork there does not keep; the others are kept by all.
        runs: `seed`, `kept`, `recall`, `held_out` of each subnetwork there.
        recall, interval: mean over seeds and its interval over seeds (Student's t; NaN for one seed).
        chance, chance_interval, p_value: recall of random subnetworks with as many heads in each layer, and the probability of
            this recall among them.
        gain, gain_interval: recall there minus at the first checkpoint, over seeds pruned at both; NaN if it is the first.
        held_out, ceiling: recall of the core of the other seeds, there and at the final checkpoint: what seeds agree on anyway.
        final_recall: recall of the core at the final checkpoint; NaN where it is by construction.
        verdict: see `Wholeness`.
    """

    onset: Onset
    step: int | None
    core: tuple[Head, ...]
    missing: tuple[Head, ...]
    runs: pd.DataFrame = field(repr=False)
    recall: float
    interval: Interval
    chance: float
    chance_interval: Interval
    p_value: float
    gain: float
    gain_interval: Interval
    held_out: float
    ceiling: float
    final_recall: float
    verdict: Wholeness

    @property
    def kept_by_all(self) -> int:
        """Core heads that every subnetwork there keeps."""
        return len(self.core) - len(self.missing)

    @property
    def short(self) -> str:
        """The answer as a clause."""
        if self.step is None:
            return "there is no pruned checkpoint before an onset of generalization, so the claim cannot be tested"
        there = {"whole": "whole", "partly": "only partly there", "absent": "not there beyond chance"}[self.verdict]
        return (
            f"the core of {len(self.core)} heads is {there} before the onset: at step {self.step} all {len(self.runs)} "
            f"subnetworks keep {self.kept_by_all}, recall {self.recall:.1%}, by chance {self.chance:.1%} "
            f"(p = {self.p_value:.2g})"
        )

    @property
    def sentence(self) -> str:
        """The numbers in words."""
        return _sentence(self)


_NO_INTERVAL = Interval(float("nan"), float("nan"))


def whole_before_onset(emergence: Emergence, start: Onset) -> BeforeOnset:
    """Test the claim that all core heads are in the subnetworks of the checkpoint just before generalization sets in.

    The claim (The Heuristic Core, on the emergence of the core) holds, "whole", if every head of the final core is in the core
    of the last pruned checkpoint before the onset, by the same rule: kept by all, or missed by no more than n - k. The recall
    is set against random subnetworks, against the first checkpoint (step 0: pretraining, the paper's open question), and
    against what seeds agree on anyway.
    """
    earlier = [step for step in emergence.steps["step"].tolist() if start.step is not None and step < start.step]
    if not earlier:
        runs = emergence.runs.loc[[], list(_SHOWN)]
        nan = float("nan")
        none = (nan, _NO_INTERVAL, nan, _NO_INTERVAL, nan, nan, _NO_INTERVAL, nan, nan, nan)
        return BeforeOnset(start, None, emergence.core.heads, emergence.core.heads, runs, *none, "not measured")
    step = earlier[-1]
    row, end = _row(emergence.steps, step), emergence.steps[emergence.steps["step"] == emergence.final]
    own = bool(end["by_construction"].iloc[0])
    heads = emergence.heads[emergence.heads["step"] == step]
    lacking = heads[heads["count"] < heads["of"]]
    whole = _row(emergence.cores, step)["recall"] == 1
    gain, gain_interval = _gain(emergence.runs, step)
    return BeforeOnset(
        onset=start,
        step=step,
        core=emergence.core.heads,
        missing=tuple(Head(int(layer), int(head)) for layer, head in zip(lacking["layer"], lacking["head"], strict=True)),
        runs=emergence.runs.loc[emergence.runs["step"] == step, list(_SHOWN)].reset_index(drop=True),
        recall=row["recall"],
        interval=Interval(row["low"], row["high"]),
        chance=row["chance"],
        chance_interval=Interval(row["chance_low"], row["chance_high"]),
        p_value=row["p_value"],
        gain=gain,
        gain_interval=gain_interval,
        held_out=row["held_out"],
        ceiling=float(end["held_out"].iloc[0]),
        final_recall=float("nan") if own else float(end["recall"].iloc[0]),
        verdict="whole" if whole else "partly" if row["p_value"] < 0.05 else "absent",
    )


def _row(table: pd.DataFrame, step: int) -> dict[str, float]:
    """The numbers of one checkpoint."""
    row = table[table["step"] == step].select_dtypes("number").iloc[0]
    return {str(name): float(value) for name, value in row.items()}


_SHOWN = ("seed", "kept", "recall", "held_out")


def _gain(runs: pd.DataFrame, step: int) -> tuple[float, Interval]:
    """Recall at a checkpoint minus at the first one, for seeds pruned at both (in their order where they have no number)."""
    first = int(runs["step"].min())
    if step == first:
        return float("nan"), _NO_INTERVAL
    here, there = (runs[runs["step"] == s].reset_index(drop=True) for s in (step, first))
    if here["seed"].notna().all() and there["seed"].notna().all():
        here, there = here.set_index("seed"), there.set_index("seed")
    gains = (here["recall"] - there["recall"]).dropna().to_numpy(dtype=np.float64)
    mean = mean_over_seeds(gains, -1.0, 1.0)
    return mean.mean, Interval(mean.low, mean.high)


def _sentence(found: BeforeOnset) -> str:
    start = found.onset
    over = "".join(start.cases) if len(start.cases) == 1 else f"{len(start.cases)} cases"
    if start.step is None:
        best = float(start.curve["accuracy"].max())
        stays = " and stays there" if start.stays else ""
        return (
            f"No checkpoint passes {start.level:.0%} on {over}{stays}: the best is at {best:.1%}, so there is no onset to test."
        )
    if found.step is None:
        return (
            f"The first checkpoint that was pruned already passes {start.level:.0%} on {over}: there is none before the onset."
        )
    size, n = len(found.core), len(found.runs)
    lacking = f"; some lack {', '.join(map(str, found.missing))}" if found.missing else ""
    told = [
        f"Accuracy on {over} first passes {start.level:.0%} at step {start.step}.",
        f"At step {found.step}, the last pruned one before, all {n} subnetworks keep {found.kept_by_all} of the {size} core "
        f"heads{lacking}.",
        f"Recall of the core is {found.recall:.1%}{_interval(found.interval)} by the mean subnetwork, against "
        f"{found.chance:.1%} by chance (95 % {found.chance_interval.low:.1%} to {found.chance_interval.high:.1%}; "
        f"p = {found.p_value:.2g}).",
    ]
    if not np.isnan(found.gain):
        told.append(f"That is {100 * found.gain:+.1f} points from the first checkpoint{_interval(found.gain_interval)}.")
    if not np.isnan(found.final_recall):
        told.append(f"At the final checkpoint, whose seeds are not those of the core, it is {found.final_recall:.1%}.")
    elif not np.isnan(found.ceiling):
        told.append(
            f"Of a core found without its own seed a subnetwork keeps {found.held_out:.1%} there and {found.ceiling:.1%} at "
            "the final checkpoint, where the recall of the whole core is high by construction."
        )
    return " ".join(told)


def _interval(interval: Interval) -> str:
    return "" if np.isnan(interval.low) else f" (95 % {100 * interval.low:.1f} to {100 * interval.high:.1f})"
