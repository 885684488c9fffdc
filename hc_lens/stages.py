"""The steps of the line as run directories: what pruning, evaluation, the core and ablation leave, and how the next reads it.

A pruning run holds `subnetworks/seed-42.safetensors` (with the means once, in `subnetworks/means/`), `gates/`, `history/` and
`outcome/` by seed. Evaluation, core and ablation add their tables to it. Every step goes on where it stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
from transformer_lens import HookedRootModule

from hc_lens.analysis import (
    Ablation,
    Core,
    ablate,
    head_frequency,
    heuristic_core,
    joint_histogram,
    mlp_frequency,
    single_heads,
    spearman,
)
from hc_lens.analysis.stored import from_tensors, to_tensors
from hc_lens.data.task import Task
from hc_lens.forward import Inputs, Precision, inputs_of
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier
from hc_lens.pruning import PruneConfig, PruneResult, prune
from hc_lens.pruning.objective import imitation
from hc_lens.pruning.training import data_order, runs_together
from hc_lens.report import CoreSummary, ReportInputs
from hc_lens.runs import Run, RunError, digest
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head, parse

QUESTION = (
    "Pruned with different seeds, a fine-tuned classifier gives subnetworks that agree in-domain. Do they generalize alike, "
    "which heads do all of them keep, and what do those heads do out of domain?"
)


@dataclass(frozen=True, eq=False)
class Pruned:
    """A finished pruning run: its directory, configuration, subnetworks in the order of their seeds, and what it warned of."""

    run: Run
    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    warnings: tuple[str, ...]

    @property
    def means(self) -> ActivationMeans:
        return self.subnetworks[0].means

    def history(self) -> pd.DataFrame:
        """Target, sparsity, loss and multipliers at every step of every seed."""
        tables = [self.run.read_table(f"history/seed-{sub.seed}") for sub in self.subnetworks]
        return pd.concat(tables, ignore_index=True)


def prune_into(
    directory: Path, model: HookedRootModule, data: Inputs, means: ActivationMeans, config: PruneConfig, seeds: Sequence[int]
) -> Pruned:
    """Prune with every seed that the directory does not hold yet, keeping each group of seeds as soon as it is trained.

    Raises:
        RunError: if the directory holds another run, or another process works on it.
        MeansError, PruneError, ValueError: as `prune`.
    """
    encoded = inputs_of(model, data, config.max_length)
    spec = {
        "config": config.as_dict(),
        "seeds": list(seeds),
        "model": means.model,
        "data": encoded.fingerprint,
        "means": means.digest,
    }
    run = Run.at(directory, "prune", spec)
    with run.locked():
        missing = [seed for seed in seeds if not _subnetwork_file(run, seed).exists()]
        if missing:
            # The full model's predictions, computed once for all groups of seeds.
            loss = imitation(model, encoded, config, [data_order(encoded, config, seed) for seed in missing])
            together = runs_together(model, encoded, config)
            for start in range(0, len(missing), together):
                _keep(run, prune(model, encoded, means, config, missing[start : start + together], loss))
        if not run.finished:
            run.finish()
    return open_pruned(directory)


def _keep(run: Run, result: PruneResult) -> None:
    for i, sub in enumerate(result.subnetworks):
        mine = [text for text in result.warnings if text.startswith(f"seed {sub.seed}:")]
        run.write_table(f"history/seed-{sub.seed}", result.history[result.history["seed"] == sub.seed].reset_index(drop=True))
        run.write_tensors(f"gates/seed-{sub.seed}", {"log_alpha": result.log_alpha[i]})
        run.write_json(f"outcome/seed-{sub.seed}", {"warnings": mine})
        sub.save(_subnetwork_file(run, cast(int, sub.seed)))  # last: its presence says that the seed is done


def _subnetwork_file(run: Run, seed: int) -> Path:
    return run.file(f"subnetworks/seed-{seed}", "safetensors")


def open_pruned(directory: Path, model: HookedRootModule | None = None) -> Pruned:
    """Read a pruning run back; with `model`, refuse one of another model.

    Raises:
        RunError: if the directory is not a finished pruning run.
        SubnetworkError, MeansError: if a subnetwork or its means are absent, damaged, or of another model.
    """
    run = Run.open(directory)
    if run.kind != "prune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a 'prune' run")
    if not run.finished:
        raise RunError(f"{directory} holds a pruning run that has not finished: start it again, it goes on where it stopped")
    seeds = cast("list[int]", run.spec["seeds"])
    subnetworks = tuple(Subnetwork.load(_subnetwork_file(run, seed), model) for seed in seeds)
    outcomes = [cast("dict[str, list[str]]", run.read_json(f"outcome/seed-{seed}")) for seed in seeds]
    config = PruneConfig(**cast("dict[str, Any]", run.spec["config"]))
    return Pruned(run, config, subnetworks, tuple(text for outcome in outcomes for text in outcome["warnings"]))


def evaluate_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
) -> pd.DataFrame:
    """The evaluation table of a pruning run, with the `target` sparsity; kept as `evaluation.parquet`."""

    def compute() -> pd.DataFrame:
        table = evaluate(
            model,
            task,
            pruned.subnetworks,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            precision=precision,
        )
        return table.assign(target=pruned.config.sparsity)

    options = {"task": task.fingerprint, "max_rows": max_rows, "precision": precision}
    return _remembered(pruned.run, "evaluation", options, compute)


def core_into(pruned: Sequence[Pruned], k: int | None = None, permutations: int = 10_000) -> CoreSummary:
    """The heads that at least `k` of all the runs' subnetworks keep, against chance; kept as `core.json` in the first run.

    Raises:
        ValueError: for runs of different models, or `k` outside 1..n.
    """
    core = _core(pruned, k)
    summary = CoreSummary.of(core, core.null(n=permutations), [p.config.sparsity for p in pruned])
    pruned[0].run.write_json("core", asdict(summary) | {"heads": [str(head) for head in core.heads]})
    return summary


def _core(pruned: Sequence[Pruned], k: int | None) -> Core:
    if len({p.means.model for p in pruned}) != 1:
        raise ValueError(f"the runs {[str(p.run.path) for p in pruned]} prune different models: they can share no core")
    return heuristic_core([sub for p in pruned for sub in p.subnetworks], k)


def open_core(run: Run) -> CoreSummary:
    """The core kept in a run by `core_into`.

    Raises:
        RunError: if there is none.
    """
    if not run.file("core", "json").exists():
        raise RunError(f"{run.path} has no core.json yet: find the core first (hc-lens core)")
    stored = cast("dict[str, list[str]]", run.read_json("core"))
    heads = tuple(cast(Head, parse(name)) for name in stored["heads"])
    rest = {name: value for name, value in stored.items() if name not in ("heads", "sparsities")}
    return CoreSummary(heads=heads, sparsities=tuple(map(float, stored["sparsities"])), **cast("dict[str, Any]", rest))


@dataclass(frozen=True, eq=False)
class AblationTables:
    """`effects`, one row per group, case and scale; `additivity`, one per set of several heads, case and scale."""

    effects: pd.DataFrame
    additivity: pd.DataFrame


def singles_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
) -> Ablation:
    """Ablate every head of the full model alone; every row's values are kept as `singles.safetensors`."""
    run, options = pruned.run, {"task": task.fingerprint, "max_rows": max_rows, "precision": precision}
    done = run.file("singles", "safetensors").exists() and run.read_metadata("singles")["options"] == digest(options)
    if not done:
        result = ablate(
            model,
            task,
            pruned.means,
            single_heads(pruned.means),
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            precision=precision,
        )
        tensors, metadata = to_tensors(result)
        run.write_tensors("singles", tensors, metadata | {"options": digest(options)})
    return from_tensors(run.read_tensors("singles"), run.read_metadata("singles"))


def ablate_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    sets: Mapping[str, Sequence[Head]],
    *,
    max_rows: int | None,
    controls: int = 20,
    batch_size: int = 64,
    precision: Precision = "fp32",
) -> AblationTables:
    """Ablate every head of the full model alone, and each named set together; kept as `effects` and `additivity` tables."""
    options = {
        "task": task.fingerprint,
        "sets": {name: [str(head) for head in heads] for name, heads in sets.items()},
        "max_rows": max_rows,
        "controls": controls,
        "precision": precision,
    }
    run = pruned.run
    if _options(run, "additivity") != options:
        _forget(run, "additivity")
        singles = singles_into(pruned, model, task, max_rows=max_rows, batch_size=batch_size, precision=precision)
        joint = {name: tuple(heads) for name, heads in sets.items() if len(heads) > 1}
        result = ablate(
            model,
            task,
            pruned.means,
            {**singles.groups, **joint},
            controls=controls,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            known=singles,
            precision=precision,
        )
        run.write_table("effects", result.table())
        _remembered(run, "additivity", options, result.super_additivity)
    return AblationTables(run.read_table("effects"), run.read_table("additivity"))


def report_inputs(
    pruned: Sequence[Pruned],
    *,
    title: str,
    question: str = QUESTION,
    training: pd.DataFrame | None = None,
    notes: Sequence[str] = (),
) -> ReportInputs:
    """What the runs hold, as the report wants it; ablation is left out where it was not run.

    Raises:
        RunError: if a run was not evaluated, or the first has no core.
    """
    first = pruned[0].run
    ablated = first.file("additivity", "parquet").exists()
    additivity = first.read_table("additivity") if ablated else None
    ends = (pruned[0].subnetworks, pruned[-1].subnetworks) if len(pruned) > 1 else None
    return ReportInputs(
        title=title,
        question=question,
        provenance=first.provenance,
        config={f"pruning at {p.config.sparsity:g}": dict(p.run.spec) for p in pruned},
        evaluation=pruned_evaluation(pruned),
        frequency=_stacked([(p.config.sparsity, head_frequency(p.subnetworks)) for p in pruned]),
        core=open_core(first),
        training=training,
        joint=None if ends is None else joint_histogram(*ends),
        rank=None if ends is None else spearman(*ends),
        mlps=_stacked([(p.config.sparsity, mlp_frequency(p.subnetworks)) for p in pruned]),
        effects=first.read_table("effects") if ablated else None,
        additivity=None if additivity is None or additivity.empty else additivity,
        warnings=tuple(text for p in pruned for text in p.warnings),
        notes=tuple(notes),
    )


def pruned_evaluation(pruned: Sequence[Pruned]) -> pd.DataFrame:
    """The evaluation tables of several runs of one model as one, the full model once.

    Raises:
        RunError: if a run was not evaluated.
    """
    for p in pruned:
        if not p.run.file("evaluation", "parquet").exists():
            raise RunError(f"{p.run.path} has no evaluation.parquet yet: evaluate the run first (hc-lens evaluate)")
    first, *later = [p.run.read_table("evaluation") for p in pruned]
    return pd.concat([first, *(table[table["subnetwork"] != "full"] for table in later)], ignore_index=True)


def _stacked(tables: Sequence[tuple[float, pd.DataFrame]]) -> pd.DataFrame:
    return pd.concat([table.assign(sparsity=sparsity) for sparsity, table in tables], ignore_index=True)


def _options(run: Run, name: str) -> object:
    known = run.file(f"{name}.options", "json").exists() and run.file(name, "parquet").exists()
    return run.read_json(f"{name}.options") if known else None


def _forget(run: Run, name: str) -> None:
    """A kill between a new table and its options must not leave the old options beside the new table."""
    run.file(f"{name}.options", "json").unlink(missing_ok=True)


def _remembered(run: Run, name: str, options: Mapping[str, object], compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
    """The stored table if it was computed with these options, else computed and stored in its place."""
    if _options(run, name) != options:
        _forget(run, name)
        run.write_table(name, compute())
        run.write_json(f"{name}.options", dict(options))
    return run.read_table(name)
