"""All pairs of numbers modulo a prime with what some rule makes of them, a training split, and corrupted labels."""

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isqrt
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

Rule = Callable[[Tensor, Tensor], Tensor]
"""From two integer tensors to one of the same shape, before the modulus: `operator.add`, `operator.mul`, a polynomial."""


LARGEST = 1_009
"""The largest modulus: all p^2 pairs are held at once."""


def require_prime(p: int) -> int:
    """The prime itself.

    Raises:
        ValueError: if `p` is not a prime, naming the nearest ones, or above `LARGEST`.
    """
    if p > LARGEST:
        raise ValueError(f"p must be a prime of at most {LARGEST}, since all p^2 pairs are computed, got {brief_number(p)}")
    if _is_prime(p):
        return p
    below = next((n for n in range(p - 1, 1, -1) if _is_prime(n)), None)
    above = next((n for n in range(max(p, 1) + 1, LARGEST + 1) if _is_prime(n)), None)
    near = " and ".join(str(n) for n in (below, above) if n is not None)
    raise ValueError(f"p must be a prime, got {p}; the nearest: {near}")


def brief_number(n: int) -> str:
    """A whole number, or how long it is."""
    return str(n) if n.bit_length() <= 64 else f"one of {n.bit_length()} bits"


def _is_prime(n: int) -> bool:
    return n > 1 and all(n % divisor for divisor in range(2, isqrt(n) + 1))


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
    n_train = int(alpha * len(pairs)) if 0 < alpha < 1 else 0
    if not 0 < n_train < len(pairs):
        raise ValueError(
            f"alpha, the share of {len(pairs)} pairs trained on, must be in (0, 1) and leave some on both sides, got {alpha}"
        )
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
    if not 0 <= xi <= 1:
        raise ValueError(f"xi, the share of training labels that is corrupted, must be in [0, 1], got {xi}")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(len(labels), generator=generator)[: int(xi * len(labels))]
    corrupted = torch.zeros(len(labels), dtype=torch.bool)
    corrupted[chosen] = True
    given = labels.clone()
    given[chosen] = torch.randint(p, (len(chosen),), generator=generator)
    return Corrupted(given, corrupted)
