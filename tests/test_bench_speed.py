"""The benches of ablations and of parallel seeds run, report what they promise, and compare what gives the same results."""

import json

import pytest
import torch

from experiments.bench import ablation_sweep, batches, parallel_seeds
from experiments.bench.workloads import bert
from hc_lens.data import Encoded
from hc_lens.models import load_model
from tests.test_bench import small


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> Encoded:
    monkeypatch.delenv("HC_LENS_DATA", raising=False)
    monkeypatch.setattr(batches, "ROWS", 96)
    return batches.drawn_pairs(60, 96)


@pytest.mark.slow
def test_ablation_sweep_reports_both_models(pairs: Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "drawn_pairs", lambda vocab: pairs)
    setting = ablation_sweep.Setting(rows=8, batch=4, embedded_rows=8, embedded_batch=4, rounds=1, hf_config=small())
    found = json.loads(ablation_sweep.measure(setting, quick=True).splitlines()[-1])
    assert (found["bench"], found["quick"], found["layers"]) == ("ablation_sweep", True, 2)
    assert found["examples"]["bert_base"] == {"naive": 16, "naive_fused": 16, "ours": 64, "estimate": 64}
    assert set(found["examples"]["embedded"].values()) == {8 * 32}
    for name in ("bert_base", "embedded"):
        for quotient in ("ours_over_naive", "ours_over_naive_fused", "estimate_over_ours"):
            assert found[name][quotient] > 0
            assert found[name]["wall"][quotient] > 0
    assert found["threads"] == torch.get_num_threads()


def test_the_loops_give_the_same_logits(pairs: Encoded) -> None:
    model = load_model(hf_model=bert(attention="sdpa", config=small()))
    ways = ablation_sweep.workloads(model, pairs, 16, one_per_layer=False)
    for name in ("naive", "naive_fused", "ours"):
        with ways[name].ready():
            ways[name].run()
    ablated = torch.stack([torch.from_numpy(values["metric"]) for values in ways["ours"].found.ablated.values()])
    torch.testing.assert_close(ways["naive_fused"].logits, ways["naive"].logits, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(ablated, ways["naive"].logits[:, :, 0], atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_parallel_seeds_reports_both_models_and_the_same_masks(pairs: Encoded, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "drawn_pairs", lambda vocab: pairs)
    setting = parallel_seeds.Setting(seeds=2, steps=3, base_steps=2, budgets=(0.2, 0.001), rounds=1, hf_config=small())
    found = json.loads(parallel_seeds.measure(setting, quick=True).splitlines()[-1])
    assert (found["bench"], found["quick"], found["seeds"]) == ("parallel_seeds", True, 2)
    for name, steps in (("embedded", 3), ("bert_base", 2)):
        assert found[name]["together_over_alone"] > 0
        assert found[name]["wall_together_over_alone"] > 0
        assert found[name]["same_masks"] is True
        assert found[name]["steps"] == steps
    if found["budgets"] is not None:
        assert [row["memory_gib"] for row in found["budgets"]] == [0.001, 0.2]
        assert found["budgets"][0]["runs_together"] == 1
        assert found["budgets"][1]["runs_together"] > 1
