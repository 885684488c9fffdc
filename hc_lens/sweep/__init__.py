"""Many pruning runs, or other jobs: workers claim them, here or on a cluster, are killed at any time, and do each once."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
