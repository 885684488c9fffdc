"""The units a subnetwork keeps or ablates, and the axis names every shape annotation uses.

A unit is an attention head or a whole MLP. `Head(4, 0)` prints as `L4.H0`, `Mlp(4)` as `L4.MLP`; `parse` reads both back.
NamedTuples of different arity, so that a head never compares equal to an MLP.

Axis names (jaxtyping):

| axis      | meaning                                                             |
|-----------|---------------------------------------------------------------------|
| `run`     | pruning runs (seeds) trained together                                 |
| `layer`   | blocks of the model                                                  |
| `head`    | attention heads of a block                                           |
| `unit`    | gated units of a block: its heads in order, then its MLP (head + 1)  |
| `batch`   | rows of a batch                                                      |
| `pos`     | token positions of a row, padding included                           |
| `row`     | rows of a split, in the order of the data                            |
| `label`   | output classes of a classifier                                       |
| `d_head`  | width of one head's context vector                                   |
| `d_model` | width of the residual stream                                         |
"""

import re
from collections.abc import Iterable
from typing import NamedTuple

_HEAD = re.compile(r"L(\d+)\.H(\d+)")
_MLP = re.compile(r"L(\d+)\.MLP")


class Head(NamedTuple):
    """Attention head `index` of block `layer`, both counted from 0."""

    layer: int
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]  # hides tuple.index, which a head has no use for

    def __str__(self) -> str:
        return f"L{self.layer}.H{self.index}"


class Mlp(NamedTuple):
    """The MLP of block `layer`, counted from 0."""

    layer: int

    def __str__(self) -> str:
        return f"L{self.layer}.MLP"


Unit = Head | Mlp


def parse(text: str) -> Unit:
    """Read a unit's name: `L4.H0` or `L4.MLP`.

    Raises:
        ValueError: if the text is neither.
    """
    if match := _HEAD.fullmatch(text.strip()):
        return Head(int(match[1]), int(match[2]))
    if match := _MLP.fullmatch(text.strip()):
        return Mlp(int(match[1]))
    raise ValueError(f"not a unit: {text!r}; write a head as L4.H0 and an MLP as L4.MLP")


def require_in_model(units: Iterable[Unit], n_layers: int, n_heads: int) -> None:
    """Check that every unit exists in a model of `n_layers` blocks with `n_heads` heads each.

    Raises:
        ValueError: naming the first unit out of range and the allowed range.
    """
    for unit in units:
        inside = 0 <= unit.layer < n_layers and (not isinstance(unit, Head) or 0 <= unit.index < n_heads)
        if not inside:
            raise ValueError(
                f"{unit} is not in this model: layers are 0..{n_layers - 1}, heads are 0..{n_heads - 1} in each layer"
            )
