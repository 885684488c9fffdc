"""Which units carry a relation: ablation is what it says, and a planted carrier is found."""

import copy
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.models import LanguageModel
from hc_lens.pruning import PruneConfig
from hc_lens.relations.config import ProbeConfig
from hc_lens.relations.insides import carriers, relation_subnetworks, shared_heads
from hc_lens.relations.probe import Readability, readability
from hc_lens.relations.prompts import Prompts, encode_prompts
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.representations import representations
from hc_lens.relations.split import Split, split_facts
from tests.analysis.masks import sub
from tests.relations.tiny import SUBJECTS, model, relation

# The first word decides the answer, the last one says nothing of it: only attention can bring one to the other.
FIRST = Relation(
    "first word",
    ("{} is in",),
    tuple(Fact(f"{first} {last}", answer) for last in SUBJECTS for first, answer in (("new", "east"), ("north", "west"))),
)
LABELS = {"east": "crab", "north west": "zebra", "west": "zebra"}


def probed(of: LanguageModel, asked: Relation, split: Split, layer: int) -> tuple[Prompts, Readability]:
    prompts = encode_prompts(of, asked, asked.templates[0])
    found = readability(representations(of, prompts).resid, asked.codes, split, ProbeConfig(folds=2))
    return prompts, replace(found, layer=layer)


def states(of: LanguageModel, prompts: Prompts, layer: int, point: str = "", head: int | None = None) -> Tensor:
    """Every subject's state at a layer, by a plain pass; the activation at a point is averaged over training facts."""
    rows, train = torch.arange(len(prompts)), list(SPLIT.train)

    def average(activation: Tensor, hook: HookPoint) -> Tensor:
        edited, own = activation.clone(), activation[rows, prompts.subject_last]
        if head is None:
            edited[rows, prompts.subject_last] = own[train].mean(0)
        else:
            edited[rows, prompts.subject_last, head] = own[train, head].mean(0)
        return edited

    seen: list[Tensor] = []
    last = "blocks.0.hook_resid_pre" if layer == 0 else f"blocks.{layer - 1}.hook_resid_post"
    hooks = [(point, average)] if point else []
    with torch.no_grad():
        of.run_with_hooks(prompts.ids, fwd_hooks=[*hooks, (last, lambda value, hook: seen.append(value))])
    return seen[0][rows, prompts.subject_last]


SPLIT = split_facts(relation(), 0.6, seed=0)


def test_an_effect_is_the_accuracy_that_the_fitted_probe_loses_under_the_ablation() -> None:
    codes, layer = relation().codes.numpy(), 2
    prompts, found = probed(model(), relation(), SPLIT, layer)
    table = carriers(model(), prompts, relation().codes, SPLIT, found)
    train, held_out = list(SPLIT.train), list(SPLIT.held_out)
    probe = make_pipeline(StandardScaler(), LogisticRegression(C=found.strength, tol=1e-6, max_iter=5_000))
    probe.fit(states(model(), prompts, layer)[train].double().numpy(), codes[train])
    full = probe.score(states(model(), prompts, layer)[held_out].double().numpy(), codes[held_out])
    for block in range(layer):
        units = [(f"L{block}.H{head}", f"blocks.{block}.attn.hook_z", head) for head in range(4)]
        for unit, point, head in [*units, (f"L{block}.MLP", f"blocks.{block}.hook_mlp_out", None)]:
            ablated = states(model(), prompts, layer, point, head)[held_out].double().numpy()
            row = table[table["unit"] == unit].iloc[0]
            assert row["accuracy"] == pytest.approx(probe.score(ablated, codes[held_out]))
            assert row["effect"] == pytest.approx(full - row["accuracy"])
            assert row["low"] <= row["effect"] <= row["high"]


def test_there_is_a_row_for_every_unit_below_the_probed_layer() -> None:
    for layer in range(4):
        prompts, found = probed(model(), relation(), SPLIT, layer)
        table = carriers(model(), prompts, relation().codes, SPLIT, found)
        assert list(table["unit"]) == [f"L{i}.{unit}" for i in range(layer) for unit in ("H0", "H1", "H2", "H3", "MLP")]
    with pytest.raises(ValueError, match=r"layer 4, the model has the layers 0\.\.3"):
        carriers(model(), prompts, relation().codes, SPLIT, replace(found, layer=4))


def test_the_head_that_brings_the_relation_to_the_subject_is_found() -> None:
    planted = copy.deepcopy(model())
    with torch.no_grad():
        planted.blocks[0].attn.W_Q.zero_()  # attends to all tokens alike
        planted.blocks[0].attn.W_O[[0, 1, 3]] = 0
        planted.blocks[0].attn.W_O[2] *= 5
    split = split_facts(FIRST, 0.5, seed=0)
    prompts, found = probed(planted, FIRST, split, 1)
    assert float(found.held_out[1]) > 0.8
    table = carriers(planted, prompts, FIRST.codes, split, found).set_index("unit")
    assert table["effect"].idxmax() == "L0.H2"
    assert table.loc["L0.H2", "effect"] > 0.2
    assert table.loc[["L0.H0", "L0.H1", "L0.H3"], ["effect", "margin"]].to_numpy() == pytest.approx(np.zeros((3, 2)), abs=1e-5)


def test_subnetworks_of_a_relation_are_cut_to_the_sparsity_asked_for() -> None:
    config = PruneConfig.desk(0.4, steps=40)
    found = relation_subnetworks(model(), FIRST, "{} ->", LABELS, config, seeds=[0, 1])
    assert [subnetwork.seed for subnetwork in found] == [0, 1]
    assert [subnetwork.sparsity for subnetwork in found] == pytest.approx([0.4, 0.4], abs=0.04)
    assert all(subnetwork.means.tokens == 3 * len(FIRST) for subnetwork in found)


def test_shared_heads_are_counted_seed_by_seed_and_compared_with_chance() -> None:
    before = [sub("1100.1", "1111.1", seed=0), sub("1100.1", "1111.0", seed=1)]
    after = [sub("1100.0", "1111.1", seed=0), sub("0011.1", "0000.1", seed=1)]
    table = shared_heads(before, after, n=2_000)
    assert table[["seed", "before", "after", "both"]].to_numpy().tolist() == [[0, 6, 6, 6], [1, 6, 2, 0]]
    assert list(table["jaccard"]) == [1, 0]
    # Two of four heads twice: both pairs meet in 1 of 6 cases and share one head on average.
    assert list(table["chance"]) == pytest.approx([5, 1], abs=0.1)
    assert list(table["p"]) == pytest.approx([1 / 6, 1], abs=0.03)
    with pytest.raises(ValueError, match=r"those before have the seeds \[0, 1\], those after \[1, 0\]"):
        shared_heads(before, after[::-1])


def test_a_word_that_is_not_one_token_is_refused() -> None:
    config = PruneConfig.desk(0.4, steps=40)
    with pytest.raises(ValueError, match="'north west' has 2 tokens"):
        relation_subnetworks(model(), relation(), "{} ->", {"east": "east", "north west": "north west"}, config, [0])
    with pytest.raises(ValueError, match="answer 'north west' has no word"):
        relation_subnetworks(model(), relation(), "{} ->", {"east": "crab"}, config, [0])
