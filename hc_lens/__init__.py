"""Which subnetwork of a fine-tuned language model does what, and how it generalizes.

The public names, those of `surface.pyi` and every question of `hc_lens.questions`, are imported on first use: `import hc_lens`
itself loads neither torch nor TransformerLens.
"""

from pathlib import Path

import lazy_loader

__version__ = "0.1.0"

_here = Path(__file__).parent
_of_surface, _, _surface = lazy_loader.attach_stub(__name__, str(_here / "surface.pyi"))
_of_questions, _, _questions = lazy_loader.attach_stub(f"{__name__}.questions", str(_here / "questions" / "__init__.pyi"))
__all__ = [*_questions, *_surface]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> object:
    return _of_questions(name) if name in _questions else _of_surface(name)


def __dir__() -> list[str]:
    return __all__
