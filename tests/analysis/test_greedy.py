"""Greedy sets find the heads planted to cost most together, and are not praised for having been chosen."""

import numpy as np
import pytest

from hc_lens.analysis import ablate, greedy_sets, single_heads
from hc_lens.analysis.greedy import GreedyConfig, halves
from hc_lens.means import ActivationMeans
from hc_lens.sample import ALL_ROWS, Sample
from hc_lens.units import Head
from tests.analysis.planted import A, B, PlantedClassifier, planted_task, split

TASK = planted_task()
BIG, SMALL = Head(2, 3), Head(0, 0)


def grown(model, size, candidates=None, task=TASK, sample=ALL_ROWS, **options):
    means = ActivationMeans.collect(model, task.train, kind="zero")
    chosen = [head for (head,) in single_heads(means)] if candidates is None else candidates
    return greedy_sets(model, task, means, chosen, GreedyConfig(size, **options), sample)


def test_the_head_that_adds_most_to_those_before_comes_next():
    """Alone BIG costs 3, A 1.5, B 0, SMALL 1; B's partner A makes it worth 4, so B comes before SMALL."""
    model = PlantedClassifier({BIG: 3.0, A: 1.5, SMALL: 1.0}, interaction=4.0)
    path = grown(model, 4)
    assert path.heads == (BIG, A, B, SMALL)
    table = path.table()
    margin = table[(table["case"] == "OOD mean") & (table["scale"] == "margin")]
    assert margin["size"].tolist() == [1, 2, 3, 4]
    assert margin["added"].tolist() == [str(head) for head in path.heads]
    assert margin["joint"].tolist() == pytest.approx([3.0, 4.5, 8.5, 9.5])
    assert margin["summed"].tolist() == pytest.approx([3.0, 4.5, 4.5, 5.5])
    assert margin["excess"].tolist() == pytest.approx([0.0, 0.0, 4.0, 4.0], abs=1e-5)
    assert set(table["case"]) == {"dev", "ood", "ID mean", "OOD mean", "OOD - ID"}


def test_the_group_decides():
    model = PlantedClassifier({A: 2.0, B: 1.0})
    assert grown(model, 1, group="ID").heads == (A,)
    with pytest.raises(ValueError, match=r"no ID case to choose heads by; the cases are \['ood'\]"):
        grown(model, 1, group="ID", sample=Sample(cases=["ood"]))


def test_what_is_reported_is_on_rows_that_chose_nothing():
    """With effects that are noise, the best of many looks good on the rows that chose it, and only there."""
    rng = np.random.default_rng(0)
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    known = ablate(model, TASK, means, single_heads(means))
    noise = {
        units: {scale: v + (rng.normal(size=len(v)) * 3).astype(np.float32) for scale, v in values.items()}
        for units, values in known.ablated.items()
        if len(units) == 1
    }
    known.ablated.update(noise)  # type: ignore[attr-defined]
    noise_heads = [head for (head,) in single_heads(means) if head != A]
    table = greedy_sets(model, TASK, means, noise_heads, GreedyConfig(1), known=known).table()
    first = table[(table["case"] == "OOD mean") & (table["scale"] == "margin")].iloc[0]
    assert first["chosen"] > 1.0
    assert first["joint"] < first["chosen"] - 0.5


def test_halves_share_no_row_and_keep_every_case():
    model = PlantedClassifier({A: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    whole = ablate(model, TASK, means, [[A]])
    one, other = halves(whole)
    for a, b, case in zip(one.cases, other.cases, whole.cases, strict=True):
        assert (a.name, a.group, a.floor) == (case.name, case.group, case.floor)
        margins = [*one.full["margin"][a.start : a.stop], *other.full["margin"][b.start : b.stop]]
        assert sorted(margins) == sorted(whole.full["margin"][case.start : case.stop])
        assert abs((a.stop - a.start) - (b.stop - b.start)) <= 1
    assert halves(whole, 1)[0].full["margin"].tolist() != one.full["margin"].tolist()


def test_known_sets_are_not_run_again_and_controls_match_the_path():
    model = PlantedClassifier({A: 2.0, B: 1.0})
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    known = ablate(model, TASK, means, [*single_heads(means), [A, B]])
    model.calls = 0
    path = greedy_sets(model, TASK, means, [A, B], GreedyConfig(2), known=known, sample=Sample(batch_size=30))
    assert model.calls == 3, "the full model, to see that the rows are the same, at each step and for the path"
    assert path.heads == (A, B)
    table = grown(model, 2, candidates=[A, B], controls=4).table()
    assert table.set_index("size").loc[2, "controls"].eq(4).all()
    assert table.set_index("size").loc[1, "controls"].eq(0).all()
    margin = table[(table["scale"] == "margin") & (table["size"] == 2)]
    assert margin["control_mean"].tolist() == pytest.approx([0.0] * 5, abs=1e-6)


def test_bad_input_names_what_is_wrong():
    model = PlantedClassifier({A: 1.0})
    for size in (0, 3):
        with pytest.raises(ValueError, match=rf"1\.\.2 of the 2 candidates, got size {size}"):
            grown(model, size, candidates=[A, B])
    one_row = type(TASK)(TASK.name, TASK.labels, TASK.train, TASK.in_domain, {"one": split("one", ["m3"], ["no"])})
    with pytest.raises(ValueError, match="case 'one' has 1 row"):
        grown(model, 1, task=one_row)
