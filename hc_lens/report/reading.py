"""The reading of a study: every finding, in the order of the page, and the answer in one sentence."""

from hc_lens.report import ablation, subnetworks
from hc_lens.report.findings import Finding, counted, sparsity
from hc_lens.report.inputs import ReportInputs

_LEADING = ("core", "core-ood", "additive-margin")


def read(inputs: ReportInputs) -> list[Finding]:
    """Every question of the study, answered from its numbers."""
    return [
        subnetworks.onset(inputs),
        *(subnetworks.spread(inputs, share) for share in inputs.by_sparsity),
        subnetworks.sparser(inputs),
        subnetworks.core(inputs),
        subnetworks.rank(inputs),
        subnetworks.mlps(inputs),
        ablation.core_hurts_ood(inputs),
        ablation.core_against_others(inputs),
        ablation.super_additive(inputs, "accuracy"),
        ablation.super_additive(inputs, "margin"),
        clean(inputs),
    ]


def clean(inputs: ReportInputs) -> Finding:
    """Whether every pruning run reached its target with decided gates."""
    question = "Did every pruning run go as asked?"
    rule = (
        "A run is warned of if its trained sparsity, before the last cut to exact size, is more than 5 points off its "
        "target, or if more than 10 % of its gates are neither open nor closed (|a| < 1.6). A seed collapses, and gives no "
        "subnetwork, if all its gates end open or all closed."
    )
    if not inputs.warnings:
        sentence = "No run missed its target sparsity, and none left more than a tenth of its gates undecided."
        return Finding("clean", question, "yes", "every pruning run went as asked", sentence, rule)
    number = counted(len(inputs.warnings), "warning")
    collapsed = [f"at {sparsity(share)} {told}" for share, told in inputs.collapsed.items()]
    without = f" {_sentence('; '.join(collapsed))} Every finding is of the others." if collapsed else ""
    sentence = f"Pruning gave {number}, listed under the findings; what rests on those runs is to be taken with care.{without}"
    return Finding("clean", question, "no", f"pruning gave {number}", sentence, rule)


def headline(findings: list[Finding]) -> str:
    """The leading answers as one sentence: how subnetworks differ, what they share, and what that core does."""
    by_key = {finding.key: finding for finding in findings}
    leading = [by_key[key] for key in _LEADING if by_key[key].verdict != "not measured"]
    return _sentence("; ".join([*spreads(findings), *(finding.short for finding in leading)]))


def spread_heading(findings: list[Finding]) -> str:
    """How subnetworks differ, over all sparsities."""
    return _sentence("; ".join(spreads(findings))).removesuffix(".")


def spreads(findings: list[Finding]) -> list[str]:
    """How subnetworks differ: one clause if all sparsities tell the same, else one for each."""
    found = [finding for finding in findings if finding.key.startswith("spread-")]
    if len({finding.verdict for finding in found}) == 1:
        return [found[0].short.rpartition(" at ")[0]]
    return [finding.short for finding in found]


def _sentence(clauses: str) -> str:
    return f"{clauses[:1].upper()}{clauses[1:]}."
