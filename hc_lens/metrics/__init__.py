"""How a model, full or ablated, does on a task: predictions, scores per case, and their statistics."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
