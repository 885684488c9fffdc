"""Seeds x sparsities x checkpoints x tasks as jobs whose results lie where their contents say."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from hc_lens.runs import digest

if TYPE_CHECKING:
    from hc_lens.origin import Origin
    from hc_lens.pruning import PruneConfig
    from hc_lens.sample import Measuring
    from hc_lens.sweep.prune_job import PruneJob


@dataclass(frozen=True)
class SweepConfig:
    """What a sweep does with each of its sources.

    Attributes:
        configs: one for each sparsity; with `grid` a single one, whose run rises through the grid's sparsities.
        seeds: one subnetwork each, for every source and sparsity.
        seeds_per_job: how many a worker takes at a time; None: all, or fewer where there would be less jobs than workers.
    """

    configs: tuple[PruneConfig, ...]
    seeds: tuple[int, ...]
    measuring: Measuring
    grid: tuple[float, ...] | None = None
    seeds_per_job: int | None = None

    def __post_init__(self) -> None:
        if not self.configs or (self.grid is not None and len(self.configs) != 1):
            raise ValueError(f"configs: needs one for each sparsity, or a single one with a grid, got {len(self.configs)}")
        if self.seeds_per_job is not None and self.seeds_per_job < 1:
            raise ValueError(f"seeds_per_job: must be at least 1, got {self.seeds_per_job}")

    def spec(self, sources: Sequence[Origin], base: Path) -> dict[str, object]:
        """The whole sweep as JSON, with places relative to `base`."""
        return {
            "sources": [source.as_json(base) for source in sources],
            "configs": [config.as_dict() for config in self.configs],
            "grid": None if self.grid is None else list(self.grid),
            "seeds": list(self.seeds),
            "seeds_per_job": self.seeds_per_job,
            "measuring": asdict(self.measuring),
        }


def plan(config: SweepConfig, sources: Sequence[Origin], store: Path, workers: int) -> list[PruneJob]:
    """The jobs of a sweep, in the order of sources, sparsities and seeds.

    Results lie in `store`, in directories named by the digest of weights, rows and configuration: what another sweep has
    computed there is not computed again, and whatever differs has a directory of its own.
    """
    from hc_lens.sweep.prune_job import PruneJob, split

    pairs = len(sources) * len(config.configs)
    groups = (
        split(config.seeds, pairs, workers)
        if config.seeds_per_job is None
        else split(config.seeds, 1, -(-len(config.seeds) // config.seeds_per_job))
    )
    return [
        PruneJob(
            source,
            store / f"{'prune' if config.grid is None else 'prune-path'}-{digest(_pruning(source, config, each))[:12]}",
            store / f"means-{digest(_means(source, config, each))[:12]}",
            each,
            group,
            config.measuring,
            config.grid,
        )
        for source in sources
        for each in config.configs
        for group in groups
    ]


def _means(source: Origin, config: SweepConfig, prune: PruneConfig) -> dict[str, object]:
    """What decides the stand-ins."""
    return {
        "weights": source.weights,
        "rows": source.rows,
        "means_rows": config.measuring.means_rows,
        "max_length": prune.max_length,
    }


def _pruning(source: Origin, config: SweepConfig, prune: PruneConfig) -> dict[str, object]:
    """What decides a subnetwork, besides its seed."""
    grid = None if config.grid is None else list(config.grid)
    return {"means": _means(source, config, prune), "config": prune.as_dict(), "grid": grid}
