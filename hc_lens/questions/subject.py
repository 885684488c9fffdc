"""What questions are asked of: pruning runs of one model, or a fine-tuning run, with model and rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal

from hc_lens.atomic import RunError

if TYPE_CHECKING:
    from hc_lens.data.task import Task
    from hc_lens.means import ActivationMeans
    from hc_lens.models import Classifier
    from hc_lens.pruning.pruned import Pruned
    from hc_lens.questions.kept_core import CoreSummary
    from hc_lens.runs import Run
    from hc_lens.sample import Sample
    from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class Subject:
    """A fine-tuning run, or pruning runs of one model: several sparsities are read together, and the first keeps what is asked.

    Attributes:
        pruned: the pruning runs, those of which every seed collapsed included.
        finetuned: the fine-tuning run that the model is of, if that is known.
        load: gives model and task, once they are needed.
    """

    pruned: tuple[Pruned, ...]
    finetuned: Run | None
    load: Callable[[], tuple[Classifier, Task]]

    @cached_property
    def _loaded(self) -> tuple[Classifier, Task]:
        model, task = self.load()
        if self.pruned:
            self.means.require_model(model)
        return model, task

    @property
    def model(self) -> Classifier:
        """The full model."""
        return self._loaded[0]

    @property
    def task(self) -> Task:
        """The rows that the run was made with."""
        return self._loaded[1]

    @property
    def alive(self) -> tuple[Pruned, ...]:
        """The pruning runs that have subnetworks."""
        return tuple(each for each in self.pruned if each.subnetworks)

    @property
    def home(self) -> Run:
        """Where answers are kept."""
        return self.place("prune" if self.pruned else "finetune")

    def place(self, kind: Literal["prune", "finetune"]) -> Run:
        """The run of this kind.

        Raises:
            RunError: if there is none.
        """
        if kind == "finetune":
            if self.finetuned is None:
                raise RunError(f"{self.home.path} is of a model that no fine-tuning run is known of: this is asked of one")
            return self.finetuned
        if not self.pruned and self.finetuned is not None:
            raise RunError(f"{self.finetuned.path} is a fine-tuning run: this is asked of a pruning run (hc-lens prune)")
        return self.alive[0].run

    @property
    def means(self) -> ActivationMeans:
        """What stands in for ablated units."""
        return self.first.means

    @property
    def first(self) -> Pruned:
        """The first pruning run that has subnetworks."""
        self.place("prune")
        return self.alive[0]

    @property
    def subnetworks(self) -> tuple[Subnetwork, ...]:
        """Those of all runs."""
        return tuple(sub for each in self.pruned for sub in each.subnetworks)

    @property
    def core(self) -> CoreSummary:
        """The heads that the subnetworks share, as the run keeps them.

        Raises:
            RunError: if the core was not found yet, or is of other subnetworks than the run holds now.
        """
        from hc_lens.questions.kept_core import open_core, open_core_of

        return open_core_of(self.alive) if len(self.alive) > 1 else open_core(self.place("prune"))

    @property
    def _length(self) -> int | None:
        """What pairs were cut at in pruning; a fine-tuning run has none."""
        return self.pruned[0].config.max_length if self.pruned else None

    def options(self, sample: Sample) -> dict[str, object]:
        """What of a sample decides what is measured in the run, JSON-ready."""
        return sample.options_beside(self._length, self.task)

    def settled(self, sample: Sample) -> Sample:
        """The sample with the run's own length, where it names none, and the precision that "auto" comes to in it."""
        if sample.max_length is None:
            sample = replace(sample, max_length=self._length)
        return sample if sample.precision != "auto" else sample.settled(self.home, self.model)
