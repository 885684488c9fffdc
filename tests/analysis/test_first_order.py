"""The first-order estimate of ablation: exact where the model is linear in its gates, a derivative everywhere."""

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import BertConfig

from hc_lens.analysis import Ablation, ablate, first_order_effects, rank_correlation, single_heads
from hc_lens.analysis.effects import CaseRows
from hc_lens.data.batches import Batch, encode_tokens
from hc_lens.gates import gate_edits
from hc_lens.means import ActivationMeans, MeansError
from hc_lens.metrics import predict
from hc_lens.models import load_model, new_model
from hc_lens.sample import Sample
from hc_lens.units import Head, Mlp
from tests.analysis.planted import WORDS, A, B, PlantedClassifier, planted_task, tokenizer
from tests.micro import micro_model
from tests.models.tiny import FAMILIES, TINY, transformers_model

TASK = planted_task()
BERT = BertConfig(
    hidden_size=24,
    num_hidden_layers=3,
    num_attention_heads=4,
    intermediate_size=32,
    vocab_size=len(WORDS),
    initializer_range=0.2,
)


def first_logit(logits: Tensor, batch: Batch) -> Tensor:
    return logits[:, 0]


def all_units(means: ActivationMeans) -> list[tuple[Head] | tuple[Mlp]]:
    return [*single_heads(means), *((Mlp(layer),) for layer in range(means.n_layers))]


def test_a_model_that_is_linear_in_its_gates_is_worked_out_by_hand():
    """Unit (l, u) writes weight * (10 l + u + 1) for token 1, twice that for token 2; its mean over 1, 2, 2, 1 is 1.5 times."""
    model, data = micro_model(), encode_tokens(torch.tensor([[1, 2], [2, 1]]))
    means = ActivationMeans.collect(model, data)
    rows = encode_tokens(torch.tensor([[2, 2], [1, 1], [0, 2]]))
    estimate = first_order_effects(model, rows, means, metric=first_logit)
    for unit, weighted in ((Head(0, 0), 1.0), (Head(0, 1), -2.0), (Mlp(0), 1.5), (Head(1, 1), 12 * 0.2), (Mlp(1), -1.3)):
        departs = np.array([4 - 3, 2 - 3, 2 - 3])  # twice, once, and never plus twice; the mean at two positions is 3
        found = estimate.effect((unit,), "metric", estimate.cases[0])
        np.testing.assert_allclose(found, weighted * departs, atol=1e-5)
    exact = ablate(model, rows, means, all_units(means), metric=first_logit)
    for (unit,) in all_units(means):
        np.testing.assert_allclose(estimate.ablated[(unit,)]["metric"], exact.ablated[(unit,)]["metric"], atol=1e-4)
    table = rank_correlation(estimate, exact)
    assert table[["case", "scale", "n", "units"]].values.tolist() == [["data", "metric", 3, 6]]
    assert table["spearman"].item() == pytest.approx(1)
    assert (model.values.grad, model.weights.grad) == (None, None)


def test_planted_effects_come_out_and_what_only_shows_in_a_pair_does_not():
    model = PlantedClassifier({A: 1.0, B: 2.0}, interaction=3.0)
    means = ActivationMeans.collect(model, TASK.train, kind="zero")
    table = first_order_effects(model, TASK, means, sample=Sample(batch_size=4)).table().set_index(["group", "case"])
    for unit, effect in ((A, 1.0), (B, 2.0), (Head(2, 2), 0.0), (Mlp(1), 0.0)):
        found = table.loc[(str(unit), "ood")]
        assert (found["scale"], found["n"], found["size"], found["case_group"]) == ("margin", 10, 1, "OOD")
        assert (found["effect"], found["low"], found["high"]) == pytest.approx((effect,) * 3, abs=1e-6)
    assert len(table) == 2 * (3 * 4 + 3)
    full = ablate(model, TASK, means, [[A]]).table().set_index(["group", "case", "scale"])
    assert table.loc[(str(A), "dev"), "full"] == pytest.approx(full.loc[(str(A), "dev", "margin"), "full"])


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_the_finite_difference_of_each_rows_gate(family: str):
    model = load_model(hf_model=transformers_model(family))
    rows = encode_tokens(torch.randint(3, 30, (3, 7)))
    means = ActivationMeans.collect(model, rows)
    estimate = first_order_effects(model, rows, means, metric=first_logit, sample=Sample(batch_size=2))
    n_heads = TINY[family].n_heads
    for unit, place in ((Head(0, 1), (0, 1)), (Head(2, 3), (2, 3)), (Mlp(1), (1, n_heads)), (Mlp(2), (2, n_heads))):
        ends: list[Tensor] = []
        for step in (1e-2, -1e-2):
            gates = torch.ones(1, 3, n_heads + 1)
            gates[0][place] += step
            ends.append(predict(model, rows, edits=gate_edits(means, gates))[:, 0])
        slope = (ends[0] - ends[1]) / 2e-2
        found = torch.from_numpy(estimate.effect((unit,), "metric", estimate.cases[0])).float()
        torch.testing.assert_close(found, slope, atol=5e-3, rtol=2e-2)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_it_ranks_units_much_as_ablation_does_whatever_the_batches():
    model = new_model(BERT, labels=("yes", "no"), tokenizer=tokenizer(), seed=3)
    means = ActivationMeans.collect(model, TASK.train)
    exact = ablate(model, TASK, means, all_units(means))
    estimate = first_order_effects(model, TASK, means, sample=Sample(batch_size=7))
    table = rank_correlation(estimate, exact)
    assert table["scale"].tolist() == ["margin", "margin"]
    assert table["units"].tolist() == [15, 15]
    assert (table["spearman"] > 0.8).all()
    assert (table["low"] <= table["spearman"] + 0.05).all()
    assert (table["low"] <= table["high"]).all()
    alone = first_order_effects(model, TASK, means, sample=Sample(batch_size=1))
    for units, values in alone.ablated.items():
        np.testing.assert_allclose(values["margin"], estimate.ablated[units]["margin"], atol=1e-5)


def by_hand(effects: dict[Head, list[float]], cases: tuple[CaseRows, ...]) -> Ablation:
    full = np.zeros(cases[-1].stop)
    return Ablation(
        groups={str(head): (head,) for head in effects},
        controls={},
        cases=cases,
        full={"margin": full},
        ablated={(head,): {"margin": full - np.asarray(values)} for head, values in effects.items()},
    )


def test_rank_correlation_is_over_the_units_that_both_have_and_case_by_case():
    cases = (CaseRows("a", "ID", 0, 2, 0.0), CaseRows("b", "OOD", 2, 4, 0.0))
    heads = [Head(0, i) for i in range(4)]
    one = by_hand({head: [i, i, i, i] for i, head in enumerate(heads)}, cases)
    other = by_hand({head: [10 * i, 10 * i, -i, -i] for i, head in enumerate(heads[:3])}, cases)
    table = rank_correlation(one, other, n_bootstrap=50)
    assert table["spearman"].tolist() == pytest.approx([1, -1])
    assert table["units"].tolist() == [3, 3]
    assert table[["low", "high"]].values.tolist() == [[pytest.approx(1)] * 2, [pytest.approx(-1)] * 2]
    level = by_hand(dict.fromkeys(heads, [1.0] * 4), cases)
    assert rank_correlation(one, level)["spearman"].isna().all()
    with pytest.raises(ValueError, match="of different rows"):
        rank_correlation(one, by_hand({heads[0]: [1.0, 2.0]}, cases[:1]))
    with pytest.raises(ValueError, match="at least two single units that both have, got 1"):
        rank_correlation(one, by_hand({heads[0]: [1.0] * 4}, cases))


def test_what_it_refuses():
    model = micro_model()
    rows = encode_tokens(torch.tensor([[1, 2]]))
    means = ActivationMeans.collect(model, rows)
    with pytest.raises(ValueError, match="needs metric="):
        first_order_effects(model, rows, means)  # pyright: ignore[reportCallIssue, reportArgumentType]
    with pytest.raises(ValueError, match=r"one value per row, \(1,\), it returned \(1, 2\)"):
        first_order_effects(model, rows, means, metric=lambda logits, batch: logits)
    with pytest.raises(MeansError):
        first_order_effects(PlantedClassifier({}), TASK, means)
