"""One batch under many sets of edits: what no edit changes runs once, and small batches go through several sets at a time."""

import re
from collections.abc import Iterator, Sequence

import torch
from jaxtyping import Float
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.data.batches import Batch
from hc_lens.forward import run_batch
from hc_lens.hooks import Edit, HookedModel, HookFunction, hooked, is_positionwise, positionwise
from hc_lens.models.resume import BlockInput, can_resume, recorded, resumed

TOKENS_TOGETHER = 1024
"""So many tokens share a forward pass under several sets of edits; a larger batch goes through each set by itself.

Measured on one core: with the embedded model (width 128) 16 rows of 17 tokens take a third less time per set four together than
alone, 64 rows the same or more, since activations then leave the cache. At BERT-base's width nothing is gained either way. So
on another machine a third of the time is at stake at most; it is a fixed number because the last bits depend on it.
"""


def each_output(
    model: HookedModel, batch: Batch, edit_sets: Sequence[Sequence[Edit]], base: Sequence[Edit] = ()
) -> Iterator[tuple[int, Float[Tensor, "batch *output"]]]:
    """The model's output for a batch under each set of edits on top of `base`: pairs of the set's place and the output.

    To be called under `inference`. Where the model is a plain stack of blocks, a pass starts at the first block whose heads or
    MLP its edits change, behind that block's attention; a set without edits is the pass that everything else starts from.
    """
    plain = can_resume(model) and all(_layer(edit) is not None for edit in base)
    starts = [_start(edits) if plain else None for edits in edit_sets]
    unedited = [place for place, edits in enumerate(edit_sets) if not edits]
    layers = sorted({layer for layer in starts if layer is not None})
    inputs: dict[int, BlockInput] = {}
    if layers or unedited:
        with hooked(model, base), recorded(model, layers) as inputs:
            output = run_batch(model, batch)
        yield from ((place, output) for place in unedited)
    for place, (edits, start) in enumerate(zip(edit_sets, starts, strict=True)):
        if edits and start is None:
            with hooked(model, [*base, *edits]):
                yield place, run_batch(model, batch)
    size = 1 if _has_hooks(model) else max(1, TOKENS_TOGETHER // batch.input_ids.numel())
    for layer in layers:
        later = [edit for edit in base if (_layer(edit) or 0) >= layer]
        places = [place for place, start in enumerate(starts) if start == layer]
        for some in (places[first : first + size] for first in range(0, len(places), size)):
            edits = side_by_side([[*later, *edit_sets[place]] for place in some])
            with resumed(model, layer, inputs[layer].repeated(len(some))), hooked(model, edits):
                output = run_batch(model, Batch.stack([batch] * len(some)))
            yield from zip(some, output.split(len(batch)), strict=True)


def side_by_side(edit_sets: Sequence[Sequence[Edit]]) -> list[Edit]:
    """Edits that do to each of several equal parts of a batch, in order, what each of these sets does to a batch alone."""
    points = dict.fromkeys(edit.point for edits in edit_sets for edit in edits)
    return [
        Edit(point, _to_parts([[edit.apply for edit in edits if edit.point == point] for edits in edit_sets]))
        for point in points
    ]


def _to_parts(functions: Sequence[Sequence[HookFunction]]) -> HookFunction:
    if len(functions) == 1 and len(functions[0]) == 1:
        return functions[0][0]

    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        parts = list(activation.chunk(len(functions)))
        for place, own in enumerate(functions):
            for function in own:
                parts[place] = function(parts[place], hook=hook)
        return torch.cat(parts)

    return positionwise(hook, when=all(is_positionwise(function) for own in functions for function in own))


def _start(edits: Sequence[Edit]) -> int | None:
    """The first block whose heads or MLP these edits change; None for no edits, or if any is elsewhere."""
    layers = [layer for edit in edits if (layer := _layer(edit)) is not None]
    return min(layers, default=None) if len(layers) == len(edits) else None


def _layer(edit: Edit) -> int | None:
    """The block whose heads or MLP an edit changes; None if it is elsewhere."""
    match = re.match(r"blocks\.(\d+)\.(attn\.hook_z|hook_mlp_out)$", edit.point)
    return int(match[1]) if match else None


def _has_hooks(model: HookedModel) -> bool:
    # Somebody else's, who may count rows.
    return any(point.fwd_hooks or point.bwd_hooks for point in model.hook_dict.values())
