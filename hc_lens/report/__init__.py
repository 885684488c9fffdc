"""Reports: tables and figures in, one self-contained HTML page (and Markdown) out.

Every experiment ends in an `Article`. The main line's is made from `ReportInputs`, with a reading computed from the numbers.
"""

from hc_lens.report.article import Article, Section
from hc_lens.report.cells import TextTable, text_table, with_interval
from hc_lens.report.findings import Finding, Verdict, p_text
from hc_lens.report.inputs import CoreSummary, ReportInputs
from hc_lens.report.main_line import study_article, write_report
from hc_lens.report.page import write_article
from hc_lens.report.reading import headline, read

__all__ = [
    "Article",
    "CoreSummary",
    "Finding",
    "ReportInputs",
    "Section",
    "TextTable",
    "Verdict",
    "headline",
    "p_text",
    "read",
    "study_article",
    "text_table",
    "with_interval",
    "write_article",
    "write_report",
]
