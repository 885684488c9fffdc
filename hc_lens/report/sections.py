"""The sections of the main line's report: one per figure, headed by its finding."""

from collections.abc import Callable

import pandas as pd

from hc_lens import figures
from hc_lens.report import tables
from hc_lens.report.article import Section
from hc_lens.report.findings import Finding
from hc_lens.report.inputs import ReportInputs
from hc_lens.report.reading import spread_heading

_FEW_CASES = 12  # with more, the table by case is folded away under its figure
_PANELS = 8  # ablation panels: two rows of four


def sections(inputs: ReportInputs, findings: list[Finding]) -> list[Section]:
    """The figures for which the run holds the numbers, in the order of the argument."""
    headings = {finding.key: finding.short[:1].upper() + finding.short[1:] for finding in findings}
    headings["spread"] = spread_heading(findings)
    builders: list[Callable[[ReportInputs, dict[str, str]], Section | None]] = [
        _training,
        _subnetworks,
        _heads,
        _joint,
        _ablation,
        _additivity,
    ]
    return [section for build in builders if (section := build(inputs, headings))]


def _training(inputs: ReportInputs, headings: dict[str, str]) -> Section | None:
    if inputs.training is None:
        return None
    return Section(
        "training",
        headings["onset"],
        "Accuracy of the full model on every case, at each checkpoint of fine-tuning.",
        figures.training_curves(inputs.training),
        folded=(tables.training_table(inputs),),
    )


def _subnetworks(inputs: ReportInputs, headings: dict[str, str]) -> Section:
    cases, runs = tables.accuracy_table(inputs), tables.run_table(inputs)
    few = len(inputs.group_of) <= _FEW_CASES
    return Section(
        "subnetworks",
        headings["spread"],
        "Each mark is one subnetwork, pruned with its own seed from the same full model (black bar). Where marks lie "
        "together, the "
        "seed does not matter; where they scatter, subnetworks of one model generalize differently.",
        figures.strip(inputs.evaluation),
        shown=(cases,) if few else (),
        folded=(runs,) if few else (cases, runs),
        width=(560, 1100),
    )


def _heads(inputs: ReportInputs, headings: dict[str, str]) -> Section:
    core = inputs.core
    of = f"all {core.n}" if core.k == core.n else f"at least {core.k} of {core.n}"
    panels, n_heads = inputs.frequency["sparsity"].nunique(), int(inputs.frequency["head"].max()) + 1
    return Section(
        "heads",
        headings["core"],
        f"How many subnetworks keep each head. Outlined: the core, kept in {of}.",
        figures.head_heatmap(inputs.frequency, core.heads),
        shown=(tables.core_table(inputs),) if core.heads else (),
        folded=(tables.frequency_table(inputs),),
        width=(90 + panels * (40 + 24 * n_heads), 100 + panels * (60 + 40 * n_heads)),
    )


def _joint(inputs: ReportInputs, headings: dict[str, str]) -> Section | None:
    if inputs.joint is None:
        return None
    shares = sorted(inputs.frequency["sparsity"].unique())
    low, high = f"{100 * shares[0]:.0f} %", f"{100 * shares[-1]:.0f} %"
    return Section(
        "joint",
        headings["rank"] if inputs.rank else f"Which heads are kept at {low} and at {high} sparsity",
        "Each mark is a group of heads, its area their number. Top right: heads that every run keeps at both sparsities.",
        figures.joint_histogram(inputs.joint, f"runs at {low} that keep the head", f"runs at {high} that keep the head"),
        folded=(tables.joint_table(inputs, low, high),),
        width=(420, 600),
    )


def _ablation(inputs: ReportInputs, headings: dict[str, str]) -> Section | None:
    effects = tables.shown_effects(inputs)
    if effects.empty:
        return None
    caption = (
        "Accuracy that the full model loses when units are mean-ablated: single core heads, sets ablated together, and the "
        "average of the other heads, one by one. In-domain panels are dark; whiskers are 95 % bootstrap intervals over rows."
    )
    drawn, left_out = _most_affected(effects)
    if left_out:
        caption += f" Shown are the cases that lose most; the table has the other {left_out}."
    return Section(
        "ablation",
        headings["core-ood"],
        caption,
        figures.ablation_bars(drawn),
        folded=(tables.effect_table(inputs, effects),),
        width=(min(860, 250 * drawn["case"].nunique() + 120), min(1100, 250 * drawn["case"].nunique() + 150)),
    )


def _most_affected(effects: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """The rows of the cases for which there is a panel, in-domain ones first to stay, and how many cases are left out."""
    losses = effects.groupby("case", sort=False)["effect"].mean()
    inside = effects.loc[effects["case_group"] == "ID", "case"].unique()
    outside = losses.drop(inside).nlargest(max(1, _PANELS - len(inside))).index
    kept = effects["case"].isin([*inside, *outside])
    return effects[kept], len(losses) - len(inside) - len(outside)


def _additivity(inputs: ReportInputs, headings: dict[str, str]) -> Section | None:
    if inputs.additivity is None:
        return None
    scales = set(inputs.additivity["scale"])
    return Section(
        "additivity",
        headings["additive-margin" if "margin" in scales else "additive-accuracy"],
        "Loss when heads are ablated together, minus the sum of their single losses. Right of zero: super-additive. Grey: "
        "random sets of "
        "as many heads from the same layers. Hollow: limited by the floor, so unable to show it.",
        figures.additivity(inputs.additivity),
        folded=(tables.additivity_table(inputs),),
        width=(320 + 160 * len(scales), 250 + 430 * len(scales)),
    )
