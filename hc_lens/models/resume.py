"""Start a forward pass at a later block, behind that block's attention, from what an earlier pass has computed.

An edit of a head or of the MLP in block L leaves all earlier blocks as they are, and the context vectors of block L before
their hook point. When one batch is run under many edits, all of that needs to run only once: over single heads of all layers
this saves more than half of the work, and changes no number.
"""

from collections.abc import Callable, Collection, Generator
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, cast

from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.transformer_block import TransformerBlock

from hc_lens.models.fused_blocks import ContextFrom, FusedBlock


class BlockInput(NamedTuple):
    """What goes into a block, and its context vectors before `hook_z` (None where the block does not run by `fused`)."""

    residual: Float[Tensor, "batch pos d_model"]
    context: Float[Tensor, "batch query head d_head"] | None = None

    def repeated(self, times: int) -> "BlockInput":
        """The same for a batch that is repeated so often."""
        context = self.context
        return BlockInput(self.residual.repeat(times, 1, 1), None if context is None else context.repeat(times, 1, 1, 1))


def can_resume(model: nn.Module) -> bool:
    """Whether the model is a plain stack of TransformerLens blocks, each from residual stream to residual stream."""
    blocks = getattr(model, "blocks", None)
    if not isinstance(blocks, nn.ModuleList):
        return False
    return all(isinstance(block, BertBlock | TransformerBlock) and _alone(block) for block in blocks)


def _alone(block: BertBlock | TransformerBlock) -> bool:
    # Shortformer adds position embeddings to the keys of every block, apart from the residual stream.
    return block.cfg.positional_embedding_type != "shortformer"


@contextmanager
def recorded(model: nn.Module, layers: Collection[int]) -> Generator[dict[int, BlockInput]]:
    """Keep, by layer, what `resumed` needs to start at these blocks, as of the latest forward pass; before any hook on it."""
    found: dict[int, BlockInput] = {}
    with ExitStack() as restore:
        for layer in layers:
            block = _blocks(model)[layer]
            contexts: list[Tensor] = []
            restore.enter_context(_context_from(block, _keeping(contexts)))
            restore.callback(block.register_forward_hook(_kept_in(found, layer, contexts)).remove)
        yield found


@contextmanager
def resumed(model: nn.Module, layer: int, start: BlockInput) -> Generator[None]:
    """Skip what lies before block `layer` and, where its context vectors are known, its attention; undone on exit.

    Hook points of what is skipped do not fire: not those of earlier blocks, and not q, k and v of this one.
    """
    skipped = list(_blocks(model)[:layer])
    if layer and isinstance(embed := getattr(model, "embed", None), nn.Module):
        skipped.append(embed)
    with ExitStack() as restore:
        for module in skipped:
            restore.callback(_put_back, module, module.__dict__.get("forward"))
            module.forward = _returns(start.residual)
        if start.context is not None:
            restore.enter_context(_context_from(_blocks(model)[layer], _knowing(start.context)))
        yield


def _blocks(model: nn.Module) -> nn.ModuleList:
    blocks = model.blocks
    assert isinstance(blocks, nn.ModuleList)
    return blocks


@contextmanager
def _context_from(block: nn.Module, source: ContextFrom) -> Generator[None]:
    forward = block.forward
    if not isinstance(forward, FusedBlock):
        yield
        return
    before, forward.context_from = forward.context_from, source
    try:
        yield
    finally:
        forward.context_from = before


def _keeping(contexts: list[Tensor]) -> ContextFrom:
    def keep(width: int, attend: Callable[[], Tensor]) -> Tensor:
        contexts[:] = [attend()]
        return contexts[0]

    return keep


def _knowing(context: Tensor) -> ContextFrom:
    def known(width: int, attend: Callable[[], Tensor]) -> Tensor:
        # Kept for the first position only, but asked for all: by an edit that is not position-wise.
        return context[:, :width] if context.shape[1] >= width else attend()

    return known


def _kept_in(found: dict[int, BlockInput], layer: int, contexts: list[Tensor]) -> Callable[..., None]:
    def hook(block: nn.Module, inputs: tuple[object, ...], output: Tensor) -> None:
        found[layer] = BlockInput(cast(Tensor, inputs[0]), contexts.pop() if contexts else None)

    return hook


def _returns(residual: Tensor) -> Callable[..., Tensor]:
    def forward(*args: object, **kwargs: object) -> Tensor:
        return residual

    return forward


def _put_back(module: nn.Module, forward: Callable[..., Tensor] | None) -> None:
    if forward is None:
        del module.forward
    else:
        module.forward = forward
