"""When is the heuristic core there: before the model generalizes, or with it?"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from hc_lens import analysis, figures, report
from hc_lens.limits import Count
from hc_lens.prose import p_text
from hc_lens.pruning import PruneConfig, open_pruned
from hc_lens.pruning.members import digest_of
from hc_lens.questions.grid import Grid, grid_options
from hc_lens.questions.kept_core import core_of
from hc_lens.questions.question import Answer, Question
from hc_lens.sweep import AtCheckpoint, over_checkpoints, subnetworks_by_step
from hc_lens.train import evaluations

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.questions.subject import Subject
    from hc_lens.sample import Sample


@dataclass(frozen=True)
class Emergence(Question):
    """Prune every checkpoint of a fine-tuning run: how much of the final core each has, before generalization and after."""

    k: Count | None = None
    """A core head is kept by at least so many of the final subnetworks; all by default."""
    core: tuple[Path, ...] = ()
    """Pruning runs of the final model whose core to follow, such as one of more seeds; by default that of the last checkpoint's
    own subnetworks, which hold it by construction."""
    level: float = 0.75
    """Accuracy out of domain that marks the onset of generalization."""
    onset_cases: tuple[str, ...] = ()
    """Cases that the onset is judged on, as many of each label; all out-of-domain ones by default."""
    stays: bool = False
    """Accuracy must stay above the level after the onset."""
    grid: Grid = field(default_factory=lambda: Grid((PruneConfig.desk(0.5),)))
    """Which checkpoints, the last among them, and how they are pruned: at one sparsity."""

    name: ClassVar[str] = "emergence"
    tables: ClassVar[tuple[str, ...]] = (
        *("emergence", "emergence_by_seed", "cores_by_checkpoint", "core_heads_by_checkpoint"),
        *("before_onset", "accuracy_by_checkpoint", "accuracy_of_subnetworks"),
    )
    of: ClassVar[Literal["prune", "finetune"]] = "finetune"

    def options(self, run: Subject, sample: Sample) -> dict[str, object]:
        core = [sorted(digest_of(sub) for sub in open_pruned(path).subnetworks) for path in self.core]
        asked = {"k": self.k, "core": core, "level": self.level, "onset_cases": list(self.onset_cases), "stays": self.stays}
        return {**grid_options(run, sample, self.grid), **asked}

    def measure(self, run: Subject, sample: Sample) -> Mapping[str, pd.DataFrame]:
        self._require_final(run)
        trained = evaluations(run.place("finetune").path)
        if not trained.empty:
            self._onset(trained)  # a wrong level or case is said before hours of pruning, not after
        core = core_of([open_pruned(path) for path in self.core], self.k) if self.core else None
        found = self.grid.pruned(run, sample)
        for at in found:
            for text in at.pruned[0].warnings:
                warnings.warn(f"step {at.step}, {text}", stacklevel=2)
        self._require_subnetworks(found)
        emergence = analysis.core_emergence(subnetworks_by_step(found), None if core else self.k, core=core, seed=sample.seed)
        pruned = over_checkpoints(found)
        table = pruned[pruned["subnetwork"] == "full"] if trained.empty else trained
        return self.of_tables(emergence, table, pruned).tables

    def of_tables(self, emergence: analysis.Emergence, training: pd.DataFrame, pruned: pd.DataFrame) -> Answer:
        """The answer from the comparison of every checkpoint with the core, and evaluations of full model and subnetworks."""
        import pandas as pd

        start = self._onset(training)
        before = analysis.whole_before_onset(emergence, start)
        core = emergence.core
        told = {
            "short": before.short,
            "sentence": before.sentence,
            "onset": start.step,
            "core": f"{len(core.heads)} heads kept by {core.k} of {core.n}: {' '.join(map(str, core.heads))}",
        }
        tables = {
            "emergence": emergence.steps,
            "emergence_by_seed": emergence.runs,
            "cores_by_checkpoint": emergence.cores,
            "core_heads_by_checkpoint": emergence.heads,
            "before_onset": pd.DataFrame([told]).astype({"onset": "Int64"}),
            "accuracy_by_checkpoint": training,
            "accuracy_of_subnetworks": pruned,
        }
        return Answer(self, tables, {"level": self.level, "onset_cases": list(self.onset_cases)})

    def _onset(self, table: pd.DataFrame) -> analysis.Onset:
        return analysis.onset(table, level=self.level, cases=self.onset_cases or None, stays=self.stays)

    def _require_final(self, run: Subject) -> None:
        chosen = [checkpoint.step for checkpoint in self.grid.checkpoints(run)]
        last = Grid().checkpoints(run)[-1].step
        if len(chosen) < 2 or chosen[-1] != last:
            raise ValueError(
                f"--steps: the last checkpoint, {last}, which the final core is of, and at least one before it are needed; "
                f"chosen are {chosen}"
            )

    def _require_subnetworks(self, found: Sequence[AtCheckpoint]) -> None:
        from hc_lens.pruning import PruneError

        final = found[-1].pruned[0]
        if not final.subnetworks:
            raise PruneError(f"the last checkpoint has no subnetwork, so there is no final core: {'; '.join(final.warnings)}")
        if other := [path for path in self.core if open_pruned(path).means.model != final.means.model]:
            raise ValueError(f"--core {other[0]} prunes another model than the last checkpoint")

    def short(self, answer: Answer) -> str:
        return str(answer["before_onset"]["short"].iloc[0])

    def sentence(self, answer: Answer) -> str:
        return str(answer["before_onset"]["sentence"].iloc[0])

    def sections(self, answer: Answer) -> list[report.Section]:
        return [recall_section(answer), entry_section(answer)]


def onset_step(answer: Answer) -> int | None:
    """The step of the onset; None where there is none."""
    known = answer["before_onset"]["onset"].dropna()
    return None if known.empty else int(known.iloc[0])


def recall_section(answer: Answer) -> report.Section:
    """How much of the core is in each checkpoint's subnetworks, beside accuracy."""
    steps, row = answer["emergence"], answer["before_onset"].iloc[0]
    told = report.with_interval(steps, "recall", percent=True).assign(p_value=steps["p_value"].map(p_text))
    columns = ["step", "n", "heads", "recall (%) [95 %]", "chance", "p_value", "held_out", "jaccard_final", "rank"]
    cores = answer["cores_by_checkpoint"]
    accuracy = accuracy_table(answer)
    curves = figures.emergence_curves(
        answer["accuracy_by_checkpoint"],
        steps,
        onset=onset_step(answer),
        level=answer.options["level"],
        cases=tuple(answer.options["onset_cases"]),
    )
    return report.Section(
        "emergence",
        report.heading(answer.short),
        f"{answer.sentence} Core: {row['core']}. Chance: random subnetworks with as many heads in each layer.",
        curves,
        shown=[
            report.text_table(
                told[columns], f"recall of the final core ({row['core']}) by checkpoint", percent=["chance"], digits=2
            )
        ],
        folded=[
            report.text_table(accuracy, "Mean accuracy over cases (%)", percent=[str(c) for c in accuracy.columns[1:]]),
            report.text_table(
                cores.assign(p_value=cores["p_value"].map(p_text)), "The core of each checkpoint's own subnetworks"
            ),
        ],
    )


def accuracy_table(answer: Answer) -> pd.DataFrame:
    """Mean accuracy over cases of the full model and of its subnetworks, in domain and out of domain, by checkpoint."""
    import pandas as pd

    full, pruned = answer["accuracy_by_checkpoint"], answer["accuracy_of_subnetworks"]
    full = full[full["step"].isin(answer["emergence"]["step"])]
    pruned = pruned[pruned["subnetwork"] != "full"]
    means = [
        each.groupby(["step", "group"])["accuracy"].mean().unstack().add_prefix(f"{name} ")
        for name, each in (("full", full), ("subnetworks", pruned))
    ]
    return pd.concat(means, axis=1).reset_index()


def entry_section(answer: Answer) -> report.Section:
    """When each core head enters."""
    heads = answer["core_heads_by_checkpoint"]
    return report.Section(
        "core-entry",
        "When each core head enters",
        "How many of the checkpoint's subnetworks keep each core head.",
        figures.core_entry(heads, onset_step(answer)),
        folded=[report.text_table(heads, "Subnetworks that keep each core head", labels=3)],
    )
