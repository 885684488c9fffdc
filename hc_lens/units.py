"""The units a subnetwork keeps or ablates, and the axis names every shape annotation uses.

A unit is an attention head or a whole MLP. `Head(4, 0)` prints as `L4.H0`, `Mlp(4)` as `L4.MLP`; `parse` reads both back.
NamedTuples of different arity, so that a head never compares equal to an MLP.

Axis names (jaxtyping; a starred name stands for any number of axes):

| axis                     | meaning                                                                    |
|--------------------------|----------------------------------------------------------------------------|
| `layer`                  | blocks of the model                                                        |
| `head`                   | attention heads of a block                                                 |
| `unit`                   | gated units of a block: its heads in order, then its MLP (head + 1)        |
| `part`                   | the units of a block that one cut looks at: its heads, or its MLP          |
| `label`                  | output classes of a classifier                                             |
| `d_model`                | width of the residual stream                                               |
| `d_head`                 | width of one head's context vector                                         |
| `d_mlp`                  | width of an MLP's hidden layer                                             |
| `head_d_head`            | all heads' context vectors side by side; `qkv_head_d_head`: Q, K and V so  |
| `row`                    | rows of a split, in the order of the data                                  |
| `batch`                  | rows of a batch; of runs trained together, run after run                   |
| `pos`                    | token positions of a row, padding included; `wider`: with more padding     |
| `query`, `key`           | positions that attend and that are attended to                             |
| `relation`               | kinds of tokens that a token can attend to: see `attention_scores`         |
| `overlap`                | those of them that are words of the other sentence                         |
| `token`                  | tokens of all rows end to end, without padding                             |
| `mask_batch`, `mask_pos` | `batch` and `pos` of a mask not yet known to fit its ids; `type_` likewise |
| `run`                    | pruning runs (seeds) trained together or compared                          |
| `step`                   | optimiser steps                                                            |
| `target`                 | sparsities of a grid, ascending                                            |
| `micro`                  | micro-batches of a run: every step has `accumulation` of them              |
| `column`                 | columns of a table, such as those of a pruning history                     |
| `draw`                   | bootstrap samples or permutations                                          |
| `case`                   | in-domain and out-of-domain cases of a task                                |
| `count`                  | the values a count can take, 0 upwards                                     |
| `other_run`              | the subnetworks of a second set, compared with those of the first (`run`)  |
| `group`                  | sets of units whose ablations are compared                                 |
| `value`, `other`         | two samples of numbers whose means are compared                            |
| `residue`                | numbers modulo a prime: what goes into a network of modular arithmetic     |
| `log`                    | those of them that have a discrete logarithm, in its order                 |
| `frequency`              | of a discrete Fourier transform over one of these, 0 upwards               |
| `neuron`                 | hidden neurons of such a network                                           |
| `place`                  | points along the circle that its cosines run around: residues or logs      |
| `term`                   | the numbers that go into it at once                                        |
| `pair`                   | pairs of numbers, or of those trained on; `train`, `test`: the two parts   |
| `train`, `test`          | pairs that are trained on, and the others                                  |
| `task`, `unseen`         | coefficients (a, b) of tasks modulo p: of pre-training, and left out of it |
| `example`                | pairs (x, y) that the examples of sequences are drawn from                 |
| `shot`                   | examples of a sequence in their order; `earlier`: those before each        |
| `point`, `feature`       | what is projected to principal components, and its coordinates             |
| `fact`                   | facts of a relation, one subject each; `held_out`: those not trained on    |
| `subject`                | all subjects of a planted world                                            |
| `answer`                 | the answers of a relation, sorted                                          |
| `vocab`                  | tokens that a language model knows                                         |
| `depth`                  | tokens of an answer or a label, one after the other                        |
| `strength`               | inverse penalties of a probe that are tried                                |
| `*sample`                | none, positions, or pooled samples: see `ActivationMeans.kind`             |
| `*gates`                 | gates of any shape, each on its own                                        |
| `*runs`                  | gates of one run (no axis) or of several                                   |
| `*broadcast`             | axes of size 1 beside a gate, so that it multiplies an activation          |
| `*output`                | what a model or a metric returns for each row                              |
| `*columns`               | what belongs to a row and is resampled with it                             |
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


def subnetwork_name(seed: int | None, index: int) -> str:
    """What tables call the subnetwork at a place of a sequence: `"seed 42"`, or `"subnetwork 3"` if it has no seed."""
    return f"subnetwork {index}" if seed is None else f"seed {seed}"
