"""The steps of the line as run directories: what pruning, evaluation, the core and ablation leave, and how the next reads it.

A pruning run holds `subnetworks/seed-42.safetensors` (with the means once, in `subnetworks/means/`), `gates/`, `history/` and
`outcome/` by seed. Evaluation, core and ablation add their tables to it. Every step goes on where it stopped.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch
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
from hc_lens.data.task import Split, Task
from hc_lens.forward import Inputs, Precision, device_of, inputs_of
from hc_lens.means import Ablation as AblationKind
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier, fingerprint
from hc_lens.pruning import PruneConfig, PruneResult, prune
from hc_lens.pruning.objective import imitation
from hc_lens.pruning.training import data_order, runs_together
from hc_lens.report import CoreSummary, ReportInputs
from hc_lens.runs import Run, RunError, digest
from hc_lens.subnetwork import Subnetwork
from hc_lens.train import evaluations
from hc_lens.units import Head, parse

QUESTION = (
    "Pruned with different seeds, a fine-tuned classifier gives subnetworks that agree in-domain. Do they generalize alike, "
    "which heads do all of them keep, and what do those heads do out of domain?"
)


@dataclass(frozen=True, eq=False)
class Pruned:
    """A finished pruning run: its directory, configuration, subnetworks in the order of their seeds, and what it warned of.

    `devices` are those that its seeds were trained on, where that is recorded.
    """

    run: Run
    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    warnings: tuple[str, ...]
    devices: tuple[str, ...] = ()

    @property
    def means(self) -> ActivationMeans:
        return self.subnetworks[0].means

    def history(self) -> pd.DataFrame:
        """Target, sparsity, loss and multipliers at every step of every seed."""
        tables = [self.run.read_table(f"history/seed-{sub.seed}") for sub in self.subnetworks]
        return pd.concat(tables, ignore_index=True)


def means_spec(
    model: HookedRootModule, data: Split, *, rows: int | None, max_length: int, kind: AblationKind = "mean"
) -> dict[str, object]:
    """What decides the means that `means_into` collects, JSON-ready."""
    return {"model": fingerprint(model), "data": data.fingerprint, "rows": rows, "max_length": max_length, "kind": kind}


def means_into(
    directory: Path, model: HookedRootModule, data: Split, *, rows: int | None, max_length: int, kind: AblationKind = "mean"
) -> ActivationMeans:
    """The means over random rows of a split (which may come sorted by source), collected once and read back.

    `rows` is how many, None for all. Another process that is collecting them is waited for.

    Raises:
        RunError: if the directory holds another run.
        MeansError: if the means kept there are damaged.
    """
    run = Run.at(directory, "means", means_spec(model, data, rows=rows, max_length=max_length, kind=kind))
    with run.locked(wait=True):
        if run.finished:
            return ActivationMeans.load(run.path / cast(str, run.read_json("means")))
        shuffled = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
        sample = data.take(shuffled[:rows].tolist(), name=f"{data.name} sample")
        means = ActivationMeans.collect(model, sample, kind=kind, max_rows=None, max_length=max_length)
        run.write_json("means", means.save(run.path).name)
        run.finish()
        return means


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
                trained = prune(model, encoded, means, config, missing[start : start + together], loss)
                _keep(run, trained, _device_name(model))
        if not run.finished:
            run.finish()
    return open_pruned(directory)


def _device_name(model: HookedRootModule) -> str:
    device = device_of(model)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _keep(run: Run, result: PruneResult, device: str) -> None:
    for i, sub in enumerate(result.subnetworks):
        mine = [text for text in result.warnings if text.startswith(f"seed {sub.seed}:")]
        run.write_table(f"history/seed-{sub.seed}", result.history[result.history["seed"] == sub.seed].reset_index(drop=True))
        run.write_tensors(f"gates/seed-{sub.seed}", {"log_alpha": result.log_alpha[i]})
        run.write_json(f"outcome/seed-{sub.seed}", {"warnings": mine, "device": device})
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
    outcomes = [cast("dict[str, Any]", run.read_json(f"outcome/seed-{seed}")) for seed in seeds]
    devices = tuple(dict.fromkeys(outcome["device"] for outcome in outcomes if "device" in outcome))
    config = PruneConfig(**cast("dict[str, Any]", run.spec["config"]))
    return Pruned(run, config, subnetworks, tuple(text for outcome in outcomes for text in outcome["warnings"]), devices)


def evaluate_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    *,
    max_rows: int | None,
    batch_size: int = 64,
    precision: Precision = "fp32",
    seed: int = 0,
) -> pd.DataFrame:
    """The evaluation table of a pruning run, with the `target` sparsity; kept as `evaluation.parquet`.

    `seed` draws the rows where `max_rows` limits them. What the task is and how many rows it has are kept as `task.json`.
    """

    def compute() -> pd.DataFrame:
        table = evaluate(
            model,
            task,
            pruned.subnetworks,
            max_rows=max_rows,
            max_length=pruned.config.max_length,
            batch_size=batch_size,
            seed=seed,
            precision=precision,
        )
        return table.assign(target=pruned.config.sparsity)

    pruned.run.write_json("task", _task_facts(task))
    options = {"task": task.fingerprint, "max_rows": max_rows, "precision": precision, "seed": seed}
    return _remembered(pruned.run, "evaluation", options, compute)


def _task_facts(task: Task) -> dict[str, object]:
    return {
        "name": task.name,
        "labels": list(task.labels),
        "training rows": len(task.train),
        "in-domain rows": {name: len(split) for name, split in task.in_domain.items()},
        "out-of-domain rows": {name: len(split) for name, split in task.ood.items()},
    }


def core_into(
    pruned: Sequence[Pruned],
    k: int | None = None,
    permutations: int = 10_000,
    *,
    seed: int = 0,
    chosen_for: int | None = None,
) -> CoreSummary:
    """The heads that at least `k` of all the runs' subnetworks keep, against chance; kept as `core.json` in the first run.

    `seed` draws the permutations. `chosen_for` says that `k` was chosen to give a core of at least so many heads.

    Raises:
        ValueError: for runs of different models, or `k` outside 1..n.
    """
    core = core_of(pruned, k)
    null = core.null(n=permutations, seed=seed)
    summary = CoreSummary.of(core, null, [p.config.sparsity for p in pruned], chosen_for)
    pruned[0].run.write_json("core", asdict(summary) | {"heads": [str(head) for head in core.heads]})
    return summary


def core_of(pruned: Sequence[Pruned], k: int | None = None) -> Core:
    """The heads that at least `k` of all the runs' subnetworks keep (default: all), without a null; nothing is kept.

    Raises:
        ValueError: as `core_into`.
    """
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
    seed: int = 0,
) -> Ablation:
    """Ablate every head of the full model alone; every row's values are kept as `singles.safetensors`."""
    run = pruned.run
    options = {"task": task.fingerprint, "max_rows": max_rows, "precision": precision, "seed": seed}
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
            seed=seed,
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
    seed: int = 0,
) -> AblationTables:
    """Ablate every head of the full model alone, and each named set together; kept as `effects` and `additivity` tables.

    `seed` draws the rows where `max_rows` limits them, the control sets, and the bootstrap.
    """
    options = {
        "task": task.fingerprint,
        "sets": {name: [str(head) for head in heads] for name, heads in sets.items()},
        "max_rows": max_rows,
        "controls": controls,
        "precision": precision,
        "seed": seed,
    }
    run = pruned.run
    if _options(run, "additivity") != options:
        _forget(run, "additivity")
        singles = singles_into(pruned, model, task, max_rows=max_rows, batch_size=batch_size, precision=precision, seed=seed)
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
            seed=seed,
            precision=precision,
        )
        run.write_table("effects", result.table(seed=seed))
        _remembered(run, "additivity", options, lambda: result.super_additivity(seed=seed))
    return AblationTables(run.read_table("effects"), run.read_table("additivity"))


def report_inputs(
    pruned: Sequence[Pruned],
    *,
    title: str,
    question: str = QUESTION,
    finetuned: Path | None = None,
    notes: Sequence[str] = (),
) -> ReportInputs:
    """What the runs hold, and the fine-tuning run their model comes from; ablation is left out where it was not run.

    Raises:
        RunError: if a run was not evaluated, or the first has no core.
    """
    first = pruned[0].run
    ablated = _options(first, "additivity") is not None  # written last: after a kill in between, tables may not fit
    additivity = first.read_table("additivity") if ablated else None
    training = pd.DataFrame() if finetuned is None else evaluations(finetuned)
    evaluation, core = pruned_evaluation(pruned), open_core(first)
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
        effects=_effects(first, core) if ablated else None,
        additivity=None if additivity is None or additivity.empty else additivity,
        warnings=tuple(text for p in pruned for text in p.warnings),
        notes=tuple(notes),
    )


def _settings(pruned: Sequence[Pruned], finetuned: Path | None) -> dict[str, object]:
    """What every step was told, for the report."""
    first = pruned[0].run
    settings: dict[str, object] = {}
    if first.file("task", "json").exists():
        task = cast("dict[str, Any]", first.read_json("task"))
        counted = {key: f"{sum(rows.values())} in {len(rows)} cases" for key, rows in task.items() if isinstance(rows, dict)}
        settings["task"] = task | counted
    if finetuned is not None:
        settings["fine-tuning"] = dict(Run.open(finetuned).spec)
    for p in pruned:
        settings[f"pruning at {p.config.sparsity:g}"] = dict(p.run.spec)
    for name, kept in (("evaluation", "evaluation"), ("ablation", "additivity")):
        if isinstance(options := _options(first, kept), dict):
            told = cast("dict[str, object]", options)
            settings[name] = told | ({"max_rows": "all"} if told["max_rows"] is None else {})
    return settings


def _effects(run: Run, core: CoreSummary) -> pd.DataFrame:
    """The effects, and those of the heads outside the core as a mean with its own bootstrap interval."""
    effects = run.read_table("effects")
    singles = from_tensors(run.read_tensors("singles"), run.read_metadata("singles"))
    if len(core.heads) == len(singles.groups):
        return effects
    seed = cast("dict[str, int]", run.read_json("additivity.options")).get("seed", 0)
    table = singles.table(core.heads, seed=seed)
    return pd.concat([effects, table[table["group"].str.startswith("mean of")]], ignore_index=True)


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
