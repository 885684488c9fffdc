"""Random head sets to compare a set of heads with: of the same size, from the same layers."""

from collections.abc import Collection

import numpy as np

from hc_lens.units import Head, require_in_model

_TRIES = 20  # draws per wanted set before giving up on finding another different one


def layer_matched_sets(
    heads: Collection[Head],
    n_sets: int,
    *,
    n_layers: int,
    n_heads: int,
    exclude: Collection[Head] = (),
    seed: int = 0,
) -> list[tuple[Head, ...]]:
    """Random sets of as many heads as `heads`, as many from each layer, none of them in `heads` or `exclude`.

    A layer with too few other heads is made up for from the nearest layers, the earlier of two equally near ones first. The
    sets differ from each other; there are fewer than `n_sets` if the model does not hold (or chance does not find) so many.

    Raises:
        ValueError: if `heads` is empty or out of range, `n_sets` is negative, or the model has too few other heads.
    """
    if not heads:
        raise ValueError("layer_matched_sets needs at least one head to match, got none")
    if n_sets < 0:
        raise ValueError(f"n_sets must not be negative, got {n_sets}")
    require_in_model(heads, n_layers, n_heads)
    barred = {*heads, *exclude}
    free = [[Head(layer, i) for i in range(n_heads) if Head(layer, i) not in barred] for layer in range(n_layers)]
    if (available := sum(map(len, free))) < len(set(heads)):
        raise ValueError(
            f"{len(set(heads))} heads to match, but only {available} of the model's {n_layers * n_heads} are not excluded"
        )
    wanted = np.bincount([head.layer for head in set(heads)], minlength=n_layers).tolist()
    generator = np.random.default_rng(seed)
    found: dict[tuple[Head, ...], None] = {}
    for _ in range(_TRIES * n_sets):
        if len(found) == n_sets:
            break
        found[_one_set(wanted, free, generator)] = None
    return list(found)


def _one_set(wanted: list[int], free: list[list[Head]], generator: np.random.Generator) -> tuple[Head, ...]:
    shuffled = [[layer[i] for i in generator.permutation(len(layer))] for layer in free]
    # Every layer first serves itself: a neighbour's shortage must not take what the layer needs.
    chosen = [head for count, layer in zip(wanted, shuffled, strict=True) for head in layer[:count]]
    left = [layer[count:] for count, layer in zip(wanted, shuffled, strict=True)]
    for home, (count, layer) in enumerate(zip(wanted, free, strict=True)):
        for _ in range(count - len(layer)):
            nearest = min((other for other in range(len(left)) if left[other]), key=lambda other: (abs(other - home), other))
            chosen.append(left[nearest].pop(0))
    return tuple(sorted(chosen))
