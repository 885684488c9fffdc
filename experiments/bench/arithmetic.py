"""The arithmetic of a pruning step, counted, and the rate at which this machine multiplies matrices of the model's shape."""

from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

import torch
from jaxtyping import Int
from torch import Tensor
from transformers import BertConfig


class Flops(NamedTuple):
    """Floating-point operations, 2 per multiply-add: of products with the weights, and of attention."""

    matrices: int
    attention: int


def step_flops(config: BertConfig, rows: int, width: int) -> Flops:
    """What our step multiplies on `rows` rows of `width` tokens.

    With d the width of the model, f that of its MLP, n the width of the batch, a block costs, forward, per row,

        n (8 d^2 + 4 d f) for its matrices (QKV, output, MLP)  +  4 n q d for attention by q queries (scores, weighted sum),

    and backward the same again for the matrices (weights are frozen: one product each) and 8 n q d for attention. The first
    block has no backward below its context vectors, where the first gate sits: minus n 6 d^2 and 8 n^2 d. The last block
    computes keys and values of all positions, n 4 d^2, and for the rest one position: 4 d^2 + 4 d f, and q = 1. Left out: the
    embeddings, norms, activations, gates, the head, the optimiser.
    """
    d, f, n, whole = config.hidden_size, config.intermediate_size, width, config.num_hidden_layers - 1
    matrices, attention = n * (8 * d**2 + 4 * d * f), 4 * n * n * d
    narrow = 4 * n * d**2 + 4 * d**2 + 4 * d * f
    return Flops(
        rows * (2 * whole * matrices - 6 * n * d**2 + 2 * narrow), rows * ((3 * whole - 2) * attention + 3 * 4 * n * d)
    )


def total_flops(config: BertConfig, widths: Int[Tensor, " step"], rows: int) -> int:
    """All of `step_flops` over batches of `rows` rows, of these widths."""
    return sum(sum(step_flops(config, rows, int(width))) for width in widths)


class Gemm:
    """One large product of the MLP's shape, `ROWS` x d_model x d_mlp; an example is one floating-point operation."""

    ROWS, TIMES = 4096, 4

    def __init__(self, config: BertConfig, dtype: torch.dtype) -> None:
        generator = torch.Generator().manual_seed(0)
        self.x = torch.randn(self.ROWS, config.hidden_size, generator=generator).to(dtype)
        self.weight = torch.randn(config.intermediate_size, config.hidden_size, generator=generator).to(dtype)
        self.examples = 2 * self.TIMES * self.ROWS * config.hidden_size * config.intermediate_size

    def ready(self) -> AbstractContextManager[object]:
        """Nothing."""
        return nullcontext()

    def run(self) -> None:
        """The product, a few times."""
        for _ in range(self.TIMES):
            torch.nn.functional.linear(self.x, self.weight)
