"""The planted world: what is planted is true of its facts, and the model recalls them all."""

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

from hc_lens.models import LanguageModel
from hc_lens.relations.config import ProbeConfig
from hc_lens.relations.labels import CATEGORIES
from hc_lens.relations.probe import readability
from hc_lens.relations.relation import Relation, prompt
from hc_lens.relations.split import split_facts
from hc_lens.relations.world import Planted, Planting, WorldConfig, new_world, planted_world

WORLD = WorldConfig(n_subjects=180, least_share=0.8)
SMALL = WorldConfig(
    n_subjects=30,
    latents=(3, 3),
    n_contexts=2,
    n_shared=2,
    n_parity=1,
    n_isolated=1,
    d_model=32,
    d_mlp=64,
    context_steps=50,
    fact_steps=150,
    batch_size=128,
    lr=1e-2,
)


def planted(kind: str, config: WorldConfig = WORLD) -> list[Planting]:
    return [planting for planting in new_world(config).plantings if planting.kind == kind]


def followed(relation: Relation, others: list[Relation]) -> float:
    """Share of the facts that the commonest answer to each combination of the others' answers gets right."""
    told = [dict(other.facts) for other in others]
    counts: dict[tuple[str, ...], Counter[str]] = {}
    for subject, answer in relation.facts:
        counts.setdefault(tuple(each[subject] for each in told), Counter())[answer] += 1
    return sum(max(counter.values()) for counter in counts.values()) / len(relation)


def context_of(latent: int, config: WorldConfig = WORLD) -> Relation:
    return new_world(config).contexts[latent * config.n_contexts]


def test_a_shared_relation_follows_its_latent_but_for_the_share_that_is_noise() -> None:
    found = planted("shared")
    assert [planting.rho for planting in found] == pytest.approx([i / 12 for i in range(12)])
    for i, (relation, _, rho) in enumerate(found):
        n_values = WORLD.latents[i % 4]
        assert len(relation.answers) == n_values
        expected = 1 - rho * (1 - 1 / n_values)
        assert followed(relation, [context_of(i % 4)]) == pytest.approx(expected, abs=0.1)
    assert followed(found[0].relation, [context_of(0)]) == 1


def test_a_parity_relation_follows_two_latents_and_neither_alone() -> None:
    pairs = [(0, 1), (0, 1), (2, 3), (2, 3), (2, 3), (2, 3)]
    found = planted("parity")
    assert len(found) == len(pairs)
    for planting, latents in zip(found, pairs, strict=True):
        both = [context_of(latent) for latent in latents]
        assert followed(planting.relation, both) == 1
        for one in both:
            assert followed(planting.relation, [one]) < 1 / len(planting.relation.answers) + 0.15
    assert len({planting.relation.facts for planting in found}) == len(pairs)


def test_an_isolated_relation_follows_nothing() -> None:
    for relation, _, rho in planted("isolated"):
        assert rho == 1
        assert all(followed(relation, [context_of(i)]) < 1 / len(relation.answers) + 0.15 for i in range(4))


def test_names_are_used_once_and_relations_have_one_answer_a_subject() -> None:
    world = new_world(WORLD)
    relations = [*world.contexts, *(planting.relation for planting in world.plantings)]
    answers = [answer for relation in relations for answer in relation.answers]
    asked = [template for relation in relations for template in relation.templates]
    labels = {word for words in CATEGORIES.values() for word in words}
    assert len({*answers}) == len(answers)
    assert len({*asked}) == len(relations)
    assert not labels & {*answers, *(template.split()[1] for template in asked)}
    for relation in relations:
        assert len({*relation.subjects}) == len(relation) >= 0.8 * WORLD.n_subjects
        assert min(Counter(fact.answer for fact in relation.facts).values()) >= 5


def test_a_world_is_a_function_of_its_configuration() -> None:
    assert new_world(WORLD) == new_world(replace(WORLD, fact_steps=1))
    assert new_world(WORLD) != new_world(replace(WORLD, seed=1))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latents": ()}, "at least one"),
        ({"latents": (1, 3)}, r"each at least 2, got \(1, 3\)"),
        ({"n_subjects": 20}, "at least 5 for each of a latent's 5 values"),
        ({"least_share": 1.5}, r"least_share must be in \(0, 1\], got 1.5"),
        ({"latents": (3, 5)}, r"have 0 Latin squares of two, n_parity is 6"),
        ({"d_model": 50}, "multiple of 2 \\* n_heads = 8, got 50"),
    ],
)
def test_a_configuration_that_plants_nothing_is_refused(changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        WorldConfig(**changes)  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return planted_world(SMALL, tmp_path_factory.mktemp("world"))


def recalled(model: LanguageModel, relation: Relation) -> float:
    """Share of the facts whose answer is the likeliest next token of all."""
    ids = model.tokenizer([prompt(relation.templates[0], subject) for subject in relation.subjects])["input_ids"]
    answers = model.tokenizer([fact.answer for fact in relation.facts])["input_ids"]
    with torch.no_grad():
        return float((model(torch.tensor(ids))[:, -1].argmax(-1) == torch.tensor(answers)[:, 0]).double().mean())


def test_the_model_recalls_every_relation(small: Planted) -> None:
    model = small.model()
    assert [recalled(model, relation) for relation in small.relations] == pytest.approx([1.0] * 4, abs=0.05)
    assert list(small.how["kind"]) == ["shared", "shared", "parity", "isolated"]
    assert list(small.how["relation"]) == [relation.name for relation in small.relations]


def test_the_vocabulary_holds_every_label_as_a_token_of_its_own(small: Planted) -> None:
    model = small.model()
    labels = [word for words in CATEGORIES.values() for word in words]
    ids = model.tokenizer([f" {word}" for word in labels])["input_ids"]
    assert all(len(row) == 1 and row[0] not in model.tokenizer.all_special_ids for row in ids)
    assert len({row[0] for row in ids}) == len(labels)


def test_a_planted_world_is_trained_once_and_read_by_transformers(small: Planted) -> None:
    file = small.directory / "model.safetensors"
    before = file.stat().st_mtime_ns
    again = planted_world(SMALL, small.directory.parents[1])
    assert file.stat().st_mtime_ns == before
    assert again.relations == small.relations
    pd.testing.assert_frame_equal(again.how, small.how)
    model, ids = small.model(), torch.tensor([[5, 40, 60]])
    reference = AutoModelForCausalLM.from_pretrained(small.directory)
    with torch.no_grad():
        torch.testing.assert_close(model(ids), reference(ids).logits, atol=1e-3, rtol=0)


@pytest.mark.slow
def test_readability_falls_with_what_is_random_while_recall_stays(tmp_path: Path) -> None:
    world = planted_world(WorldConfig(), tmp_path)
    model = world.model()
    assert min(recalled(model, relation) for relation in world.relations) > 0.98
    above: dict[str, float] = {}
    for relation in world.relations:
        ids = torch.tensor(model.tokenizer(list(relation.subjects))["input_ids"])
        with torch.no_grad():
            _, seen = model.run_with_cache(ids)
        resid = torch.stack([seen[f"blocks.{layer}.hook_resid_pre"][:, 0] for layer in range(model.cfg.n_layers)])
        above[relation.name] = readability(resid, relation.codes, split_facts(relation, 0.5, 0), ProbeConfig()).above
    how = world.how.assign(above=[above[name] for name in world.how["relation"]])
    shared = how[how["kind"] == "shared"]
    assert shared["rho"].corr(shared["above"]) < -0.7
    assert above["shared-00"] > 0.6
    assert how[how["kind"] == "isolated"]["above"].mean() < 0.2
