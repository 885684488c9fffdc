"""Wrong labels mapped back: worked by hand, found where planted, and nothing found in errors at random."""

import numpy as np
import pandas as pd
import pytest
import torch

from hc_lens.relations.recovery import SOURCES, recoveries, recovery_shares, recovery_test

PROBE = torch.tensor([[9.0, 3.0, 2.0, 1.0], [4.0, 3.0, 2.0, 1.0], [1.0, 2.0, 3.0, 4.0]])
MODEL = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 9.0], [4.0, 3.0, 2.0, 1.0]])
EVEN = torch.tensor([5, 5, 5, 5])


def test_only_errors_count_and_the_true_answer_is_in_no_ranking():
    table = recoveries(torch.tensor([0, 3, 2]), torch.tensor([1, 1, 2]), PROBE, MODEL, EVEN)
    assert table["fact"].tolist() == [0, 1, 0, 1]
    assert table["k"].tolist() == [1, 1, 2, 2]  # of four answers three are others: the best three are all of them
    # fact 0: the probe puts 0 (true) before 1; the model has 3, 2, 1. fact 1: probe 0, 1; the model puts 3 (true) before 0, 1.
    assert table["probe"].tolist() == [True, False, True, True]
    assert table["model"].tolist() == [False, False, False, True]
    assert table["random"].tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3])
    assert table["frequency"].tolist() == pytest.approx([1 / 3, 1 / 3, 2 / 3, 2 / 3], abs=0.04)


def test_frequent_answers_are_often_drawn_first():
    counts = torch.tensor([2, 8, 30, 60])
    table = recoveries(torch.tensor([0, 3]), torch.tensor([2, 1]), PROBE[:2], MODEL[:2], counts, ks=(1,), draws=20_000)
    assert table["frequency"].tolist() == pytest.approx([30 / 98, 8 / 40], abs=0.015)


def test_a_relation_of_two_answers_says_nothing():
    table = recoveries(torch.tensor([0]), torch.tensor([1]), torch.rand(1, 2), torch.rand(1, 2), torch.tensor([3, 3]))
    assert table.empty
    assert set(SOURCES) < set(table.columns)
    with pytest.raises(ValueError, match="every answer must be trained on"):
        recoveries(torch.tensor([0]), torch.tensor([1]), PROBE[:1], MODEL[:1], torch.tensor([3, 0, 1, 1]))


def errors(n_relations, planted, n=40, n_answers=6, seed=0):
    """Relations whose wrong labels are what the probe ranks first after the truth (planted), or any other answer."""
    generator = torch.Generator().manual_seed(seed)
    tables: list[pd.DataFrame] = []
    for number in range(n_relations):
        true = torch.randint(n_answers, (n,), generator=generator)
        probe, model = torch.randn(2, n, n_answers, generator=generator)
        others = torch.rand(n, n_answers, generator=generator).scatter(1, true[:, None], -1)
        given = (probe.scatter(1, true[:, None], -9) if planted else others).argmax(1)
        counts = torch.full((n_answers,), 5)
        tables.append(recoveries(true, given, probe, model, counts, draws=200).assign(relation=f"r{number}"))
    return pd.concat(tables, ignore_index=True)


def test_errors_that_follow_the_probe_are_found():
    table = errors(5, planted=True)
    shares = recovery_shares(table, n_boot=300).set_index(["k", "source"])
    assert shares.loc[(1, "probe"), "share"] == 1
    assert shares.loc[(1, "random"), "share"] == pytest.approx(0.2)
    assert shares.loc[(2, "model"), "low"] < 0.4 < shares.loc[(2, "model"), "high"]
    first = recovery_test(table, n_boot=300).iloc[0]
    assert (first["k"], first["errors"], first["relations"]) == (1, 200, 5)
    assert first["low"] > 0.5
    assert first["p"] < 1e-10
    assert first["model_only"] == 0


def test_errors_at_random_are_nobodys():
    table = errors(8, planted=False)
    assert (recovery_test(table, n_boot=300)["p"] > 0.05).all()
    shares = recovery_shares(table, n_boot=300)
    for k, rows in shares.groupby("k"):
        assert rows["share"].to_numpy() == pytest.approx(k / 5, abs=0.08)


def test_the_paired_test_counts_errors_that_one_side_alone_has():
    rows = pd.DataFrame(
        {"relation": "a", "k": 1, "probe": [1, 1, 1, 0, 1], "model": [0, 0, 0, 1, 1], "frequency": 0.5, "random": 0.5}
    )
    both = pd.concat([rows, rows.assign(k=2, probe=1, model=1)], ignore_index=True)
    first, second = recovery_test(both).to_dict("records")
    assert (first["probe_only"], first["model_only"], first["difference"]) == (3, 1, pytest.approx(0.4))
    assert first["p"] == pytest.approx(2 * 5 / 16)
    assert np.isnan(first["low"])
    assert (second["difference"], second["p"]) == (0, 1)
