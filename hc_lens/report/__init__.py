"""Reports: tables and figures in, one self-contained HTML page (and Markdown) out.

Every experiment ends in an `Article`; a run's is made of every question that it holds the answer to (`hc_lens.questions`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
