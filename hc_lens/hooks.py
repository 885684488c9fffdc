"""Edits: small values that say what happens at a hook point, and the context that puts them into a model and takes them out.

An `Edit` is never an option of the model. `hooked(model, edits)` installs edits as TransformerLens forward hooks, restores the
model's own hooks on exit, also on error, and refuses to end silently when a hook point never fired.
"""

import difflib
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import NamedTuple

from torch import Tensor, nn
from transformer_lens import HookedRootModule
from transformer_lens.hook_points import HookPoint
from transformer_lens.model_bridge import TransformerBridge

HookedModel = HookedRootModule | TransformerBridge
"""A TransformerLens model: a hooked classifier, HookedTransformer, HookedEncoder, or a bridge to a transformers model.

Edits and captures address hook points by name, so whatever has `z_point` and `mlp_point` in every block will do.
"""

HookFunction = Callable[..., Tensor]
"""`f(activation, hook=hook_point)`: from the activation at a hook point to what replaces it (TransformerLens's signature)."""


class Edit(NamedTuple):
    """A function put at a hook point, such as a gate at `blocks.4.attn.hook_z`."""

    point: str
    apply: HookFunction


class HookError(RuntimeError):
    """A hook point that does not exist in the model, or that did not fire."""


def positionwise(function: HookFunction, when: bool = True) -> HookFunction:
    """Declare (`when` it is so) that a hook function does to each position what it would do to that position alone.

    The function is returned. Where nothing else listens, `fused` may leave out positions that nobody reads. A function that
    draws at random, keeps what it sees or counts positions must not be declared so.
    """
    if when:
        vars(function)["positionwise"] = True
    return function


def is_positionwise(function: object) -> bool:
    """Whether a hook function was declared `positionwise`."""
    return getattr(function, "positionwise", False)


def only_positionwise(point: HookPoint) -> bool:
    """Whether nothing listens at a hook point but functions declared `positionwise`."""
    return not point.bwd_hooks and all(is_positionwise(hook.user_hook) for hook in point.fwd_hooks)


def z_point(layer: int) -> str:
    """Hook point of the heads' context vectors, before W_O: Float[Tensor, "batch pos head d_head"]."""
    return f"blocks.{layer}.attn.hook_z"


def pattern_point(layer: int) -> str:
    """Hook point of the attention weights, after the softmax: Float[Tensor, "batch head query key"]."""
    return f"blocks.{layer}.attn.hook_pattern"


def mlp_point(layer: int) -> str:
    """Hook point of the MLP output, before the residual add and any LayerNorm: Float[Tensor, "batch pos d_model"].

    The output bias is part of it.
    """
    return f"blocks.{layer}.hook_mlp_out"


def require_points(model: HookedModel, points: Iterable[str]) -> None:
    """Check that the model has these hook points.

    Raises:
        HookError: naming the first missing point and the nearest names the model has.
    """
    for point in points:
        if point not in model.hook_dict:
            near = difflib.get_close_matches(point, model.hook_dict, n=3)
            raise HookError(
                f"{type(model).__name__} has no hook point {point!r}; the nearest are {near or list(model.hook_dict)[:3]}"
            )


@contextmanager
def hooked(model: HookedModel, edits: Sequence[Edit]) -> Generator[HookedModel]:
    """Run the model with these edits in place; on exit, also on error, the model's hooks are as they were.

    Edits at one point apply in the given order. Contexts nest.

    Raises:
        HookError: at entry for a hook point the model lacks; at exit when a forward pass ran and some edit's point never fired
            (`hook_result` and `hook_mlp_in`, for instance, fire only under a flag), since its edit then silently did nothing.
    """
    require_points(model, (edit.point for edit in edits))
    fired = [False] * len(edits)
    forwards = 0

    def counted(index: int, apply: HookFunction) -> HookFunction:
        @wraps(apply)  # a position-wise function stays one
        def hook(activation: Tensor, hook: HookPoint) -> Tensor:
            fired[index] = True
            return apply(activation, hook=hook)

        return hook

    def count_forward(module: nn.Module, args: object, output: object) -> None:
        nonlocal forwards
        forwards += 1

    counter = model.register_forward_hook(count_forward)
    try:
        with model.hooks(fwd_hooks=[(edit.point, counted(i, edit.apply)) for i, edit in enumerate(edits)]):
            yield model
    finally:
        counter.remove()
    if forwards and not all(fired):
        silent = edits[fired.index(False)].point
        raise HookError(
            f"hook point {silent!r} did not fire in {forwards} forward pass(es), so its edit changed nothing; "
            f"points that fire by default include {z_point(0)!r} and {mlp_point(0)!r}"
        )


@contextmanager
def captured(model: HookedModel, points: Sequence[str]) -> Generator[dict[str, Tensor]]:
    """Collect the activations at these hook points, detached, in a dict that holds those of the latest forward pass."""
    seen: dict[str, Tensor] = {}

    def keep(point: str) -> HookFunction:
        def hook(activation: Tensor, hook: HookPoint) -> Tensor:
            seen[point] = activation.detach()
            return activation

        return hook

    with hooked(model, [Edit(point, keep(point)) for point in points]):
        yield seen
