"""What this machine can do: how fast it multiplies matrices in bfloat16 beside float32, and how much memory it has.

Speed is measured when asked, once per process and shape.
"""

import math
import os
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

_WIDEST = 1024
"""Wider models are measured at this width, where products have long reached their rate."""
_PROBE = 4_000_000
"""Multiplications of the first, small product: a tenth of a millisecond where products are fast, 10 ms where they are not."""
_HOPELESS = 0.5
"""From so many times slower on in the small product, nothing larger is tried: it might take seconds."""
_MOST = 500_000_000
"""Multiplications of a block's products, forward and backward, at most; then fewer tokens are taken, but not below these."""
_FEWEST_TOKENS = 128
_ROUNDS, _ENOUGH = 8, 0.2
"""Rounds that are timed, and seconds after which three have to do."""


class Products(NamedTuple):
    """The products of one block on one batch: what `hc_lens.models.fused_blocks` multiplies, and how it lays it out."""

    d_model: int
    d_head: int
    heads: int
    d_mlp: int
    rows: int
    length: int

    @property
    def weights(self) -> int:
        """Of the four matrices: QKV, output, and the MLP's two."""
        return self.d_model * (4 * self.heads * self.d_head + 2 * self.d_mlp)

    def measurable(self) -> "Products":
        """The same products, made few and narrow enough for a measurement of milliseconds."""
        share = min(1.0, _WIDEST / self.d_model)
        narrow = self._replace(
            d_model=round(self.d_model * share),
            heads=max(1, round(self.heads * share)),
            d_mlp=max(1, round(self.d_mlp * share)),
        )
        tokens = max(_FEWEST_TOKENS, _MOST // (3 * narrow.weights))
        length = min(self.length, tokens)
        return narrow._replace(rows=max(1, min(self.rows, tokens // length)), length=length)


def memory_gib(device: torch.device) -> float:
    """All the memory of a device, used or not; of the CPU's, what a container may use. Infinite where that cannot be told."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory / 2**30
    try:
        physical = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return math.inf
    limit = Path("/sys/fs/cgroup/memory.max")
    allowed = limit.read_text(encoding="ascii").strip() if limit.is_file() else "max"
    return min(physical, int(allowed) if allowed.isdecimal() else physical) / 2**30


@cache
def bf16_speedup(products: Products) -> float:
    """How many times faster bfloat16 is than float32, forward and backward, on one thread of the CPU.

    The two take turns, the fastest round of each counts, and only the time that the thread computes: a busy machine slows what
    it pleases, and several threads would wait for one another.
    """
    few = products.measurable()
    with _one_thread(), torch.enable_grad():
        if 3 * few.weights * few.rows * few.length > 3 * _PROBE:
            ratio = _fastest(_small(few, torch.float32), _small(few, torch.bfloat16))
            if ratio < _HOPELESS:
                return ratio
        return _fastest(_block(few, torch.float32), _block(few, torch.bfloat16))


@contextmanager
def _one_thread() -> Generator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _fastest(single: Callable[[], object], half: Callable[[], object]) -> float:
    """Seconds of the fastest round of the first over those of the second."""
    works = (single, half)
    for work in works:  # the first call sets kernels up
        work()
    best, began = [float("inf")] * 2, time.thread_time()
    for done in range(_ROUNDS):
        if done >= 3 and time.thread_time() - began > _ENOUGH:
            break
        for place in (0, 1) if done % 2 else (1, 0):
            start = time.thread_time()
            works[place]()
            best[place] = min(best[place], time.thread_time() - start)
    return best[0] / best[1]


def _small(products: Products, dtype: torch.dtype) -> Callable[[], object]:
    width = min(products.d_model, 512)
    tokens = min(products.rows * products.length, max(16, _PROBE // width**2))
    x, weight = (torch.full((n, width), 0.01, dtype=dtype) for n in (tokens, width))
    return lambda: functional.linear(x, weight)


def weights_as_fused(products: Products, dtype: torch.dtype) -> list[Float[Tensor, "output input"]]:
    """QKV, output and MLP matrices, laid out as fused blocks have them: float32 ones as views of TransformerLens's."""
    d, inner, f = products.d_model, products.heads * products.d_head, products.d_mlp
    kept = [torch.full(shape, 0.01) for shape in ((3 * inner, d), (inner, d), (d, f), (f, d))]
    views = [kept[0], *(each.T for each in kept[1:])]
    return views if dtype == torch.float32 else [view.to(dtype).contiguous() for view in views]


def _block(products: Products, dtype: torch.dtype) -> Callable[[], object]:
    """The products of a block, each with its gradients: those with the weights, and attention's two."""

    def values(*shape: int) -> Tensor:
        return torch.full(shape, 0.01, dtype=dtype).requires_grad_()

    tokens, attended = products.rows * products.length, (products.rows, products.heads, products.length, products.d_head)
    weights = [weight.requires_grad_() for weight in weights_as_fused(products, dtype)]
    pairs = [(values(tokens, weight.shape[1]), weight, values(tokens, weight.shape[0]).detach()) for weight in weights]
    q, k, v, context = (values(*attended) for _ in range(4))

    def run() -> None:
        for x, weight, gradient in pairs:
            torch.autograd.grad(functional.linear(x, weight), (x, weight), gradient)
        torch.autograd.grad((q @ k.mT) @ v, (q, k, v), context.detach())

    return run
