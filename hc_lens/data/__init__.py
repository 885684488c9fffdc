"""Tasks of labelled sentence pairs, where they come from, and their token batches."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
