"""Which tasks z = a x + b y mod p a model is pre-trained on, and from which pairs (x, y) it sees examples."""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hc_lens.modular.arithmetic import all_pairs, split_pairs
from hc_lens.modular.limits import require_tasks

_RESTARTS = 50


@dataclass(frozen=True, eq=False)
class TaskSplit:
    """Coefficients (a, b) of the tasks of pre-training, and of those left out of it: in-distribution and out of it."""

    p: int
    seen: Int[Tensor, "task 2"] = field(repr=False)
    unseen: Int[Tensor, "unseen 2"] = field(repr=False)


class ExampleSplit(NamedTuple):
    """Pairs (x, y): those that pre-training draws its examples from, the same for every task, and the others."""

    train: Int[Tensor, "train 2"]
    test: Int[Tensor, "test 2"]


def random_tasks(p: int, n_tasks: int, seed: int) -> TaskSplit:
    """So many of the p^2 tasks, drawn at random.

    Raises:
        ValueError: if p is not a prime, or there are not so many tasks and one more to leave out.
    """
    everything = all_pairs(p).numbers
    require_tasks(p, n_tasks)
    order = torch.randperm(p * p, generator=torch.Generator().manual_seed(seed))
    return TaskSplit(p, everything[order[:n_tasks]], everything[order[n_tasks:]])


def parallelogram_tasks(p: int, n_tasks: int, seed: int) -> TaskSplit:
    """Tasks in fours, (a, b), (a, y), (x, b) and (x, y): every coefficient is seen in two tasks at least (section 3).

    Each four is drawn from those that are still whole. Where none is left before there are enough tasks, the draw starts anew,
    a bounded number of times.

    Raises:
        ValueError: if p is not a prime, `n_tasks` is no multiple of 4, there are fewer than p^2 tasks to choose from, or no
            draw found so many.
    """
    everything = all_pairs(p).numbers
    require_tasks(p, n_tasks, fours=True)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(_RESTARTS):
        used = _fours(p, n_tasks // 4, generator)
        if used is not None:
            left = (~used.flatten()).nonzero().flatten()
            left = left[torch.randperm(len(left), generator=generator)]
            return TaskSplit(p, everything[used.flatten()], everything[left])
    raise ValueError(f"no draw found {n_tasks} tasks modulo {p} by the parallelogram rule; ask for fewer, or for random ones")


def split_examples(p: int, fraction: float, seed: int) -> ExampleSplit:
    """A random `fraction` of the p^2 pairs (x, y) for training, the others for testing.

    Raises:
        ValueError: if p is not a prime, or the fraction is not in (0, 1) or leaves a side empty.
    """
    pairs = all_pairs(p)
    train, test = split_pairs(pairs, fraction, seed)
    return ExampleSplit(pairs.numbers[train], pairs.numbers[test])


def _fours(p: int, n: int, generator: torch.Generator) -> Bool[Tensor, "residue residue"] | None:
    """The tasks of n disjoint fours; None where the draw ran into a dead end."""
    used = torch.zeros(p, p, dtype=torch.bool)
    for _ in range(n):
        for corner in torch.randperm(p * p, generator=generator).tolist():
            a, b = divmod(corner, p)
            # opposite corners (x, y) whose four is free; its other two corners share a row and a column with (a, b)
            free = ~(used | used[a][None, :] | used[:, b][:, None])
            free[a], free[:, b] = False, False
            if not used[a, b] and free.any():
                choices = free.nonzero()
                x, y = choices[torch.randint(len(choices), (), generator=generator)].tolist()
                used[[a, a, x, x], [b, y, b, y]] = True
                break
        else:
            return None
    return used
