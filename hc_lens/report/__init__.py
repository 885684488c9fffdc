"""Reports: tables and figures in, one self-contained HTML page (and Markdown) out.

Every experiment ends in an `Article`. The main line's is made from `ReportInputs`, with a reading computed from the numbers.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
