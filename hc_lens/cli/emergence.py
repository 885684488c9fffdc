"""`hc-lens emergence`: when the heuristic core is there, beside when the model generalizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from hc_lens.cli import output
from hc_lens.cli.grid import PruneChoice, checkpoints_of, keep_figure
from hc_lens.cli.numbers import Count, Natural
from hc_lens.cli.options import Common, TaskChoice, parse
from hc_lens.cli.origin import Start
from hc_lens.runs import digest
from hc_lens.stages import core_of, open_pruned
from hc_lens.sweep import AtCheckpoint, over_checkpoints, prune_checkpoints_into, subnetworks_by_step

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.analysis import Core, Emergence, Onset
    from hc_lens.origin import Checkpoint


@dataclass(frozen=True)
class Arguments:
    """Prune every checkpoint of a fine-tuning run: how much of the final core each has, before generalization and after."""

    finetuned: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FINETUNED", help_behavior_hint="(required)")] = ""
    """A finished fine-tuning run."""
    sparsity: float = 0.5
    """Share of units to remove."""
    steps: tuple[Natural, ...] = ()
    """Which checkpoints, the last among them; all by default."""
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
    pruning: tyro.conf.OmitArgPrefixes[PruneChoice] = field(default_factory=PruneChoice)
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)

    def onset_in(self, table: pd.DataFrame) -> Onset:
        """Where generalization sets in."""
        from hc_lens.analysis import onset

        return onset(table, level=self.level, cases=self.onset_cases or None, stays=self.stays)


def main(words: Sequence[str]) -> None:
    """Prune, evaluate and compare, and leave the runs, tables and figures in the directory."""
    args = parse(Arguments, "emergence", words)

    chosen = _chosen(args)

    from hc_lens.train import evaluations

    trained = evaluations(Path(args.finetuned))
    if not trained.empty:
        args.onset_in(trained)  # a wrong level or case is said before hours of pruning, not after
    core = core_of([open_pruned(path) for path in args.core], args.k) if args.core else None
    directory, found = _pruned(args, chosen)
    _require_final_model(args, found)

    from hc_lens.analysis import core_emergence, whole_before_onset
    from hc_lens.figures import core_entry, emergence_curves

    emergence = core_emergence(subnetworks_by_step(found), None if core else args.k, core=core, seed=args.pruning.seed)
    pruned = over_checkpoints(found)
    table = pruned[pruned["subnetwork"] == "full"] if trained.empty else trained
    start = args.onset_in(table)
    before = whole_before_onset(emergence, start)
    for name, kept in (
        ("accuracy_by_checkpoint", pruned),
        ("emergence", emergence.steps),
        ("emergence_by_seed", emergence.runs),
        ("cores_by_checkpoint", emergence.cores),
        ("core_heads_by_checkpoint", emergence.heads),
    ):
        output.keep(kept, directory, name)
    cases = args.onset_cases
    keep_figure(
        emergence_curves(table, emergence.steps, onset=start.step, level=args.level, cases=cases), directory, "emergence"
    )
    keep_figure(core_entry(emergence.heads, start.step), directory, "core_entry")
    output.table(
        _by_step(table, emergence, [at.step for at in found]),
        f"recall of the final core ({_told(emergence.core)}) by checkpoint",
    )
    print(f"\n{before.sentence}")
    output.headline(directory, before.short)


def _chosen(args: Arguments) -> list[Checkpoint]:
    everything = checkpoints_of(args.finetuned, "emergence")
    chosen = checkpoints_of(args.finetuned, "emergence", args.steps or None)
    if len(chosen) < 2 or chosen[-1].step != everything[-1].step:
        raise ValueError(
            f"--steps: the last checkpoint, {everything[-1].step}, which the final core is of, and at least one before it are "
            f"needed; chosen are {[checkpoint.step for checkpoint in chosen]}"
        )
    return chosen


def _pruned(args: Arguments, chosen: Sequence[Checkpoint]) -> tuple[Path, list[AtCheckpoint]]:
    from hc_lens.pruning import PruneError

    choice = args.pruning
    pool, config = choice.pool.on(args.common.device), choice.pruning.config(args.sparsity)
    task = Start.find(args.finetuned, TaskChoice()).task
    steps = [checkpoint.step for checkpoint in chosen]
    recipe = {
        "model": args.finetuned,
        "steps": steps,
        "config": config.as_dict(),
        "seeds": list(choice.seeds),
        "means_rows": choice.means_rows,
    }
    directory = args.common.out or Path("runs") / f"emergence-{digest(recipe)[:12]}"
    output.say(f"{len(steps) * len(choice.seeds)} pruning runs: checkpoints {steps} of {args.finetuned}, on {pool.device}")
    found = prune_checkpoints_into(directory, task, chosen, [config], choice.seeds, choice.measuring, pool)
    for at in found:
        for text in at.pruned[0].warnings:
            output.say(f"warning: step {at.step}, {text}")
    if not found[-1].pruned[0].subnetworks:
        raise PruneError(
            f"the last checkpoint has no subnetwork, so there is no final core: {'; '.join(found[-1].pruned[0].warnings)}"
        )
    return directory, found


def _require_final_model(args: Arguments, found: Sequence[AtCheckpoint]) -> None:
    final = found[-1].pruned[0].means.model
    if other := [path for path in args.core if open_pruned(path).means.model != final]:
        raise ValueError(f"--core {other[0]} prunes another model than the last checkpoint of {args.finetuned}")


def _told(core: Core) -> str:
    return f"{len(core.heads)} heads kept by {core.k} of {core.n}: {' '.join(map(str, core.heads))}"


def _by_step(evaluation: pd.DataFrame, emergence: Emergence, all_steps: Sequence[int]) -> pd.DataFrame:
    """One row per pruned checkpoint: mean accuracy of the full model, recall and what it is compared with."""
    import pandas as pd

    means = evaluation.pivot_table(index="step", columns="group", values="accuracy")
    steps = emergence.steps.set_index("step").reindex(list(all_steps)).reset_index()
    steps["n"] = steps["n"].fillna(0).astype(int)  # where every seed collapsed there is a gap
    shown: dict[str, object] = {"step": steps["step"], "seeds": steps["n"]}
    shown |= {group: steps["step"].map(means[group]) for group in ("ID", "OOD") if group in means}
    shown["recall"] = steps["recall"]
    shown["95 %"] = [
        "" if pd.isna(low) else f"{low:.2f}..{high:.2f}" for low, high in zip(steps["low"], steps["high"], strict=True)
    ]
    named = {
        "chance": "chance",
        "p_value": "p",
        "held_out": "held out",
        "jaccard_final": "Jaccard to final",
        "rank": "rank correlation",
    }
    return pd.DataFrame(shown | {title: steps[column] for column, title in named.items()})
