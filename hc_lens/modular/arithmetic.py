"""All pairs of numbers modulo a prime with what some rule makes of them, a training split, and corrupted labels."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hc_lens.modular.limits import require_prime, require_xi, train_size

Rule = Callable[[Tensor, Tensor], Tensor]
"""From two integer tensors to one of the same shape, before the modulus: `operator.add`, `operator.mul`, a polynomial."""


@dataclass(frozen=True, eq=False)
class Pairs:
    """All p^2 pairs (a, b) modulo `p`, b running fastest, and the true answer to each."""

    p: int
    a: Int[Tensor, " pair"] = field(repr=False)
    b: Int[Tensor, " pair"] = field(repr=False)
    target: Int[Tensor, " pair"] = field(repr=False)

    @property
    def numbers(self) -> Int[Tensor, "pair 2"]:
        """The pairs as rows, as a network of two terms takes them."""
        return torch.stack([self.a, self.b], dim=1)

    def __len__(self) -> int:
        return len(self.target)


def all_pairs(p: int, rule: Rule = operator.add) -> Pairs:
    """All pairs with target rule(a, b) mod p.

    Raises:
        ValueError: if `p` is not a prime.
    """
    numbers = torch.arange(require_prime(p))
    a, b = numbers.repeat_interleave(p), numbers.repeat(p)
    return Pairs(p, a, b, rule(a, b) % p)


class PairSplit(NamedTuple):
    """Places among all pairs, ascending: those trained on, and the rest."""

    train: Int[Tensor, " train"]
    test: Int[Tensor, " test"]


def split_pairs(pairs: Pairs, alpha: float, seed: int) -> PairSplit:
    """A random int(alpha p^2) of the pairs for training, the others for testing.

    Raises:
        ValueError: if alpha is not in (0, 1), or leaves either part empty.
    """
    n_train = train_size(alpha, len(pairs))
    order = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed))
    return PairSplit(order[:n_train].sort().values, order[n_train:].sort().values)


class Corrupted(NamedTuple):
    """Labels of which some were drawn anew, and which those are."""

    labels: Int[Tensor, " pair"]
    corrupted: Bool[Tensor, " pair"]


def corrupt(labels: Int[Tensor, " pair"], p: int, xi: float, seed: int) -> Corrupted:
    """Replace a random int(xi n) of n labels by uniform draws from 0..p-1 (Doshi et al. 2023, section 2).

    A drawn label is the true one once in p times: such a pair counts as corrupted.

    Raises:
        ValueError: if xi is not in [0, 1], or `p` is not a prime.
    """
    require_prime(p)
    require_xi(xi)
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: int(xi * len(labels))]
    corrupted = torch.zeros(len(labels), dtype=torch.bool)
    corrupted[chosen] = True
    given = labels.clone()
    given[chosen] = torch.randint(p, (len(chosen),), generator=generator)
    return Corrupted(given, corrupted)
