"""The benches of compact models and of evaluation run at tiny sizes, and report what they promise."""

import json
import sys

import pytest
import torch

from experiments.bench import batches, compact_model, evaluation_growth
from experiments.bench.timing import Cost
from experiments.bench.workloads import bert
from hc_lens.hooks import hooked
from hc_lens.means import ActivationMeans
from hc_lens.models import load_model
from tests.test_bench import pairs, small  # noqa: F401  # a fixture


def test_compact_model_reports_ratios_weights_and_sizes(pairs, monkeypatch):  # noqa: F811
    monkeypatch.setattr(batches, "drawn_pairs", lambda vocab: pairs)
    setting = compact_model.Setting(batches=2, single_rows=3, rounds=1, batch=8, hf_config=small())
    found = json.loads(compact_model.measure(setting, quick=True).splitlines()[-1])
    assert found["bench"] == "compact_model"
    for name in ("heads", "both"):
        for ratio in (
            f"{name}_over_whole",
            f"{name}_over_{name}_gated",
            f"{name}_over_whole_single",
            f"{name}_over_whole_bf16",
        ):
            assert found[ratio] > 0
            assert found["wall"][ratio] > 0
    assert 1 > found["weights"]["heads"] > found["weights"]["both"] > 0
    assert found["removed"] == {"heads": {"heads": 0.75, "mlps": 0.0}, "both": {"heads": 0.75, "mlps": 0.5}}
    assert found["mib_on_disk"]["both"] < found["mib_on_disk"]["whole"] * 1.5
    assert found["threads"] == torch.get_num_threads()


def test_the_compact_models_of_the_bench_answer_as_the_gated_ones(pairs):  # noqa: F811
    whole = load_model(hf_model=bert(attention="sdpa", config=small()))
    batch = pairs.batch(range(8))
    for sub in compact_model.subnetworks(whole, ActivationMeans.collect(whole, pairs)).values():
        with hooked(whole, sub.edits()), torch.no_grad():
            expected = whole(batch)
        torch.testing.assert_close(sub.compact(whole)(batch), expected, atol=1e-5, rtol=0)


def test_evaluation_growth_reports_time_memory_and_subnetworks(monkeypatch):
    measured = {8: {"peak": 1000, "above": 100, "data": 80}, 128: {"peak": 1500, "above": 700, "data": 1280}}
    monkeypatch.setattr(evaluation_growth, "_in_child", measured.__getitem__)
    setting = evaluation_growth.Setting(layers=1, rows=4, memory_rows=8, subnetworks=2, rounds=1, width=64)
    found = json.loads(evaluation_growth.measure(setting, quick=True).splitlines()[-1])
    assert found["rows"] == {"1n": 4, "4n": 16, "16n": 64, "subnetworks": 16}
    assert found["seconds_16n_over_n"] > 0
    assert found["subnetworks"] == 2
    if sys.platform.startswith("linux"):
        memory = {"peak_ratio": 1.5, "growth_bytes_per_row": 5.0, "data_bytes_per_row": 10.0, "rows": 8, "more_rows": 128}
        assert found["memory"] == memory


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_the_peak_of_an_evaluation_is_read_in_a_process_of_its_own():
    found = evaluation_growth._in_child(20)
    assert found["peak"] > found["above"]
    assert 20 * 5 * 30 < found["data"] < 20 * 5 * 70, "about 39 tokens a row, in 5 bytes each, and lengths and labels"


def test_every_size_of_a_drawn_task_has_the_same_lengths():
    means = [sum(len(text.split()) for text in _words(n)) / n for n in (64, 256, 1024)]
    assert max(means) - min(means) < 0.2
    assert means[0] == pytest.approx(36, abs=1), "39 tokens with [CLS] and twice [SEP]"


def _words(n: int) -> tuple[str, ...]:
    split = evaluation_growth.drawn_task(n).train
    return split.first + split.second


def test_what_subnetworks_add_is_over_as_many_full_passes():
    full, together = [Cost(2.0, 1.0), Cost(2.0, 1.0)], [Cost(5.0, 1.0), Cost(8.0, 1.0)]
    assert evaluation_growth.added_per_pass(together, full, n=3) == pytest.approx(0.75)
