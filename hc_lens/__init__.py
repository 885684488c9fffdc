"""Which subnetwork of a fine-tuned language model does what, and how it generalizes.

The public names (in `__init__.pyi`) are imported on first use: `import hc_lens` itself loads neither torch nor TransformerLens.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

__version__ = "0.1.0"
