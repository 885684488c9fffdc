"""What a pruning run keeps of heads ablated together: pairs, domains, greedy sets, subnetworks, and who depends on the core.

Every row's values under every set of heads are kept in `joint.safetensors`, so that no set is ablated twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from hc_lens.runs import digest
from hc_lens.stages.ablation import singles_into
from hc_lens.stages.kept import remembered, remembered_tables
from hc_lens.stages.members import digest_of

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.analysis import Ablation
    from hc_lens.data.task import Task
    from hc_lens.models import Classifier
    from hc_lens.stages.pruned import Pruned
    from hc_lens.stages.rows import Rows
    from hc_lens.units import Head


@dataclass(frozen=True, eq=False)
class InteractionTables:
    """`pairs`, one row per pair of heads, place and scale; `domains`, effects and excess in domain, out of it, and apart."""

    pairs: pd.DataFrame
    domains: pd.DataFrame


def interactions_into(
    pruned: Pruned, model: Classifier, task: Task, core: Collection[Head], rows: Rows, *, controls: int = 20
) -> InteractionTables:
    """Ablate every pair of the core's heads, and the core; kept as `interactions` and `domains` tables.

    Raises:
        ValueError: for a core of fewer than two heads.
    """
    from hc_lens.analysis import by_domain, core_pairs, interactions

    rows = rows.settled(pruned.run, model)
    options = rows.options(task) | {"core": _names(core), "controls": controls}

    def compute() -> dict[str, pd.DataFrame]:
        heads = sorted(set(core))
        groups = {**{str(head): [head] for head in heads}, **{f"{a} + {b}": [a, b] for a, b in core_pairs(heads)}}
        groups |= {"core": heads} if len(heads) > 2 else {}
        found = _ablated(pruned, model, task, groups, rows, controls)
        return {"domains": by_domain(found, seed=rows.seed), "interactions": interactions(found, seed=rows.seed)}

    domains, pairs = remembered_tables(pruned.run, ("domains", "interactions"), options, compute)
    return InteractionTables(pairs, domains)


def greedy_into(
    pruned: Pruned,
    model: Classifier,
    task: Task,
    candidates: Collection[Head],
    size: int,
    rows: Rows,
    *,
    scale: Literal["margin", "accuracy"] = "margin",
    controls: int = 20,
) -> pd.DataFrame:
    """The path of the set of candidates that costs most out of domain, head by head; kept as `greedy` table.

    Raises:
        ValueError: as `greedy_sets`.
    """
    from hc_lens.analysis import greedy_sets

    rows = rows.settled(pruned.run, model)
    asked = {"candidates": _names(candidates), "size": size, "scale": scale, "controls": controls}

    def compute() -> pd.DataFrame:
        with pruned.run.locked("joint", wait=True):
            path = greedy_sets(
                model,
                task,
                pruned.means,
                candidates,
                size,
                scale=scale,
                controls=controls,
                max_rows=rows.max_rows,
                max_length=pruned.config.max_length,
                batch_size=rows.batch_size,
                seed=rows.seed,
                known=_known(pruned, model, task, rows),
                precision=rows.precision,
            )
            _keep(pruned, path.ablation, task, rows)
        return path.table(seed=rows.seed)

    return remembered(pruned.run, "greedy", rows.options(task) | asked, compute)


def removal_into(pruned: Pruned, model: Classifier, task: Task, core: Collection[Head], rows: Rows) -> pd.DataFrame:
    """What removing core heads from the run's subnetworks costs, against the full model; kept as `removal` table.

    Raises:
        ValueError: as `in_subnetworks`.
    """
    from hc_lens.analysis import in_subnetworks

    rows = rows.settled(pruned.run, model)

    def compute() -> pd.DataFrame:
        return in_subnetworks(
            model,
            task,
            pruned.subnetworks,
            core,
            max_rows=rows.max_rows,
            max_length=pruned.config.max_length,
            batch_size=rows.batch_size,
            seed=rows.seed,
            precision=rows.precision,
        )

    asked = {"core": _names(core), "of": {str(sub.seed): digest_of(sub) for sub in pruned.subnetworks}}
    return remembered(pruned.run, "removal", rows.options(task) | asked, compute)


def dependence_into(
    pruned: Pruned, model: Classifier, task: Task, core: Collection[Head], rows: Rows, *, controls: int = 20
) -> pd.DataFrame:
    """How later heads' outputs change without core heads; kept as `dependence` table.

    As `dependence_on`, with `case_group` and `through`: on at most `max_rows` rows of all in-domain cases, and as many of all
    out-of-domain ones, each through all paths and by the direct path.

    Raises:
        ValueError: as `dependence_on`.
    """
    import pandas as pd

    from hc_lens.analysis import dependence_on
    from hc_lens.metrics import encode_cases

    rows = rows.settled(pruned.run, model)

    def compute() -> pd.DataFrame:
        tables: list[pd.DataFrame] = []
        for group, cases in (("ID", task.in_domain), ("OOD", task.ood)):
            if not cases:
                continue
            length = pruned.config.max_length
            data = encode_cases(model, task, cases=list(cases), max_rows=rows.max_rows, max_length=length, seed=rows.seed).data
            for through in ("all paths", "direct path"):
                table = dependence_on(
                    model,
                    data,
                    pruned.means,
                    core,
                    through=through,
                    controls=controls,
                    max_rows=rows.max_rows,
                    batch_size=rows.batch_size,
                    seed=rows.seed,
                    precision=rows.precision,
                )
                tables.append(table.assign(case_group=group, through=through))
        return pd.concat(tables, ignore_index=True)

    asked = {"core": _names(core), "controls": controls}
    return remembered(pruned.run, "dependence", rows.options(task) | asked, compute)


def _names(heads: Collection[Head]) -> list[str]:
    return [str(head) for head in sorted(set(heads))]


def _ablated(
    pruned: Pruned, model: Classifier, task: Task, groups: Mapping[str, Sequence[Head]], rows: Rows, controls: int
) -> Ablation:
    """These groups and their random sets, ablated where no earlier call has."""
    from hc_lens.analysis import ablate

    with pruned.run.locked("joint", wait=True):
        found = ablate(
            model,
            task,
            pruned.means,
            groups,
            controls=controls,
            max_rows=rows.max_rows,
            max_length=pruned.config.max_length,
            batch_size=rows.batch_size,
            seed=rows.seed,
            known=_known(pruned, model, task, rows),
            precision=rows.precision,
        )
        _keep(pruned, found, task, rows)
    return found


def _known(pruned: Pruned, model: Classifier, task: Task, rows: Rows) -> Ablation:
    """Every set that was ablated on these rows: all single heads at least."""
    from hc_lens.analysis.stored import from_tensors

    run = pruned.run
    if run.file("joint", "safetensors").exists() and run.read_metadata("joint")["options"] == digest(rows.options(task)):
        return from_tensors(run.read_tensors("joint"), run.read_metadata("joint"))
    return singles_into(
        pruned,
        model,
        task,
        max_rows=rows.max_rows,
        batch_size=rows.batch_size,
        precision=rows.precision,
        seed=rows.seed,
    )


def _keep(pruned: Pruned, found: Ablation, task: Task, rows: Rows) -> None:
    from hc_lens.analysis.stored import to_tensors

    tensors, metadata = to_tensors(found)
    pruned.run.write_tensors("joint", tensors, metadata | {"options": digest(rows.options(task))})
