"""A study's report: tables in, one self-contained HTML page (and Markdown) out, with a reading computed from the numbers."""

from hc_lens.report.findings import Finding, Verdict
from hc_lens.report.inputs import CoreSummary, ReportInputs
from hc_lens.report.page import write_report
from hc_lens.report.reading import headline, read

__all__ = ["CoreSummary", "Finding", "ReportInputs", "Verdict", "headline", "read", "write_report"]
