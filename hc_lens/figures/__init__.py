"""Figures of a study: a table in, a plotly Figure out; nothing here loads a run or computes a result.

Every figure carries its own template (no global theme is set), a palette that colour-blind readers can tell apart, and text
from the data escaped. The shape of the table it takes stands in each docstring.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
