"""Which heads a command is about: those that --heads names, else the core of the run."""

from collections.abc import Sequence

from hc_lens.stages import Pruned, open_core
from hc_lens.units import Head, parse, require_in_model


def chosen_heads(pruned: Pruned, words: Sequence[str]) -> tuple[Head, ...]:
    """The heads named by `words`, each once; without words, the core kept in the run.

    Raises:
        RunError: without words, if the run has no core yet.
        ValueError: for a unit that is no head or not in the model, or an empty core.
    """
    units = [parse(word) for word in words]
    if other := [unit for unit in units if not isinstance(unit, Head)]:
        raise ValueError(f"--heads {other[0]}: only heads can be given, as L4.H0")
    named = tuple(dict.fromkeys(unit for unit in units if isinstance(unit, Head)))
    heads = named or open_core(pruned.run).heads
    require_in_model(heads, pruned.means.n_layers, pruned.means.n_heads)
    if not heads:
        raise ValueError(f"{pruned.run.path}: the core is empty; find one with a smaller --k, or give --heads")
    return heads
