"""Streaming statistics of a model's activations: accumulated batch by batch, then frozen into what stands in for its units."""

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from hc_lens.data.batches import Encoded
from hc_lens.forward import device_of, inference, run_batch
from hc_lens.hooks import HookedModel, captured, mlp_point, z_point


class Accumulator:
    """Sums (float64) of every head's and MLP's activation over real positions, or a uniform sample of real tokens.

    Args:
        n_layers: blocks of the model.
        by_position: whether each position has a mean of its own.
        pool: how many tokens to sample instead of averaging; 0 for means.
        seed: of the sample.
    """

    def __init__(self, n_layers: int, *, by_position: bool, pool: int, seed: int) -> None:
        self.points = [(z_point(layer), mlp_point(layer)) for layer in range(n_layers)]
        self.tokens = 0
        self._by_position = by_position
        self._pool = pool
        self._generator = torch.Generator().manual_seed(seed)
        self._sums: dict[str, Tensor] = {}
        self._counts: Tensor | None = None
        self._kept: dict[str, Tensor] = {}
        self._keys: Tensor | None = None

    def update(self, seen: dict[str, Tensor], mask: Int[Tensor, "batch pos"]) -> None:
        """Add a batch: the activation at each point, and the attention mask that tells real positions from padding."""
        real = mask.bool()
        self.tokens += int(real.sum())
        self._count(real)
        chosen = self._choose(real) if self._pool else None
        for point, activation in seen.items():
            kept = torch.where(real.view(*real.shape, *(1,) * (activation.ndim - 2)), activation, 0).sum(0, dtype=torch.float64)
            if point in self._sums and len(kept) > len(self._sums[point]):
                self._sums[point] = _padded(self._sums[point], len(kept))
            elif point in self._sums:
                kept = _padded(kept, len(self._sums[point]))
            self._sums[point] = kept + self._sums.get(point, 0)
            if chosen is not None:
                new = torch.cat([self._kept[point], activation[real]]) if point in self._kept else activation[real]
                self._kept[point] = new[chosen.to(new.device)]

    def freeze(self) -> tuple[Float[Tensor, "layer *sample head d_head"], Float[Tensor, "layer *sample d_model"]]:
        """The statistics of the heads and of the MLPs, fp32, on the CPU."""
        of = self._kept.__getitem__ if self._pool else self._mean
        head, mlp = (torch.stack([of(pair[i]) for pair in self.points]).float().cpu() for i in (0, 1))
        return head, mlp

    def _mean(self, point: str) -> Tensor:
        total = self._sums[point].sum(0) / self.tokens
        if not self._by_position:
            return total
        assert self._counts is not None
        counts = self._counts.view(-1, *(1,) * total.ndim)
        # Positions no row reached have no mean of their own: they get the overall one.
        return torch.where(counts > 0, self._sums[point] / counts.clamp(min=1), total)

    def _count(self, real: Bool[Tensor, "batch pos"]) -> None:
        counts = real.sum(0)
        if self._counts is None:
            self._counts = counts
            return
        length = max(len(counts), len(self._counts))
        self._counts = _padded(self._counts, length) + _padded(counts, length)

    def _choose(self, real: Bool[Tensor, "batch pos"]) -> Int[Tensor, " token"]:
        # A random key for every token; the pool is the tokens with the smallest keys: a uniform sample of the stream.
        new = torch.rand(int(real.sum()), generator=self._generator)
        keys = new if self._keys is None else torch.cat([self._keys, new])
        chosen = keys.argsort()[: self._pool]
        self._keys = keys[chosen]
        return chosen


def _padded(tensor: Tensor, length: int) -> Tensor:
    return torch.cat([tensor, tensor.new_zeros(length - len(tensor), *tensor.shape[1:])])


def accumulate(model: HookedModel, encoded: Encoded, rows: Sequence[int], batch_size: int, into: Accumulator) -> None:
    """Run these rows through the model in eval mode, in batches of similar length, and add every batch to `into`."""
    order = sorted(rows, key=lambda row: int(encoded.lengths[row]))
    with inference(model), captured(model, [point for pair in into.points for point in pair]) as seen:
        for start in range(0, len(order), batch_size):
            batch = encoded.batch(order[start : start + batch_size]).to(device_of(model))
            run_batch(model, batch)
            into.update(seen, batch.attention_mask)
