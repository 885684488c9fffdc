"""An ablation as tensors and text, so that a run keeps every row's value and nothing has to be ablated twice."""

import json
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from hc_lens.analysis.effects import Ablation, CaseRows, UnitSet, name_of
from hc_lens.json_text import parse_json
from hc_lens.units import parse

_FULL = "full"
_ROWS = "rows"


def to_tensors(ablation: Ablation) -> tuple[dict[str, Tensor], dict[str, str]]:
    """An ablation's rows as tensors `<scale>/<units>`, Float[Tensor, " row"], and the metadata that `from_tensors` reads.

    The units of the full model's rows are called `full`; the rows' places in the data are the tensor `rows`.
    """
    rows = {_FULL: ablation.full} | {name_of(units): values for units, values in ablation.ablated.items()}
    tensors = {f"{scale}/{name}": torch.from_numpy(v.copy()) for name, values in rows.items() for scale, v in values.items()}
    if ablation.rows is not None:
        tensors[_ROWS] = torch.from_numpy(ablation.rows.copy())
    metadata = {
        "groups": {name: name_of(units) for name, units in ablation.groups.items()},
        "controls": {name: [name_of(units) for units in sets] for name, sets in ablation.controls.items()},
        "cases": [list(case) for case in ablation.cases],
    }
    return tensors, {key: json.dumps(value) for key, value in metadata.items()}


def from_tensors(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> Ablation:
    """The ablation back.

    Raises:
        KeyError: if something is missing.
    """
    groups, controls, cases = (cast("Any", parse_json(metadata[key])) for key in ("groups", "controls", "cases"))
    rows: dict[str, dict[str, np.ndarray]] = {}
    for key, values in tensors.items():
        scale, slash, name = key.partition("/")
        if slash:
            rows.setdefault(name, {})[scale] = values.numpy()
    return Ablation(
        groups={name: _units(text) for name, text in groups.items()},
        controls={name: [_units(text) for text in texts] for name, texts in controls.items()},
        cases=tuple(CaseRows(*case) for case in cases),
        full=rows.pop(_FULL),
        ablated={_units(name): values for name, values in rows.items()},
        rows=tensors[_ROWS].numpy() if _ROWS in tensors else None,
    )


def _units(text: str) -> UnitSet:
    return tuple(parse(name) for name in text.split(" + "))
