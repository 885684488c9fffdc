"""Which pairs go where: seeded samples, sentences held out of training, and pairs that would leak."""

import random
from collections.abc import Container, Sequence
from dataclasses import replace

import numpy as np

from hc_lens.data.task import Split, Task
from hc_lens.limits import require_at_least_one


def normalised(text: str) -> str:
    """The text as compared for leaks: lower case, single spaces."""
    return " ".join(text.casefold().split())


def sample(split: Split, n: int, seed: int) -> Split:
    """A seeded random sample of at most `n` rows, in the order of the data.

    Raises:
        ValueError: if `n` is below 1.
    """
    require_at_least_one(f"rows of a sample of split {split.name!r}", n)
    if n >= len(split):
        return split
    # A text seed per split: equally long cases of one task do not get the same row numbers.
    return split.take(sorted(random.Random(f"{seed} {split.name}").sample(range(len(split)), n)))


def some_rows(n: int, max_rows: int | None, seed: int) -> list[int]:
    """At most `max_rows` random rows of `n`, ascending; all of them where it is None.

    Raises:
        ValueError: if `max_rows` is below 1.
    """
    require_at_least_one("max_rows", max_rows)
    if max_rows is None or n <= max_rows:
        return list(range(n))
    return sorted(np.random.default_rng(seed).permutation(n)[:max_rows].tolist())


def limited(task: Task, seed: int, *, train: int | None = None, in_domain: int | None = None, ood: int | None = None) -> Task:
    """The task with seeded samples of at most so many rows of its training split and of each case; None: all.

    Raises:
        ValueError: if a limit is below 1.
    """

    def of(split: Split, n: int | None) -> Split:
        return split if n is None else sample(split, n, seed)

    return replace(
        task,
        train=of(task.train, train),
        in_domain={case: of(split, in_domain) for case, split in task.in_domain.items()},
        ood={case: of(split, ood) for case, split in task.ood.items()},
    )


def hold_out(split: Split, n_first: int, seed: int, name: str) -> tuple[Split, Split]:
    """Split by first sentence: the rows that stay, and those of `n_first` random first sentences, called `name`.

    No first sentence is on both sides.

    Raises:
        ValueError: unless both sides get at least one first sentence.
    """
    firsts = sorted({normalised(text) for text in split.first})
    if not 1 <= n_first < len(firsts):
        raise ValueError(
            f"cannot hold {n_first} first sentences out of split {split.name!r}, which has {len(firsts)}: "
            f"at least 1 must be held out and 1 must stay"
        )
    chosen = set(random.Random(f"{seed} {name}").sample(firsts, n_first))
    held = [i for i, text in enumerate(split.first) if normalised(text) in chosen]
    return without_firsts(split, chosen), split.take(held, name)


def without_firsts(split: Split, firsts: Container[str]) -> Split:
    """The rows whose normalised first sentence is not among `firsts`."""
    return split.take([i for i, text in enumerate(split.first) if normalised(text) not in firsts])


def without_repeats(split: Split) -> Split:
    """The rows without exact repeats of an earlier pair (normalised), whatever their labels."""
    first_seen: dict[tuple[str, str], int] = {}
    for i, (first, second) in enumerate(zip(split.first, split.second, strict=True)):
        first_seen.setdefault((normalised(first), normalised(second)), i)
    return split.take(list(first_seen.values()))


def join(splits: Sequence[Split], name: str) -> Split:
    """The rows of all the splits, which share their labels and scoring rule, in order.

    Raises:
        ValueError: if the splits differ in labels or scoring rule.
    """
    head = splits[0]
    for other in splits[1:]:
        if (other.label_names, other.collapse) != (head.label_names, head.collapse):
            raise ValueError(
                f"cannot join split {other.name!r} {other.label_names} to {head.name!r} {head.label_names}: "
                "their labels and scoring rule must be the same"
            )
    return Split(
        name=name,
        first=tuple(text for split in splits for text in split.first),
        second=tuple(text for split in splits for text in split.second),
        labels=tuple(label for split in splits for label in split.labels),
        label_names=head.label_names,
        collapse=head.collapse,
    )
