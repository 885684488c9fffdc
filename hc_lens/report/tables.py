"""The tables of the main line's report."""

import math
from typing import cast

import pandas as pd

from hc_lens.report.ablation import head_losses, is_head
from hc_lens.report.cells import TextTable, interval_text, number_text, percent_text
from hc_lens.report.inputs import ReportInputs


def accuracy_table(inputs: ReportInputs) -> TextTable:
    """One row per case: the full model's accuracy, and least, mean, most and standard deviation over each sparsity's runs.

    The full model's accuracy has its 95 % interval over rows.
    """
    full = dict(zip(map(str, inputs.full["case"]), _with_intervals(inputs.full, "accuracy"), strict=True))
    columns = ["group", "case", "full [95 %]"]
    for share in inputs.by_sparsity:
        columns += [f"{100 * share:.0f} %: least", "mean", "most", "sd"]
    rows: list[tuple[str, ...]] = []
    for case, group in inputs.group_of.items():
        cells = [group, case, full.get(case, "")]
        for runs in inputs.by_sparsity.values():
            found = runs.loc[runs["case"] == case, "accuracy"]
            cells += [
                percent_text(found.min()),
                percent_text(found.mean()),
                percent_text(found.max()),
                percent_text(found.std()),
            ]
        rows.append(tuple(cells))
    return TextTable("Accuracy by case (%)", tuple(columns), tuple(rows), labels=2)


def run_table(inputs: ReportInputs) -> TextTable:
    """One row per subnetwork: in-domain and out-of-domain accuracy, and its weakest case."""
    rows: list[tuple[str, ...]] = []
    for share, runs in inputs.by_sparsity.items():
        for name in runs["subnetwork"].unique():
            run = runs[runs["subnetwork"] == name]
            means = run.groupby("group")["accuracy"].mean()
            ood = run[run["group"] == "OOD"]
            weakest = str(ood["case"].iloc[int(ood["accuracy"].argmin())]) if len(ood) else ""
            agreed = percent_text(run["agreement"].mean()) if "agreement" in run.columns else ""
            realised = percent_text(run["sparsity"].iloc[0])
            rows.append(
                (
                    f"{100 * share:.0f} %",
                    str(name),
                    weakest,
                    realised,
                    percent_text(means.get("ID")),
                    percent_text(means.get("OOD")),
                    agreed,
                )
            )
    columns = ("set", "subnetwork", "weakest case", "realised sparsity", "ID", "OOD", "agreement with full")
    return TextTable("Every subnetwork (%)", columns, tuple(rows), labels=3)


def training_table(inputs: ReportInputs) -> TextTable:
    """One row per checkpoint, one column per case."""
    training = cast(pd.DataFrame, inputs.training)
    wide = training.pivot_table(index="step", columns="case", values="accuracy", sort=False).sort_index()
    rows = tuple(
        (str(step), *(percent_text(value) for value in row)) for step, row in zip(wide.index, wide.to_numpy(), strict=True)
    )
    return TextTable("Accuracy at each checkpoint (%)", ("step", *map(str, wide.columns)), rows)


def frequency_table(inputs: ReportInputs) -> TextTable:
    """One row per layer, one column per head: runs that keep the head, one number per sparsity."""
    table = inputs.frequency.sort_values(["layer", "head", "sparsity"])
    cells = table.groupby(["layer", "head"])["count"].agg(lambda counts: " / ".join(str(count) for count in counts)).unstack()
    shares = " / ".join(f"{100 * share:.0f} %" for share in sorted(table["sparsity"].unique()))
    title = f"Runs that keep each head ({shares} sparsity; of {int(table['of'].max())} runs)"
    rows = tuple((f"L{layer}", *map(str, row)) for layer, row in zip(cells.index, cells.to_numpy(), strict=True))
    return TextTable(title, ("layer", *(f"H{head}" for head in cells.columns)), rows)


def joint_table(inputs: ReportInputs, first: str, second: str) -> TextTable:
    """How many heads are kept in `i` runs of the first set and `j` of the second, pairs without any left out."""
    joint = cast(pd.DataFrame, inputs.joint)
    shown = joint[joint["heads"] > 0].sort_values(["i", "j"], ascending=False)
    rows = tuple((str(i), str(j), str(heads)) for i, j, heads in zip(shown["i"], shown["j"], shown["heads"], strict=True))
    return TextTable("Heads by how many runs keep them", (f"runs at {first}", f"runs at {second}", "heads"), rows, labels=0)


def effect_table(inputs: ReportInputs, effects: pd.DataFrame) -> TextTable:
    """One row per case, one column per group of units ablated: points of accuracy lost, with their 95 % interval."""
    cells: dict[str, dict[str, str]] = {}
    for case, group, cell in zip(effects["case"], effects["group"], _with_intervals(effects, "effect"), strict=True):
        cells.setdefault(str(case), {})[str(group)] = cell
    groups = dict.fromkeys(map(str, effects["group"]))
    rows = tuple(
        (its, case, *(cells[case].get(group, "") for group in groups)) for case, its in inputs.group_of.items() if case in cells
    )
    return TextTable("Accuracy lost to ablation (points [95 %])", ("group", "case", *groups), rows, labels=2)


def shown_effects(inputs: ReportInputs) -> pd.DataFrame:
    """The effects worth a bar: single core heads and sets as they are, all other single heads as their mean.

    That mean has an interval only where the effects hold one, as `Ablation.table(core)` gives it.
    """
    effects = inputs.accuracy_effects
    core = {str(head) for head in inputs.core.heads}
    other = effects["group"].map(lambda name: is_head(str(name)) and name not in core).astype(bool)
    shown, others = effects[~other], effects[other]
    if others.empty or shown["group"].str.startswith("mean of").any():
        return shown
    by_case = others.groupby("case", sort=False)
    mean = pd.DataFrame(
        {
            "group": f"mean of {others['group'].nunique()} other heads",
            "case": list(by_case.groups),
            "effect": by_case["effect"].mean().to_numpy(),
            "low": math.nan,
            "high": math.nan,
            "case_group": by_case["case_group"].first().to_numpy(),
        }
    )
    return pd.concat([shown, mean], ignore_index=True)


def core_table(inputs: ReportInputs) -> TextTable:
    """One row per core head: runs that keep it at each sparsity, and what losing it costs."""
    counts = inputs.frequency.set_index(["layer", "head", "sparsity"])["count"]
    shares = sorted(inputs.frequency["sparsity"].unique())
    losses = head_losses(inputs)
    rows = []
    for head in inputs.core.heads:
        kept = [str(counts.get((head.layer, head.index, share), "")) for share in shares]
        lost = [percent_text(losses[group].get(str(head))) for group in ("ID", "OOD")]
        rows.append((str(head), *kept, *lost))
    columns = ("head", *(f"runs at {100 * share:.0f} %" for share in shares), "ID lost (points)", "OOD lost (points)")
    return TextTable("The core", columns, tuple(rows))


def additivity_table(inputs: ReportInputs) -> TextTable:
    """One row per set, scale and case: joint and summed loss, their difference with interval, and the control."""
    rows: list[tuple[str, ...]] = []
    for _, row in cast(pd.DataFrame, inputs.additivity).iterrows():
        factor, digits = (100, 1) if row["scale"] == "accuracy" else (1, 2)
        numbers = {
            name: number_text(factor * float(row[name]), digits)
            for name in ("joint", "summed", "excess", "low", "high", "control_low", "control_high")
        }
        rows.append(
            (
                *(str(row[name]) for name in ("set", "scale", "case")),
                *(numbers[name] for name in ("joint", "summed", "excess")),
                f"{numbers['low']} to {numbers['high']}",
                f"{numbers['control_low']} to {numbers['control_high']}" if pd.notna(row["control_low"]) else "",
                "yes" if row["floor_limited"] else "",
            )
        )
    columns = ("set", "scale", "case", "joint", "summed", "excess", "95 % interval", "random sets", "floor-limited")
    return TextTable("Joint and summed losses (accuracy in points, margin in nats)", columns, tuple(rows), labels=3)


def _with_intervals(table: pd.DataFrame, column: str) -> list[str]:
    """Each row's value of a column, with the row's interval."""
    rows = table[[column, "low", "high"]].to_numpy(dtype=float).tolist()
    return [interval_text(*(100 * bound for bound in row), digits=1) for row in rows]
