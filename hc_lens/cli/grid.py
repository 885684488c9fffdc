"""What the commands over checkpoints and sparsities share: how they are chosen, and asked about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import tyro

from hc_lens.cli import output
from hc_lens.cli.ask import opened
from hc_lens.cli.options import Common, PoolChoice, Seeds
from hc_lens.cli.prune_options import PruneOptions
from hc_lens.limits import Count, Natural
from hc_lens.questions.grid import Grid
from hc_lens.questions.opened import OpenRun
from hc_lens.questions.question import Question
from hc_lens.runs import Run, RunError
from hc_lens.sample import Measuring, Sample


@dataclass(frozen=True)
class PruneChoice:
    """How checkpoints are pruned and measured."""

    seeds: Seeds = (42, 43, 44)
    """One subnetwork each, at every checkpoint and sparsity: 42..44, or a list."""
    pruning: tyro.conf.OmitArgPrefixes[PruneOptions] = field(default_factory=PruneOptions)
    means_rows: Count | None = 10_000
    """Random training rows that the stand-ins are collected on, anew for every checkpoint; None for all."""
    max_rows: Count | None = None
    """Rows of each case when evaluating; all by default."""
    seed: Natural = 0
    """Draws the rows where --max-rows limits them, and permutations where there are some."""
    batch_size: Count = 64
    """Rows in one forward pass when evaluating."""
    pool: tyro.conf.OmitArgPrefixes[PoolChoice] = field(default_factory=PoolChoice)

    @property
    def sample(self) -> Sample:
        """The rows of the evaluation."""
        return Sample(self.max_rows, self.seed, batch_size=self.batch_size)

    @property
    def measuring(self) -> Measuring:
        """The rows for means and evaluation."""
        return Measuring(means_rows=self.means_rows, max_rows=self.max_rows, batch_size=self.batch_size, seed=self.seed)

    def grid(self, sparsities: Sequence[float], steps: Sequence[int], common: Common, path: bool = False) -> Grid:
        """The checkpoints at these steps, pruned at these sparsities."""
        configs = tuple(map(self.pruning.config, sparsities))
        pool = self.pool.on(common.device)
        return Grid(configs, self.seeds, tuple(steps), path, self.means_rows, common.out, pool)


@dataclass(frozen=True)
class GridChoice(PruneChoice):
    """Which sparsities, besides how they are pruned and measured."""

    sparsities: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    """Shares of units to remove."""
    path: bool = False
    """One run per seed whose target rises through all sparsities, in place of a run for each: far cheaper, and not the same."""

    def ascending(self) -> list[float]:
        """The sparsities in order.

        Raises:
            ValueError: if there are none, one comes twice, or the preset cannot cut along a path.
        """
        if not self.sparsities or len(set(self.sparsities)) != len(self.sparsities):
            raise ValueError(f"--sparsities: at least one, all different, got {list(self.sparsities)}")
        if self.path and self.pruning.preset == "paper":
            raise ValueError(
                "--path cuts exactly (top-k) as the target rises, which the preset paper does not: drop one of them"
            )
        return sorted(self.sparsities)


def finetuning_run(finetuned: str, command: str, device: str) -> OpenRun:
    """The fine-tuning run that a command names.

    Raises:
        RunError: if it is not a fine-tuning run.
        ValueError: if none is named.
    """
    if not finetuned:
        raise ValueError(f"no FINETUNED given: name a fine-tuning run (see hc-lens {command} --help)")
    if (kind := Run.open(Path(finetuned)).kind) != "finetune":
        raise RunError(f"{finetuned} holds a {kind!r} run, not a fine-tuning run")
    return opened([Path(finetuned)], device, "finetune")


def ask_of(run: OpenRun, question: Question, choice: PruneChoice, out: Path | None) -> None:
    """Ask a question of a fine-tuning run; tables and figures go to the directory of its pruning runs, too."""
    answer = question.ask(run, choice.sample)
    directory = out or run.place("finetune").path / "grid"
    output.answer(answer, directory)
    output.headline(directory, answer.short)
