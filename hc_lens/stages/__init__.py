"""The steps of the line as run directories: what each leaves, and how the next reads it; every step resumes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
