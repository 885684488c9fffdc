"""Start a forward pass at a later block, from a residual stream computed before.

An edit in block L leaves all earlier blocks as they are. When one batch is run under many edits, the blocks below each edit
need to run only once: over single heads of all layers this saves nearly half of the work, and changes no number.
"""

from collections.abc import Callable, Generator
from contextlib import ExitStack, contextmanager

from jaxtyping import Float
from torch import Tensor, nn
from transformer_lens.components.bert_block import BertBlock
from transformer_lens.components.transformer_block import TransformerBlock


def residual_point(layer: int) -> str:
    """Hook point of what goes into block `layer`: Float[Tensor, "batch pos d_model"]."""
    return f"blocks.{layer}.hook_resid_pre"


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
def resumed(model: nn.Module, layer: int, residual: Float[Tensor, "batch pos d_model"] | None) -> Generator[None]:
    """Skip the blocks before `layer`, whose input is `residual`; on exit, also on error, they run again.

    Embeddings still run, and hook points of the skipped blocks do not fire. Layer 0 skips nothing and needs no residual.

    Raises:
        ValueError: for a layer above 0 without its residual.
    """
    if layer == 0:
        yield
        return
    if residual is None:
        raise ValueError(f"no residual stream to resume from at block {layer}")
    blocks: nn.ModuleList = model.blocks  # pyright: ignore[reportAssignmentType]
    with ExitStack() as restore:
        for block in list(blocks)[:layer]:
            restore.callback(_put_back, block, block.__dict__.get("forward"))
            block.forward = _returns(residual)
        yield


def _returns(residual: Tensor) -> Callable[..., Tensor]:
    def forward(*args: object, **kwargs: object) -> Tensor:
        return residual

    return forward


def _put_back(block: nn.Module, forward: Callable[..., Tensor] | None) -> None:
    if forward is None:
        del block.forward
    else:
        block.forward = forward
