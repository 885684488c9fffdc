"""Which heads of a core add up, which stand in for each other: all pairs, ablated alone and together."""

import dataclasses
from collections.abc import Collection
from itertools import combinations

import pandas as pd

from hc_lens.analysis.domains import by_domain
from hc_lens.analysis.effects import Ablation
from hc_lens.units import Head, parse

TOGETHER = "all together"
"""What all heads of a core are called where they are ablated jointly beside each alone."""

_COLUMNS = (
    *("a", "b", "case", "case_group", "scale", "effect_a", "effect_b", "joint", "interaction", "low", "high", "floor_limited"),
    *("controls", "control_mean", "control_low", "control_high", "control_p"),
)


def core_pairs(heads: Collection[Head]) -> list[tuple[Head, Head]]:
    """Every pair of these heads, to be ablated together: groups for `ablate`.

    Raises:
        ValueError: for fewer than two different heads.
    """
    ordered = sorted(set(heads))
    if len(ordered) < 2:
        raise ValueError(f"pairs need at least two different heads, got {[str(head) for head in ordered]}")
    return list(combinations(ordered, 2))


def alone_and_together(heads: Collection[Head]) -> dict[str, tuple[Head, ...]]:
    """Each head as a group named by itself, and all of them as `TOGETHER` where there are several.

    Raises:
        ValueError: for no heads.
    """
    ordered = tuple(sorted(set(heads)))
    if not ordered:
        raise ValueError("no heads given: name at least one, such as those of a core")
    return {str(head): (head,) for head in ordered} | ({TOGETHER: ordered} if len(ordered) > 1 else {})


def interactions(ablation: Ablation, n_bootstrap: int = 2_000, seed: int = 0) -> pd.DataFrame:
    """The interaction of every pair of heads that was ablated: effect of both together minus the effects of each alone.

    Positive: together they do more damage than one by one (either can stand in for the other). Negative: their damage overlaps
    (ablating one already breaks what the other works on), or, in accuracy, the floor hides it. One row per pair, scale and
    place, a place being a case, the mean over a group's cases ("ID mean", "OOD mean"), or "OOD - ID":

    | column                    | meaning                                                                  |
    |---------------------------|--------------------------------------------------------------------------|
    | `a`, `b`                  | the two heads, the earlier one first                                       |
    | `case`, `case_group`, `scale` | as in `by_domain`                                                      |
    | `effect_a`, `effect_b`, `joint` | effects of ablating each alone, and both                             |
    | `interaction`, `low`, `high` | joint - effect_a - effect_b, with its paired 95 % bootstrap interval    |
    | `floor_limited`           | whether the floor of accuracy hides the answer (on any case of a mean)      |
    | `controls`, `control_mean`, `control_low`, `control_high`, `control_p` | the same of layer-matched random pairs |

    The intervals are those of `by_domain`, each pair's by itself: of 36 pairs without any interaction about two lie off zero.

    Raises:
        ValueError: if no pair of heads was ablated.
    """
    pairs = {
        name: units
        for name, units in ablation.groups.items()
        if len(units) == 2 and all(isinstance(unit, Head) for unit in units)
    }
    if not pairs:
        raise ValueError(f"no pair of heads among the {len(ablation.groups)} groups that were ablated: add core_pairs(heads)")
    singles = {str(unit): (unit,) for units in pairs.values() for unit in units}
    found = by_domain(dataclasses.replace(ablation, groups={**singles, **pairs}), n_bootstrap, seed)
    effects = found[found["quantity"] == "effect"].set_index(["set", "case", "scale"])["value"]
    table = found[found["quantity"] == "excess"].rename(columns={"value": "interaction"})
    alone = {f"effect_{which}": [str(pairs[name][i]) for name in table["set"]] for i, which in enumerate("ab")}
    return table.assign(
        a=alone["effect_a"],
        b=alone["effect_b"],
        **{
            column: [effects[key] for key in zip(heads, table["case"], table["scale"], strict=True)]
            for column, heads in {**alone, "joint": table["set"]}.items()
        },
    )[list(_COLUMNS)].reset_index(drop=True)


def interaction_matrix(table: pd.DataFrame, case: str, scale: str = "margin") -> pd.DataFrame:
    """The interactions of a place as a symmetric matrix, head by head, with the single effects on its diagonal.

    Args:
        table: of `interactions`.
        case: one of its cases, "ID mean", "OOD mean" or "OOD - ID".
        scale: "margin", "accuracy" or "metric".

    Raises:
        ValueError: if the table has no such case and scale, naming those it has.
    """
    rows = table[(table["case"] == case) & (table["scale"] == scale)]
    if rows.empty:
        raise ValueError(
            f"no interactions on {case!r} in {scale!r}: the cases are {list(dict.fromkeys(table['case']))}, the scales "
            f"{list(dict.fromkeys(table['scale']))}"
        )
    heads = sorted({*rows["a"], *rows["b"]}, key=parse)
    matrix = pd.DataFrame(float("nan"), index=heads, columns=heads)
    for row in rows.to_dict("records"):
        a, b = row["a"], row["b"]
        matrix.loc[a, b] = matrix.loc[b, a] = row["interaction"]
        matrix.loc[a, a], matrix.loc[b, b] = row["effect_a"], row["effect_b"]
    return matrix
