"""What can be asked of a run: one file a question, and here, in the order of the page, every one of them.

A question is a frozen dataclass; `hc_lens.open("runs/half").ask(Pairs())` measures it and keeps the tables in the run, whose
next report shows them. Its line in `__init__.pyi` is all that makes it known to the command line and to the report.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
