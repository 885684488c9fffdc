"""What TransformerLens's classes offer for language models, and a classifier refuses before anything is touched."""

from collections.abc import Callable
from typing import NoReturn, TypeVar

_C = TypeVar("_C", bound=type)

_PROCESSING = "it folds weights into an unembedding"
_UNEMBEDDING = "it belongs to an unembedding"
_TEXT = "it needs logits of tokens"
_METHODS = {
    "process_weights_": _PROCESSING,
    "load_and_process_state_dict": _PROCESSING,
    "fold_layer_norm": _PROCESSING,
    "center_writing_weights": _PROCESSING,
    "center_unembed": _PROCESSING,
    "fold_value_biases": _PROCESSING,
    "refactor_factored_attn_matrices": _PROCESSING,
    "tokens_to_residual_directions": _UNEMBEDDING,
    "loss_fn": _TEXT,
    "generate": _TEXT,
    "generate_stream": _TEXT,
}
_PROPERTIES = {"W_U": _UNEMBEDDING, "b_U": _UNEMBEDDING}


def without_unembedding(cls: _C) -> _C:
    """Let a class refuse the methods and properties that need an unembedding, with NotImplementedError."""
    for name, reason in _METHODS.items():
        setattr(cls, name, _refusing(f"{name}()", reason))
    for name, reason in _PROPERTIES.items():
        setattr(cls, name, property(_refusing(name, reason)))
    return cls


def require_own_arguments(given: dict[str, object]) -> None:
    """Refuse arguments of TransformerLens's forward functions.

    Raises:
        TypeError: naming the first.
    """
    for name in given:
        raise TypeError(
            f"a classifier's forward has no {name}=: it takes attention_mask= and token_type_ids= and gives the logits of the "
            "classes; what is inside comes from run_with_cache or captured"
        )


def _refusing(name: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} has no {name}: {reason}, and a classifier has none; its head is `classifier`; "
            "nothing was changed"
        )

    return refuse
