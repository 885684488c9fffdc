"""How a pruning run is kept while it is made: what its directory is told beside its specification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hc_lens.origin import Origin
    from hc_lens.precision import Resolved


@dataclass(frozen=True)
class Keeping:
    """What a run that trains gates is told beside what it computes.

    Attributes:
        origin: where model and task lie, so that commands and later calls need only the directory.
        every: seconds after which gates in training are kept again, for a killed call to go on from.
        auto: what precision "auto" comes to where the run has not decided yet; None: what is faster here.
    """

    origin: Origin | None = None
    every: float = 30.0
    auto: Resolved | None = None


ALONE = Keeping()
"""A run that nothing is told."""
