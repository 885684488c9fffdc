"""An ablation survives being stored: the same tables, and nothing measured twice."""

import numpy as np
import pandas as pd
import pytest

from hc_lens.analysis.effects import Ablation, CaseRows
from hc_lens.analysis.stored import from_tensors, to_tensors
from hc_lens.units import Head, Mlp


def ablation():
    rng = np.random.default_rng(0)

    def rows():
        return {"accuracy": (rng.random(7) > 0.4).astype(np.float32), "margin": rng.normal(size=7).astype(np.float32)}

    a, b = Head(0, 1), Mlp(1)
    return Ablation(
        groups={"both": (a, b), str(a): (a,)},
        controls={"both": [(Head(0, 0), Head(0, 2))]},
        cases=(CaseRows("id", "ID", 0, 3, 0.25), CaseRows("ood", "OOD", 3, 7, 0.0)),
        full=rows(),
        ablated={units: rows() for units in ((a, b), (a,), (b,), (Head(0, 0), Head(0, 2)), (Head(0, 0),), (Head(0, 2),))},
    )


def test_round_trip_gives_the_same_tables():
    before = ablation()
    after = from_tensors(*to_tensors(before))
    pd.testing.assert_frame_equal(after.table(), before.table())
    pd.testing.assert_frame_equal(after.super_additivity(), before.super_additivity())
    assert after.groups == before.groups
    assert set(after.ablated) == set(before.ablated)


def test_missing_metadata_is_an_error():
    tensors, metadata = to_tensors(ablation())
    del metadata["cases"]
    with pytest.raises(KeyError, match="cases"):
        from_tensors(tensors, metadata)
