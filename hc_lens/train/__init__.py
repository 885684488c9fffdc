"""Fine-tuning a classifier on a task: checkpoints, each evaluated, and bit-equal resumption."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
