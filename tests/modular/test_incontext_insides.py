"""Insides of in-context learners: circles in the order of logarithms, attention, features; every figure draws its table."""

import math
from collections.abc import Callable

import pandas as pd
import plotly.graph_objects as go
import pytest
import torch
from transformer_lens import HookedTransformer

from hc_lens.modular.incontext.algorithms import agreement, multiples
from hc_lens.modular.incontext.config import ModelConfig
from hc_lens.modular.incontext.evaluation import SETS, accuracy_by_shot, evaluation_sequences, over_training
from hc_lens.modular.incontext.figures_behaviour import agreement_by_shot, phase_map, query_map, shot_curves, training_curves
from hc_lens.modular.incontext.figures_insides import attention_heads, embedding_circle_figure, head_circles_figure
from hc_lens.modular.incontext.insides import (
    attention_maps,
    circularity,
    embedding_circle,
    head_circles,
    head_features,
    matching_attention,
    periodic_neurons,
    principal_components,
    ratio_similarity,
)
from hc_lens.modular.incontext.model import new_transformer
from hc_lens.modular.incontext.sequences import all_queries, answers_of, examples_of
from hc_lens.modular.incontext.tasks import random_tasks, split_examples
from hc_lens.modular.spectrum import discrete_logs

P, SHOTS = 7, 5


@pytest.fixture
def model() -> HookedTransformer:
    return new_transformer(ModelConfig(depth=2, width=16, heads=2, init_std=0.3), P, SHOTS, seed=0)


@pytest.fixture
def tokens() -> torch.Tensor:
    return evaluation_sequences(random_tasks(P, 30, 0), split_examples(P, 0.7, 0), SETS[0], SHOTS, 60, 0).tokens


@pytest.fixture
def queries() -> torch.Tensor:
    return all_queries(torch.tensor([[1, 2], [3, 3], [0, 4], [2, 6]]), torch.tensor([3, 5]), P)


def test_a_circle_in_the_order_of_logarithms_is_found_at_its_frequency() -> None:
    p = 29
    numbers = torch.arange(1, p)
    angle = 2 * math.pi * 3 * discrete_logs(p)[1:] / (p - 1)
    circle = torch.stack([2 * angle.cos(), 2 * angle.sin()], dim=1)
    found = circularity(circle + 5.0, numbers, p)
    assert (found.frequency, found.r2) == (3, pytest.approx(1.0, abs=1e-6))
    assert found.chance < 0.35
    by_size = 2 * math.pi * 3 * numbers / p  # a circle in the order of the numbers themselves is none
    assert circularity(torch.stack([by_size.cos(), by_size.sin()], dim=1), numbers, p).r2 < 0.5


@pytest.mark.parametrize(("p", "numbers"), [(3, [1, 2]), (5, [0, 1])])
def test_circularity_needs_numbers_with_logarithms_and_enough_of_them(p: int, numbers: list[int]) -> None:
    with pytest.raises(ValueError, match="circularity needs p >= 5"):
        circularity(torch.zeros(2, 2), torch.tensor(numbers), p)


def test_principal_components_are_those_of_a_plane() -> None:
    generator = torch.Generator().manual_seed(0)
    plane = torch.randn(50, 2, generator=generator) * torch.tensor([3.0, 1.0])
    axes = torch.linalg.qr(torch.randn(8, 8, generator=generator))[0][:2]
    found = principal_components(plane @ axes + 10.0)
    assert found.explained.sum().item() == pytest.approx(1.0, abs=1e-5)
    between = [(points[:, None] - points).norm(dim=-1) for points in (found.coordinates, plane)]
    torch.testing.assert_close(*between, atol=1e-3, rtol=1e-3)


def test_heads_together_write_what_attention_writes(model: HookedTransformer, queries: torch.Tensor) -> None:
    features = head_features(model, queries)
    _, cache = model.run_with_cache(queries)
    for layer in range(2):
        written = features[layer].sum(0).unflatten(1, (2, 16))
        torch.testing.assert_close(written, cache[f"blocks.{layer}.hook_attn_out"][:, -3:-1], atol=1e-5, rtol=1e-5)


def test_attention_goes_where_it_was_put(model: HookedTransformer, tokens: torch.Tensor) -> None:
    maps = attention_maps(model, tokens)
    assert maps.shape == (2, 2, 3 * SHOTS, 3 * SHOTS)
    torch.testing.assert_close(maps.sum(-1), torch.ones(2, 2, 3 * SHOTS))
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_Q.zero_()  # every earlier token alike
    table = matching_attention(model, tokens, P)
    assert (table["own"] + table["matching"] + table["other"]).to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert table["matching"].to_numpy() == pytest.approx(table["chance"].to_numpy(), abs=1e-5)
    matches = multiples(examples_of(tokens), P)[:, -1]
    expected = (matches.sum(1) * 3 / (3 * SHOTS - 1))[matches.any(1)].mean()
    assert table["matching"].to_numpy() == pytest.approx(float(expected), abs=1e-5)


def test_attention_to_matches_needs_a_match(model: HookedTransformer) -> None:
    tokens = torch.tensor([[1, 0, 1, 0, 1, 1]])
    with pytest.raises(ValueError, match="got none"):
        matching_attention(model, tokens, P)


def test_an_embedding_on_a_circle_of_logarithms_is_told_from_a_random_one(
    model: HookedTransformer, queries: torch.Tensor
) -> None:
    before = embedding_circle(model, P)[1]
    angle = 2 * math.pi * discrete_logs(P)[1:] / (P - 1)
    with torch.no_grad():
        model.embed.W_E.zero_()
        model.embed.W_E[1:, 0], model.embed.W_E[1:, 1] = angle.cos(), angle.sin()
    points, after = embedding_circle(model, P)
    assert after.r2 == pytest.approx(1.0, abs=1e-5)
    assert before.r2 < 0.95
    assert points["number"].tolist() == list(range(1, P))
    neurons = periodic_neurons(model, queries, P)
    assert len(neurons) == 2 * 64
    assert neurons[["ipr_x", "ipr_y"]].to_numpy().max() <= 1 + 1e-6


def test_block_outputs_that_say_the_ratio_are_alike_for_equal_ratios(
    model: HookedTransformer, queries: torch.Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y = examples_of(queries)[:, -1].unbind(1)
    ratio = y * torch.tensor([pow(n, P - 2, P) for n in range(P)])[x] % P
    basis = torch.randn(P, 16, generator=torch.Generator().manual_seed(0))
    outputs = torch.zeros(len(queries), queries.shape[1], 16)
    outputs[:, -2] = basis[ratio]
    monkeypatch.setattr(
        "hc_lens.modular.incontext.insides._activations", lambda model, tokens, points: dict.fromkeys(points, outputs)
    )
    table = ratio_similarity(model, queries, P)
    assert table["same"].to_numpy() == pytest.approx(1.0, abs=1e-5)
    assert (table["other"] < 0.2).all()


def test_every_figure_draws_its_table(model: HookedTransformer, tokens: torch.Tensor, queries: torch.Tensor) -> None:
    tasks, examples = random_tasks(P, 30, 0), split_examples(P, 0.7, 0)
    evaluation = accuracy_by_shot(model, tasks, examples, SHOTS, 20)
    table = agreement(answers_of(tokens), tokens, P)
    ceilings = table[table["queries"] == "regression"].rename(columns={"queries": "algorithm"})
    shots = shot_curves(evaluation, chance=1 / P, ceilings=ceilings)
    assert [len(trace.y) for trace in shots.data] == [SHOTS] * 5
    assert shots.data[0].x[0] == 0
    runs = {f"run {i}": over_training(evaluation.assign(step=i)) for i in range(3)}
    assert len(training_curves(runs, chance=1 / P, threshold=0.75).data) == 12
    assert len(agreement_by_shot(table, chance=1 / P).data) == 6
    x, y = examples_of(queries)[:, -1].unbind(1)
    grid = pd.DataFrame({"examples": 4, "x": x, "y": y, "correct": x == 0, "ratio": y == 0, "shown": (x == 1) & (y == 2)})
    drawn = query_map(grid, contexts=[4])
    assert drawn.data[0].z[1][0] == 2  # y = 1, x = 0: the model only
    assert len(drawn.data[1].x) == 1
    assert len(attention_heads(attention_maps(model, tokens), last=6).data) == 4
    points, circles = head_circles(model, queries, P)
    assert len(head_circles_figure(points, circles, by="y").data) == 4
    assert embedding_circle_figure(embedding_circle(model, P)[0]).data[1].text[0] == "1"  # log 0


def test_a_phase_map_shows_what_was_not_run_as_empty() -> None:
    rows = [(8, 0.4, "none"), (8, 0.8, "ID memorisation"), (16, 0.8, "OOD generalization")]
    table = pd.DataFrame([(*row, "") for row in rows], columns=["n_tasks", "fraction", "phase", "accuracies"])
    z = phase_map(table, rows="fraction", rows_title="share of examples").data[0].z
    assert z[0][0] == 0
    assert math.isnan(z[0][1])
    assert list(z[1]) == [1, 4]
    with pytest.raises(ValueError, match="no phase 'grokked'"):
        phase_map(table.assign(phase="grokked"), rows="fraction", rows_title="share")


@pytest.mark.parametrize("draw", [lambda t: shot_curves(t, chance=0.1), lambda t: agreement_by_shot(t, chance=0.1)])
def test_figures_say_which_column_is_missing(draw: Callable[[pd.DataFrame], go.Figure]) -> None:
    with pytest.raises(ValueError, match="missing from"):
        draw(pd.DataFrame({"shot": [1]}))
