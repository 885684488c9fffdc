"""How each core head develops over fine-tuning: what it attends to and what its ablation costs, checkpoint by checkpoint."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hc_lens.tables import require_columns, require_once
from hc_lens.units import Head

_COLUMNS = ("step", "layer", "head", "unit", "quantity", "value", "low", "high")


def core_head_development(
    heads: Sequence[Head],
    attention: pd.DataFrame | None = None,
    ablation: pd.DataFrame | None = None,
    *,
    relations: Sequence[str] = ("overlap",),
    scale: str = "accuracy",
) -> pd.DataFrame:
    """Attention scores and ablation effects of some heads over checkpoints, as one tidy table.

    One row per head, checkpoint and quantity: `step`, `layer`, `head`, `unit` ("L4.H0"), `quantity` ("overlap attention",
    "ablation effect ID", "ablation effect OOD"), `value`, `low`, `high` (95 %). The effect of a group is the mean over its
    cases; since cases share no rows, its interval combines theirs in quadrature.

    Args:
        heads: those to follow, such as the core's.
        attention: `step`, `layer`, `head`, `relation`, `score`, `low`, `high`: attention scores of every checkpoint.
        ablation: `step`, and the table of `Ablation.table()` at every checkpoint (full - ablated: positive is damage).
        relations: whose scores are taken.
        scale: of the ablation's effects: "accuracy", "margin" or "metric".

    Raises:
        ValueError: for no heads or no table; a missing column; a head, relation or scale that a table lacks; or several rows
            of one head, checkpoint and relation (or case).
    """
    if not heads:
        raise ValueError("no heads to follow: give at least one")
    if attention is None and ablation is None:
        raise ValueError("neither attention scores nor ablation effects were given: there is nothing to follow")
    parts: list[pd.DataFrame] = []
    if attention is not None:
        parts += [_attention(attention, heads, relation) for relation in relations]
    if ablation is not None:
        parts.append(_effects(ablation, heads, scale))
    table = pd.concat(parts, ignore_index=True)
    order = {str(head): rank for rank, head in enumerate(heads)}
    table = table.assign(rank=table["unit"].map(order)).sort_values(["rank", "quantity", "step"], kind="stable")
    return table[list(_COLUMNS)].reset_index(drop=True)


def _attention(table: pd.DataFrame, heads: Sequence[Head], relation: str) -> pd.DataFrame:
    require_columns(table, ("step", "layer", "head", "relation", "score", "low", "high"), "the attention table")
    rows = table[table["relation"] == relation]
    if rows.empty:
        known = ", ".join(sorted(set(table["relation"].astype(str))))
        raise ValueError(f"the attention table has no relation {relation!r}; it has {known}")
    rows = rows.assign(unit=[str(Head(int(a), int(b))) for a, b in zip(rows["layer"], rows["head"], strict=True)])
    rows = _of_heads(rows, heads, ["unit", "step"], "attention table")
    return rows.rename(columns={"score": "value"}).assign(quantity=f"{relation} attention")[list(_COLUMNS)]


def _effects(table: pd.DataFrame, heads: Sequence[Head], scale: str) -> pd.DataFrame:
    require_columns(table, ("step", "group", "case", "case_group", "scale", "effect", "low", "high"), "the ablation table")
    rows = table[table["scale"] == scale]
    if rows.empty:
        known = ", ".join(sorted(set(table["scale"].astype(str))))
        raise ValueError(f"the ablation table has no scale {scale!r}; it has {known}")
    rows = _of_heads(rows.rename(columns={"group": "unit"}), heads, ["unit", "step", "case"], "ablation table")
    found = [
        _mean_effect(part) | {"unit": unit, "step": step, "quantity": f"ablation effect {group}".rstrip()}
        for (unit, step, group), part in rows.groupby(["unit", "step", "case_group"], sort=False)
    ]
    place = {str(head): head for head in heads}
    effects = pd.DataFrame(found)
    effects["layer"] = [place[unit].layer for unit in effects["unit"]]
    effects["head"] = [place[unit].index for unit in effects["unit"]]
    return effects[list(_COLUMNS)]


def _mean_effect(part: pd.DataFrame) -> dict[str, object]:
    value, n = float(part["effect"].mean()), len(part)
    down = float(np.sqrt(((part["effect"] - part["low"]) ** 2).sum(skipna=False))) / n
    up = float(np.sqrt(((part["high"] - part["effect"]) ** 2).sum(skipna=False))) / n
    return {"value": value, "low": value - down, "high": value + up}


def _of_heads(rows: pd.DataFrame, heads: Sequence[Head], keys: Sequence[str], what: str) -> pd.DataFrame:
    wanted = [str(head) for head in heads]
    present = set(rows["unit"])
    if lacking := [name for name in wanted if name not in present]:
        raise ValueError(f"the {what} has no row for {lacking[0]}")
    rows = rows[rows["unit"].isin(wanted)]
    require_once(rows, keys, f"the {what}")
    return rows
