"""The report's inputs, read from run directories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hc_lens.precision import told
from hc_lens.runs import Run, digest
from hc_lens.stages.ablation import ABLATION
from hc_lens.stages.core import open_core_of
from hc_lens.stages.evaluation import pruned_evaluation
from hc_lens.stages.kept import options_of, read

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.report import CoreSummary, ReportInputs
    from hc_lens.stages.pruned import Pruned

QUESTION = (
    "Pruned with different seeds, a fine-tuned classifier gives subnetworks that agree in-domain. Do they generalize alike, "
    "which heads do all of them keep, and what do those heads do out of domain?"
)


def report_inputs(
    pruned: Sequence[Pruned],
    *,
    title: str,
    question: str = QUESTION,
    finetuned: Path | None = None,
    notes: Sequence[str] = (),
) -> ReportInputs:
    """What the runs hold, and the fine-tuning run their model comes from; ablation is left out where it was not run.

    So is that of another core than the runs have now, which the notes then say. Of a run whose seeds all collapsed, the
    warnings are shown.

    Raises:
        RunError: if a run was not evaluated, or the first with subnetworks has no core, or one of others than these
            subnetworks.
    """
    import pandas as pd

    from hc_lens.analysis import head_frequency, joint_histogram, mlp_frequency, spearman
    from hc_lens.report import ReportInputs
    from hc_lens.train import evaluations

    warnings = tuple(text for p in pruned for text in p.warnings)
    collapsed = {p.config.sparsity: p.collapse for p in pruned if p.collapse}
    pruned = [p for p in pruned if p.subnetworks]
    first = pruned[0].run
    evaluation, core = pruned_evaluation(pruned), open_core_of(pruned)
    other = _other_ablation(first, core)
    ablation = None if other else read(first, *ABLATION)
    additivity = None if ablation is None else ablation[1][0]
    training = pd.DataFrame() if finetuned is None else evaluations(finetuned)
    ends = (pruned[0].subnetworks, pruned[-1].subnetworks) if len(pruned) > 1 else None
    return ReportInputs(
        title=title,
        question=question,
        provenance={**first.provenance, **({"pruned on": pruned[0].devices} if pruned[0].devices else {})},
        config=_settings(pruned, finetuned),
        evaluation=evaluation,
        frequency=_stacked([(p.config.sparsity, head_frequency(p.subnetworks)) for p in pruned]),
        core=core,
        training=None if training.empty else training,
        joint=None if ends is None else joint_histogram(*ends),
        rank=None if ends is None else spearman(*ends),
        mlps=_stacked([(p.config.sparsity, mlp_frequency(p.subnetworks)) for p in pruned]),
        effects=None if ablation is None else _effects(first, core, *ablation),
        additivity=None if additivity is None or additivity.empty else additivity,
        warnings=warnings,
        collapsed=collapsed,
        notes=(*notes, *other),
    )


def _other_ablation(run: Run, core: CoreSummary) -> tuple[str, ...]:
    """What to say of an ablation that is of another core, or of another task than the evaluation."""
    kept = options_of(run, "additivity")
    if not isinstance(kept, dict):
        return ()
    options = cast("dict[str, Any]", kept)
    heads = cast("dict[str, list[str]]", options["sets"]).get("core")
    if heads is not None and heads != [str(head) for head in core.heads]:
        return (f"The ablation kept in the run is of another core, {' '.join(heads)}: hc-lens ablate measures this one.",)
    if options["task"] != cast("dict[str, Any]", options_of(run, "evaluation/full"))["task"]:
        return ("The ablation kept in the run is of another task than the evaluation: hc-lens ablate measures this one.",)
    return ()


def _settings(pruned: Sequence[Pruned], finetuned: Path | None) -> dict[str, object]:
    """What every step was told, for the report."""
    first = pruned[0].run
    settings: dict[str, object] = {}
    if first.file("task", "json").exists():
        task = cast("dict[str, Any]", first.read_json("task"))
        counted = {key: f"{sum(rows.values())} in {len(rows)} cases" for key, rows in task.items() if isinstance(rows, dict)}
        settings["task"] = task | counted
    if finetuned is not None:
        tuning = Run.open(finetuned)
        settings["fine-tuning"] = {**tuning.spec, **told(tuning)}
    for p in pruned:
        settings[f"pruning at {p.config.sparsity:g}"] = {**p.run.spec, **told(p.run)}
    for name, kept in (("evaluation", "evaluation/full"), ("ablation", ABLATION[0])):
        if isinstance(options := options_of(first, kept), dict):
            asked = cast("dict[str, object]", options)
            settings[name] = asked | ({"max_rows": "all"} if asked["max_rows"] is None else {})
    return settings


def _effects(run: Run, core: CoreSummary, options: object, tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """The effects, and those of the heads outside the core as a mean with its own bootstrap interval."""
    import pandas as pd

    from hc_lens.analysis.stored import from_tensors

    _, effects = tables
    asked, metadata = cast("dict[str, Any]", options), run.read_metadata("singles")
    singles = from_tensors(run.read_tensors("singles"), metadata)
    same_rows = metadata["options"] == digest({name: asked[name] for name in ("task", "max_rows", "precision", "seed")})
    if len(core.heads) == len(singles.groups) or not same_rows:
        return effects
    table = singles.table(core.heads, seed=asked["seed"])
    return pd.concat([effects, table[table["group"].str.startswith("mean of")]], ignore_index=True)


def _stacked(tables: Sequence[tuple[float, pd.DataFrame]]) -> pd.DataFrame:
    import pandas as pd

    return pd.concat([table.assign(sparsity=sparsity) for sparsity, table in tables], ignore_index=True)
