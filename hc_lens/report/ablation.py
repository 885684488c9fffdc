"""Findings on ablation: whom core heads hurt, and whether a set costs more than its heads one by one."""

import numpy as np
import pandas as pd

from hc_lens.report.findings import (
    MINUS,
    Finding,
    Verdict,
    counted,
    difference_interval,
    in_points,
    listed,
    mean_interval,
    not_measured,
    points,
    sign_verdict,
    values,
)
from hc_lens.report.inputs import ReportInputs
from hc_lens.units import Head, parse

_SCALES = {"accuracy": "accuracy", "margin": "the margin"}
_UNITS = {"accuracy": (" points", 100, 1), "margin": (" nats", 1, 2)}


def head_losses(inputs: ReportInputs) -> pd.DataFrame:
    """Mean accuracy lost to each single head over the cases of a group: index head name, columns `ID`, `OOD`, `core`."""
    effects = inputs.accuracy_effects
    single = effects[effects["group"].map(is_head).astype(bool)]
    losses = single.pivot_table(index="group", columns="case_group", values="effect", aggfunc="mean", sort=False)
    core = {str(head) for head in inputs.core.heads}
    return losses.reindex(columns=["ID", "OOD"]).assign(core=[name in core for name in losses.index])


def is_head(name: str) -> bool:
    """Whether the name of an ablated group is that of a single head."""
    try:
        return isinstance(parse(name), Head)
    except ValueError:
        return False


def core_hurts_ood(inputs: ReportInputs) -> Finding:
    """Whether ablating single core heads costs more out of domain than in-domain."""
    key, question = "core-ood", "Does ablating a core head hurt out of domain more than in-domain?"
    rule = (
        "Accuracy lost when one core head is mean-ablated from the full model, averaged over the out-of-domain cases, minus "
        "the "
        "same in-domain; 95 % bootstrap interval of its mean over core heads. Yes if it lies above 0, no if below, undecided "
        "if it includes 0."
    )
    losses = head_losses(inputs)
    held = losses[losses["core"].astype(bool)]
    if held.empty:
        return not_measured(key, question, "core heads were not ablated", "No single core head was ablated in this run.")
    difference = values(held["OOD"] - held["ID"])
    interval = mean_interval(difference)
    verdict = sign_verdict(interval)
    short = {
        "yes": "ablating a core head hurts out of domain more than in-domain",
        "no": "ablating a core head hurts in-domain more than out of domain",
    }.get(verdict, "it is undecided whether a core head matters more out of domain than in-domain")
    worst = str(held["OOD"].idxmax())
    sentence = (
        f"Without one core head, the full model loses {points(held['OOD'].mean())} out of domain and "
        f"{points(held['ID'].mean())} "
        f"in-domain on average over {counted(len(held), 'head')}: a difference of {points(float(difference.mean()))} "
        f"{in_points(interval)}. The most costly is {worst} ({points(held['OOD'].max())} out of domain)."
    )
    return Finding(key, question, verdict, short, sentence, rule)


def core_against_others(inputs: ReportInputs) -> Finding:
    """Whether ablating single core heads costs more out of domain than ablating other heads."""
    key, question = "core-others", "Does ablating a core head hurt more than ablating another head?"
    rule = (
        "Accuracy lost out of domain to a single head, mean over core heads minus mean over the other heads ablated; 95 % "
        "bootstrap "
        "interval over heads. Yes if it lies above 0, no if below, undecided if it includes 0."
    )
    losses = head_losses(inputs)
    is_core = losses["core"].astype(bool)
    held, others = losses[is_core], losses[~is_core]
    if held.empty or others.empty:
        why = "Core heads and other heads were not both ablated one by one in this run."
        return not_measured(key, question, "core heads were not compared with other heads", why)
    interval = difference_interval(values(held["OOD"]), values(others["OOD"]))
    verdict = sign_verdict(interval)
    short = {
        "yes": "ablating a core head hurts more than ablating another head",
        "no": "ablating a core head hurts less than ablating another head",
    }.get(verdict, "it is undecided whether a core head matters more than another head")
    sentence = (
        f"Out of domain, a core head costs {points(held['OOD'].mean())} on average ({counted(len(held), 'head')}), another "
        "head "
        f"{points(others['OOD'].mean())} ({counted(len(others), 'head')}): a difference of "
        f"{points(held['OOD'].mean() - others['OOD'].mean())} {in_points(interval)}. In-domain: {points(held['ID'].mean())} "
        "and "
        f"{points(others['ID'].mean())}."
    )
    return Finding(key, question, verdict, short, sentence, rule)


def super_additive(inputs: ReportInputs, scale: str) -> Finding:
    """Whether ablating core heads together costs more out of domain than the sum of ablating them one by one."""
    key, on = f"additive-{scale}", _SCALES[scale]
    question = f"On {on}, does ablating core heads together cost more than one by one?"
    rule = (
        "Excess: joint loss minus summed single losses, with its 95 % paired bootstrap interval, per set and out-of-domain "
        "case. Yes "
        "if the interval lies above 0 in more than half of the cases that the floor does not limit, no if below 0 in more than "
        "half, undecided otherwise. "
        + (
            "The margin is the log-odds of the right answer; it has no floor."
            if scale == "margin"
            else "Floor-limited: single losses add up to more than there was to lose, or the joint accuracy is at the floor."
        )
    )
    if inputs.additivity is None or inputs.additivity[inputs.additivity["scale"] == scale].empty:
        return not_measured(
            key, question, f"additivity on {on} was not measured", "No set of heads was ablated jointly in this run."
        )
    table = inputs.additivity
    rows = table[(table["scale"] == scale) & (table["case"].map(inputs.group_of) == "OOD")]
    limited = rows["floor_limited"].astype(bool)
    free = rows[~limited]
    above, below = free[free["low"] > 0], free[free["high"] < 0]
    verdict: Verdict = "yes" if len(above) > len(free) / 2 else "no" if len(below) > len(free) / 2 else "undecided"
    short = {
        "yes": f"core heads together cost more than the sum of their parts on {on}",
        "no": f"core heads together cost less than the sum of their parts on {on}",
    }.get(verdict, f"it is undecided whether core heads together cost more than the sum of their parts on {on}")
    sentence = f"{_count(above, free, 'super-additive', scale)}, {_count(below, free, 'sub-additive', scale)}"
    sentence += (
        f"; for the other {unclear} the interval includes 0." if (unclear := len(free) - len(above) - len(below)) else "."
    )
    sentence += f" {_controls(rows, above)}"
    if limited.any():
        sentence += f" Floor-limited and not counted: {listed(_labels(rows[limited]), most=4)}."
    return Finding(key, question, verdict, short, sentence[0].upper() + sentence[1:], rule)


def _count(rows: pd.DataFrame, free: pd.DataFrame, what: str, scale: str) -> str:
    """`2 of 4 results are super-additive`, with the strongest and its interval."""
    if rows.empty:
        return f"none is {what}" if len(free) else f"no result is left to be {what}"
    place = int(np.argmax(np.abs(values(rows["excess"]))))
    unit, factor, digits = _UNITS[scale]
    row, label = rows.iloc[place], _labels(rows)[place]
    excess, low, high = (f"{factor * row[name]:.{digits}f}".replace("-", MINUS) for name in ("excess", "low", "high"))
    return (
        f"{len(rows)} of {counted(len(free), 'result')} {'is' if len(rows) == 1 else 'are'} {what} (most on {label}: "
        f"{excess}{unit}, "
        f"95 % interval {low} to {high})"
    )


def _labels(rows: pd.DataFrame) -> list[str]:
    several = rows["set"].nunique() > 1
    return [f"{case} ({name})" if several else str(case) for case, name in zip(rows["case"], rows["set"], strict=True)]


def _controls(rows: pd.DataFrame, above: pd.DataFrame) -> str:
    """How the super-additive results stand against random sets of the same size and layers."""
    if not rows["control_high"].notna().any():
        return "There was no control with random sets."
    controlled = above[above["control_high"].notna()]
    if controlled.empty:
        return "So there is nothing to hold against layer-matched random sets."
    beyond = int((controlled["excess"] > controlled["control_high"]).sum())
    return f"Of the super-additive ones, {beyond} of {len(controlled)} lie beyond 97.5 % of layer-matched random sets."
