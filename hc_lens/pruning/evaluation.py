"""The evaluation table that a pruning run keeps, of one sparsity or along a rising target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from hc_lens.cache import options_of, read, store
from hc_lens.pruning.members import digest_in, digest_of
from hc_lens.pruning.outcomes import asked_seeds, collapsed_seeds, subnetwork_files, targets_of
from hc_lens.runs import RunError
from hc_lens.sample import ALL_ROWS, Sample

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.pruning.pruned import Pruned
    from hc_lens.pruning.pruned_path import PrunedPath
    from hc_lens.runs import Run


def evaluate_into(
    pruned: Pruned | PrunedPath,
    model: Classifier,
    task: Task,
    sample: Sample = ALL_ROWS,
    *,
    trained: bool = True,
) -> pd.DataFrame:
    """The evaluation table of a pruning run, with the `target` sparsity; each seed's rows are kept, and computed once.

    What the task is and how many rows it has are kept as `task.json`. Pairs are cut at the length that the run was pruned at,
    where the sample names none.
    An untrained model has no label order to check: `trained=False`.
    """
    run, rows = pruned.run, sample.settled(pruned.run, model)
    rows = rows if rows.max_length is not None else replace(rows, max_length=pruned.config.max_length)
    asked = _asked(pruned, rows.options_beside(pruned.config.max_length, task))
    if all(_same(options_of(run, name), of) for name, of in asked.items()) and run.file("task", "json").exists():
        return evaluation_of(pruned)
    held = dict.fromkeys(f"seed-{sub.seed}" for sub in pruned.subnetworks)
    with run.locked(*(held or ["evaluation"]), wait=True):
        _evaluate_missing(pruned, model, task, rows, trained)
        return evaluation_of(pruned)


def _evaluate_missing(pruned: Pruned | PrunedPath, model: Classifier, task: Task, rows: Sample, trained: bool) -> None:
    """Evaluate the seeds that have no table of these rows, and the full model with them."""
    import pandas as pd

    from hc_lens.metrics import evaluate

    run, asked = pruned.run, _asked(pruned, rows.options_beside(pruned.config.max_length, task))
    missing = [sub for sub in pruned.subnetworks if not _same(options_of(run, _table(sub.seed)), asked[_table(sub.seed)])]
    if missing or not _same(options_of(run, _table(None)), asked[_table(None)]):
        part = pruned.only({sub.seed for sub in missing})
        table = evaluate(model, task, part.subnetworks, rows, trained=trained)
        for one, each in part.with_targets(table).groupby("seed", dropna=False, sort=False):
            name = _table(None if pd.isna(one) else int(cast(int, one)))
            with run.locked("full", wait=True) if pd.isna(one) else nullcontext():  # the seeds are held already
                if not _same(options_of(run, name), asked[name]):  # whoever has other seeds reads the full model's meanwhile
                    store(run, asked[name], {name: each.reset_index(drop=True)})
    with run.locked("task", wait=True):
        run.write_json("task", _task_facts(task))


def evaluation_of(pruned: Pruned | PrunedPath) -> pd.DataFrame:
    """The evaluation table that a pruning run keeps of the full model and of these subnetworks.

    Raises:
        RunError: if some were not evaluated, or not all on the same rows.
    """
    return _kept(pruned.run, _members(pruned))


def kept_evaluation(run: Run, seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """`evaluation_of` a pruning run of either kind, of all its seeds or these, without loading a subnetwork.

    Raises:
        RunError: as `evaluation_of`, and if a subnetwork is absent or damaged.
    """
    seeds = asked_seeds(run) if seeds is None else seeds
    alive = [seed for seed in seeds if seed not in collapsed_seeds(run, seeds)]
    of = {seed: [digest_in(file) for file in subnetwork_files(run, seed)] for seed in alive}
    return _kept(run, _options_of({_table(seed): digests for seed, digests in of.items()}))


def _kept(run: Run, members: Mapping[str, dict[str, object]]) -> pd.DataFrame:
    """The tables with these names, which are to be of these subnetworks, as one."""
    import pandas as pd

    names = list(members)
    found = [read(run, name) for name in names]
    kept = [each for each in found if each is not None]
    if len(kept) < len(found):
        raise RunError(f"{run.path} has no {names[found.index(None)]} yet: evaluate the run first (hc-lens evaluate)")
    options = [each for each, _ in kept]
    for name, each in zip(names, options, strict=True):
        if not _same(each, _rows_of(each) | members[name]):
            raise RunError(f"{run.path}: {name} is of another subnetwork than the run holds now: evaluate the run again")
    if other := [name for name, each in zip(names, options, strict=True) if _rows_of(each) != _rows_of(options[-1])]:
        raise RunError(f"{run.path}: {other[0]} and {names[-1]} are of different rows: evaluate the run again")
    table = pd.concat([table for _, (table,) in kept], ignore_index=True)
    return table.assign(target=table["target"].where(table["subnetwork"] != "full"))  # earlier versions gave it one


def _asked(pruned: Pruned | PrunedPath, options: dict[str, object]) -> dict[str, dict[str, object]]:
    """The options of every table: those of the rows, and the subnetworks that it is of."""
    return {name: options | of for name, of in _members(pruned).items()}


def _members(pruned: Pruned | PrunedPath) -> dict[str, dict[str, object]]:
    """The subnetworks that each table is of, as a part of its options."""
    of: dict[str, list[str]] = {}
    for sub in pruned.subnetworks:
        of.setdefault(_table(sub.seed), []).append(digest_of(sub))
    return _options_of(of)


def _options_of(digests: Mapping[str, list[str]]) -> dict[str, dict[str, object]]:
    return {_table(None): {}, **{name: {"subnetworks": each} for name, each in digests.items()}}


def _rows_of(options: object) -> dict[str, object]:
    """The options without the subnetworks."""
    return {name: value for name, value in cast("dict[str, object]", options).items() if name != "subnetworks"}


def _same(kept: object, asked: dict[str, object]) -> bool:
    """Whether a table kept with these options is what is asked for; earlier versions did not tell the subnetworks."""
    told = isinstance(kept, dict) and "subnetworks" in kept
    return kept == (asked if told else _rows_of(asked))


def grid_evaluation(run: Run, seeds: Sequence[int] | None = None) -> pd.DataFrame:
    """`kept_evaluation`, and for each seed that collapsed a row without accuracy at every sparsity and case: a gap of a grid.

    Raises:
        RunError: as `kept_evaluation`.
    """
    import pandas as pd

    table = kept_evaluation(run, seeds)
    cases = table.loc[table["subnetwork"] == "full", ["case", "group", "n"]]
    gaps = [
        cases.assign(subnetwork=f"seed {seed}", seed=seed, target=target, accuracy=float("nan"))
        for target in targets_of(run)
        for seed in collapsed_seeds(run, seeds)
    ]
    return pd.concat([table, *gaps], ignore_index=True).astype({"seed": "Int64"})


def _table(seed: int | None) -> str:
    return "evaluation/full" if seed is None else f"evaluation/seed-{seed}"


def _task_facts(task: Task) -> dict[str, object]:
    return {
        "name": task.name,
        "labels": list(task.labels),
        "training rows": len(task.train),
        "in-domain rows": {name: len(split) for name, split in task.in_domain.items()},
        "out-of-domain rows": {name: len(split) for name, split in task.ood.items()},
    }


def pruned_evaluation(pruned: Sequence[Pruned]) -> pd.DataFrame:
    """The evaluation tables of several runs of one model as one, the full model once.

    Raises:
        RunError: as `evaluation_of`.
    """
    import pandas as pd

    first, *later = [evaluation_of(p) for p in pruned]
    return pd.concat([first, *(table[table["subnetwork"] != "full"] for table in later)], ignore_index=True)
