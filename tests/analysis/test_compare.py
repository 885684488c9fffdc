"""Two sets of subnetworks side by side, on masks small enough to count by hand."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import t

from hc_lens.analysis import accuracy_difference, compare_runs, shared_over, spearman
from hc_lens.statistics import welch_interval
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head
from tests.analysis.masks import of_mask, sub

# Cores: L0.H0 L0.H1 L1.H0 in the first, L0.H0 L1.H0 L1.H1 in the second.
FIRST = [sub("1110.1", "1000.1", seed=1), sub("1100.1", "1010.1", seed=2), sub("1101.1", "1000.1", seed=3)]
SECOND = [sub("1000.1", "1110.1", seed=1), sub("1000.1", "1101.1", seed=2), sub("1010.1", "1100.1", seed=4)]


def mean_of(pairs: pd.DataFrame, kind: str) -> float:
    return float(pairs.set_index("kind").loc[kind, "mean"])


def test_the_cores_and_what_they_share():
    found = compare_runs(FIRST, SECOND, names=("50 %", "70 %"))
    assert found.cores.heads == (Head(0, 0), Head(1, 0))
    assert found.cores.jaccard.loc["50 %", "70 %"] == pytest.approx(2 / 4)
    frequency = found.frequency.set_index(["layer", "head"])
    assert frequency["core"].to_dict() == {
        (0, 0): "both",
        (0, 1): "50 %",
        (0, 2): "neither",
        (0, 3): "neither",
        (1, 0): "both",
        (1, 1): "70 %",
        (1, 2): "neither",
        (1, 3): "neither",
    }
    assert list(frequency.loc[(0, 1), ["first", "first_of", "second", "second_of"]]) == [3, 3, 0, 3]
    assert found.rank == spearman(FIRST, SECOND)


def test_the_null_takes_each_core_at_random_places_of_its_layers():
    """Layer 0: of four heads two and one; layer 1: one and two. One shared in each: 1/2 * 1/2, as often as not both."""
    null = compare_runs(FIRST, SECOND).cores
    assert null.chance.mean == pytest.approx(1)
    assert null.p_value == pytest.approx(1 / 4)
    same = shared_over([FIRST, FIRST])
    assert same.p_value == pytest.approx(1 / 6 * 1 / 4), "the least possible: all of 2 in 4 and of 1 in 4 shared"


def test_jaccard_within_and_between_sets_keeps_pairs_of_one_seed_apart():
    found = compare_runs(FIRST, SECOND)
    # FIRST: heads {0 1 2 | 0}, {0 1 | 0 2}, {0 1 3 | 0}: 3 shared of 5 in each pair.
    assert mean_of(found.pairs, "within first") == pytest.approx(3 / 5)
    # SECOND: {0 | 0 1 2}, {0 | 0 1 3}, {0 2 | 0 1}: 3 of 5 in each pair.
    assert mean_of(found.pairs, "within second") == pytest.approx(3 / 5)
    # Same seed: 1 with 1 {0 | 0}: 2 of 6; 2 with 2 {0 | 0}: 2 of 6.
    assert mean_of(found.pairs, "between, same seed") == pytest.approx(2 / 6)
    table = found.pairs.set_index("kind")
    assert list(table["n"]) == [3, 3, 7, 2, 13]
    by_hand = found.similarity.to_numpy()[:3, 3:].sum() - 2 * 2 / 6
    assert mean_of(found.pairs, "between") == pytest.approx(by_hand / 7)
    assert mean_of(found.pairs, "within - between") == pytest.approx(3 / 5 - by_hand / 7)
    assert (table["low"] <= table["mean"] + 1e-12).all()
    assert (table["mean"] <= table["high"] + 1e-12).all()
    assert list(found.similarity.index)[::3] == ["first, seed 1", "second, seed 1"]


def test_two_seeds_have_no_interval_and_one_has_no_pair():
    table = compare_runs(FIRST[:2], SECOND).pairs.set_index("kind")
    assert table[["low", "high"]].isna().all().all()
    single = compare_runs(FIRST[:1], SECOND[1:]).pairs.set_index("kind")
    assert "within first" not in single.index
    assert single.loc["between", "n"] == 2


def test_sets_that_differ_are_more_alike_within_than_between():
    generator = np.random.default_rng(0)

    def runs(favoured: int, first_seed: int) -> list[Subnetwork]:
        kept = generator.random((6, 4, 9)) < 0.2
        kept[:, :, favoured : favoured + 3] = True
        return [of_mask(torch.from_numpy(mask), first_seed + i) for i, mask in enumerate(kept)]

    apart = compare_runs(runs(0, 1), runs(5, 11)).pairs.set_index("kind")
    assert apart.loc["within - between", "low"] > 0
    alike = compare_runs(runs(0, 1), runs(0, 11)).pairs.set_index("kind")
    assert alike.loc["within - between", "low"] < 0.05
    assert "between, same seed" not in alike.index


def test_what_is_shared_over_several_sets():
    found = shared_over([FIRST, SECOND, FIRST], names=("a", "b", "c"))
    assert found.heads == (Head(0, 0), Head(1, 0))
    assert found.jaccard.loc["a", "c"] == 1
    heads = zip(found.frequency["layer"], found.frequency["head"], strict=True)
    counted = dict(zip(heads, found.frequency["count"], strict=True))
    assert counted == {(0, 0): 3, (1, 0): 3, (0, 1): 2, (1, 1): 1}
    assert set(found.frequency["of"]) == {3}


masks = st.lists(st.lists(st.booleans(), min_size=10, max_size=10), min_size=1, max_size=4)


@given(masks, masks)
@settings(max_examples=40)
def test_comparing_is_symmetric_and_a_set_is_like_itself(rows, others):
    a, b = ([of_mask(torch.tensor(row).view(2, 5), i) for i, row in enumerate(bits)] for bits in (rows, others))
    there, back = compare_runs(a, b, n_bootstrap=5), compare_runs(b, a, n_bootstrap=5)
    assert there.cores.heads == back.cores.heads
    assert there.cores.p_value == pytest.approx(back.cores.p_value)
    assert there.cores.jaccard.iloc[0, 1] == back.cores.jaccard.iloc[0, 1]
    assert np.allclose(there.similarity, there.similarity.T)
    assert np.allclose(np.diag(there.similarity), 1)
    itself = shared_over([a, a])
    assert itself.jaccard.iloc[0, 1] == 1
    assert itself.heads == itself.cores[0].heads


def test_p_values_of_unrelated_cores_are_not_small():
    generator = np.random.default_rng(0)
    values = []
    for _ in range(150):
        cores = []
        for seed in (1, 2):
            kept = generator.permuted(np.broadcast_to(np.arange(13) < 6, (8, 13)).copy(), axis=-1)
            kept[:, 12] = True
            cores.append([of_mask(torch.from_numpy(kept), seed)])
        values.append(shared_over(cores).p_value)
    assert np.mean(np.array(values) < 0.05) < 0.1
    assert 0.4 < np.mean(values) < 0.75


def evaluation(accuracies: dict[str, list[float]], n: int = 100) -> pd.DataFrame:
    rows = [
        (name, case, "ID" if case == "matched" else "OOD", n, value, value)
        for case, values in accuracies.items()
        for name, value in [("full", 0.99), *((f"seed {i}", v) for i, v in enumerate(values))]
    ]
    return pd.DataFrame(rows, columns=["subnetwork", "case", "group", "n", "accuracy", "agreement"])


def test_differences_of_means_over_seeds_by_case():
    first = evaluation({"matched": [0.8, 0.8, 0.8], "a": [0.2, 0.3, 0.4], "b": [0.1, 0.1, 0.1]})
    second = evaluation({"matched": [0.9, 0.9], "a": [0.5, 0.7], "b": [0.2, 0.0]})
    table = accuracy_difference(first, second).set_index("case")
    assert list(table.index) == ["matched", "a", "b", "mean of 2 OOD cases"]
    assert list(table["difference"]) == pytest.approx([0.1, 0.3, 0, 0.15])
    assert list(table.loc["matched", ["low", "high"]]) == pytest.approx([0.1, 0.1]), "no spread, no width"
    assert list(table.loc["a", ["n_first", "n_second"]]) == [3, 2]
    back = accuracy_difference(second, first).set_index("case")
    assert list(back["difference"]) == pytest.approx(list(-table["difference"]))
    assert list(back["low"]) == pytest.approx(list(-table["high"]))


def test_welch_against_its_own_arithmetic():
    """Variances 0.01 of three and 0.02 of two: error² = 0.01/3 + 0.01; Welch's degrees of freedom by hand."""
    low, high = welch_interval(np.array([0.2, 0.3, 0.4]), np.array([0.5, 0.7]))
    error2 = 0.01 / 3 + 0.02 / 2
    freedom = error2**2 / ((0.01 / 3) ** 2 / 2 + (0.02 / 2) ** 2 / 1)
    assert (low + high) / 2 == pytest.approx(0.3)
    assert high - 0.3 == pytest.approx(t.ppf(0.975, freedom) * math.sqrt(error2))


def test_a_failed_run_is_missing_and_one_seed_has_no_interval():
    first = evaluation({"a": [0.2, math.nan, 0.4], "b": [0.2, 0.2, 0.4]})
    table = accuracy_difference(first, evaluation({"a": [0.5], "b": [0.1], "c": [0.3]})).set_index("case")
    assert list(table["n_first"]) == [2, 3, 2]
    assert table.loc["a", "difference"] == pytest.approx(0.2)
    assert math.isnan(table.loc["a", "low"])
    assert "c" not in table.index, "only cases of both are compared"
    assert accuracy_difference(first, first, column="agreement")["difference"].tolist() == [0, 0, 0]


def test_bad_input_names_what_is_wrong():
    with pytest.raises(ValueError, match="at least two sets"):
        shared_over([FIRST])
    with pytest.raises(ValueError, match=r"needs a name of its own, got \['a', 'a'\]"):
        shared_over([FIRST, SECOND], names=("a", "a"))
    with pytest.raises(ValueError, match=r"has a mask of shape \(1, 4\)"):
        compare_runs(FIRST, [sub("110.1", seed=1)])
    with pytest.raises(ValueError, match=r"k must be in 1\.\.3"):
        compare_runs(FIRST, SECOND, k=4)
    with pytest.raises(ValueError, match="bootstrap draws must be positive, got 0"):
        compare_runs(FIRST, SECOND, n_bootstrap=0)
    table = evaluation({"a": [0.1, 0.2]})
    with pytest.raises(ValueError, match=r"no case in common: the first has \['a'\], the second \['b'\]"):
        accuracy_difference(table, evaluation({"b": [0.1]}))
    with pytest.raises(ValueError, match="the second evaluation has no subnetworks"):
        accuracy_difference(table, table[table["subnetwork"] == "full"])
    with pytest.raises(ValueError, match=r"the first evaluation needs the columns .*'margin'"):
        accuracy_difference(table, table, column="margin")
    with pytest.raises(ValueError, match="several rows for subnetwork seed 0, case a: give those of one sparsity"):
        accuracy_difference(pd.concat([table, table]), table)
