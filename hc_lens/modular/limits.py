"""What a modulus, a share of pairs and a share of labels may be."""

from math import isqrt

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


def train_size(share: float, n_pairs: int, name: str = "alpha") -> int:
    """How many of so many pairs are trained on: int(share n).

    Raises:
        ValueError: with the share's name, if it is not in (0, 1), or leaves either part empty.
    """
    n_train = int(share * n_pairs) if 0 < share < 1 else 0
    if not 0 < n_train < n_pairs:
        raise ValueError(
            f"{name}, the share of {n_pairs} pairs trained on, must be in (0, 1) and leave some on both sides, got {share}"
        )
    return n_train


def require_xi(xi: float) -> None:
    """Refuse a share of corrupted labels that is none.

    Raises:
        ValueError: if it is not in [0, 1].
    """
    if not 0 <= xi <= 1:
        raise ValueError(f"xi, the share of training labels that is corrupted, must be in [0, 1], got {xi}")


def require_tasks(p: int, n_tasks: int, *, fours: bool = False) -> None:
    """Refuse a number of in-context tasks that there is no room for, or that is not made of fours where it has to be.

    Raises:
        ValueError: naming the number.
    """
    if not 0 < n_tasks < p * p:
        raise ValueError(
            f"n_tasks must be in 1..{p * p - 1}, for one at least of the {p * p} tasks modulo {p} is left out, got {n_tasks}"
        )
    if fours and n_tasks % 4:
        raise ValueError(f"n_tasks must be a multiple of 4, for tasks come in fours by the parallelogram rule, got {n_tasks}")
