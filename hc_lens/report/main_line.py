"""The report of the main line: how subnetworks of one model generalize, what they share, and what that core does."""

from collections.abc import Sequence
from pathlib import Path

from hc_lens.report.article import Article
from hc_lens.report.inputs import ReportInputs
from hc_lens.report.page import write_article
from hc_lens.report.reading import headline, read
from hc_lens.report.sections import sections


def write_report(inputs: ReportInputs, directory: Path) -> Path:
    """Write a study's `report.html` and `report.md` into a directory; returns the page's path.

    Raises:
        OSError: naming the file, when it cannot be written; nothing half-written stays.
    """
    return write_article(study_article(inputs), directory)


def study_article(inputs: ReportInputs) -> Article:
    """The study as an article: every finding read from its tables, and a section for each figure that they can fill."""
    findings = read(inputs)
    return Article(
        title=inputs.title,
        question=inputs.question,
        answer=headline(findings),
        sections=sections(inputs, findings),
        facts=_facts(inputs),
        warnings=inputs.warnings,
        notes=inputs.notes,
        provenance=inputs.provenance,
        config=inputs.config,
        findings=findings,
    )


def _facts(inputs: ReportInputs) -> list[tuple[str, str]]:
    """What was run, as counted in the tables."""
    rows = inputs.full.groupby("group")["n"].sum() if "n" in inputs.full.columns else {}
    cases = [
        (len(inputs.cases(group)), where, rows.get(group)) for group, where in (("ID", "in-domain"), ("OOD", "out of domain"))
    ]
    told = [f"{number} {where}" + ("" if n is None else f" ({int(n):,} rows)") for number, where, n in cases]
    facts = [("Cases", ", ".join(told))]
    for share, runs in inputs.by_sparsity.items():
        seeds = sorted({int(seed) for seed in runs["seed"].dropna()})
        named = f", {_seeds(seeds)}" if seeds else ""
        lost = f"; {inputs.collapsed[share]}" if share in inputs.collapsed else ""
        facts.append((f"{100 * share:.0f} % sparsity", f"{runs['subnetwork'].nunique()} subnetworks{named}{lost}"))
    empty = {share: told for share, told in inputs.collapsed.items() if share not in inputs.by_sparsity}
    return [*facts, *((f"{100 * share:.0f} % sparsity", f"no subnetworks; {told}") for share, told in empty.items())]


def _seeds(seeds: Sequence[int]) -> str:
    if len(seeds) > 2 and seeds[-1] - seeds[0] == len(seeds) - 1:
        return f"seeds {seeds[0]} to {seeds[-1]}"
    return f"{'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"
