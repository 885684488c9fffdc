"""`evaluate` runs a subnetwork as a compact model where that pays, and reports the same numbers either way."""

from dataclasses import dataclass

import pandas as pd
import pytest
import torch

import hc_lens.models
from hc_lens.hooks import Edit, HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.metrics import evaluate
from hc_lens.models import Classifier, new_model
from hc_lens.precision import Precision
from hc_lens.sample import Sample
from hc_lens.subnetwork import Subnetwork
from tests.analysis.planted import planted_task, tokenizer
from tests.models.tiny import config

TASK = planted_task()
NUMBERS = ["accuracy", "margin", "ece", "agreement", "kl"]


@pytest.fixture(params=["bert", "gpt2"])
def model(request: pytest.FixtureRequest) -> Classifier:
    return new_model(config(request.param), labels=("yes", "no"), tokenizer=tokenizer(), seed=1)


def subnetworks(model: Classifier, kind: str = "mean") -> list[Subnetwork]:
    means = ActivationMeans.collect(model, TASK.train, kind=kind)
    drawn = torch.rand(2, 3, 6, generator=torch.Generator().manual_seed(2))
    return [Subnetwork(mask, means, seed) for seed, mask in enumerate(drawn > 0.4)]


@dataclass
class OnlyEvaluated:
    """What has edits and no smaller model."""

    whole: Subnetwork
    seed: int | None = None
    sparsity: float = 0.5

    def edits(self) -> list[Edit]:
        return self.whole.edits()

    def require_model(self, model: HookedModel) -> None:
        self.whole.require_model(model)


class Passes:
    """How many forward passes the whole model has made."""

    def __init__(self, model: Classifier) -> None:
        self.n = 0
        model.register_forward_hook(self.count)

    def count(self, *call: object) -> None:
        self.n += 1


def table(model: Classifier, subs: list[Subnetwork], precision: Precision = "fp32") -> pd.DataFrame:
    return evaluate(model, TASK, subs, sample=Sample(batch_size=8, precision=precision), trained=False)


@pytest.mark.parametrize(("precision", "atol"), [("fp32", 1e-4), ("bf16", 0.1)])
def test_both_ways_give_the_same_table(
    model: Classifier, precision: Precision, atol: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    subs, passes = subnetworks(model), Passes(model)
    monkeypatch.setattr(hc_lens.models, "compacting_pays", lambda *asked: False)
    gated = table(model, subs, precision)
    gated_passes, passes.n = passes.n, 0
    monkeypatch.setattr(hc_lens.models, "compacting_pays", lambda *asked: True)
    compact = table(model, subs, precision)
    assert passes.n == gated_passes / 3, "the whole model ran for itself only"
    pd.testing.assert_frame_equal(compact.drop(columns=NUMBERS), gated.drop(columns=NUMBERS), atol=0.2)  # intervals, too
    if precision == "fp32":
        pd.testing.assert_frame_equal(compact[NUMBERS], gated[NUMBERS], atol=atol, rtol=0)
    else:
        pd.testing.assert_series_equal(compact["margin"], gated["margin"], atol=atol, rtol=0)
    assert compact["kl"][2:].min() > 1e-3, "the subnetworks differ from the whole model"


def test_a_few_rows_do_not_pay(model: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise AssertionError("built a compact model")

    monkeypatch.setattr(hc_lens.models, "compacted", refuse)
    assert len(table(model, subnetworks(model))) == 6


@pytest.mark.parametrize("kind", ["position", "resample"])
def test_other_ablations_run_gated(model: Classifier, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hc_lens.models, "compacting_pays", lambda *asked: True)
    assert table(model, subnetworks(model, kind))["kl"].notna().all()


def test_what_only_has_edits_runs_gated(model: Classifier, monkeypatch: pytest.MonkeyPatch) -> None:
    subs = subnetworks(model)
    monkeypatch.setattr(hc_lens.models, "compacting_pays", lambda *asked: True)
    expected = table(model, subs)[NUMBERS]
    found = evaluate(model, TASK, [OnlyEvaluated(sub) for sub in subs], sample=Sample(batch_size=8), trained=False)[NUMBERS]
    pd.testing.assert_frame_equal(found, expected, atol=1e-4, rtol=0)


def test_a_loaded_compact_model_is_evaluated_like_any_other(model: Classifier) -> None:
    sub = subnetworks(model)[0]
    alone = evaluate(sub.compact(model), TASK, trained=False)
    pruned = evaluate(model, TASK, [sub], trained=False)[2:].reset_index(drop=True)
    pd.testing.assert_frame_equal(alone[["accuracy", "margin"]], pruned[["accuracy", "margin"]], atol=1e-4, rtol=0)
