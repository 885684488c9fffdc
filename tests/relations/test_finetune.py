"""Fine-tuning on a new relation: what changes, what does not, and what the scores mean."""

from dataclasses import replace

import pytest
import torch

from hc_lens.models import fingerprint
from hc_lens.relations.closed_set import closed_set_scores
from hc_lens.relations.config import OPAQUE, FinetuneConfig
from hc_lens.relations.finetune import finetune_relation
from hc_lens.relations.labels import LabelMap
from hc_lens.relations.prompts import continuation, encode_prompts
from hc_lens.relations.split import Split, split_facts
from tests.relations.tiny import model, relation

FAST = FinetuneConfig(lr=0.01, batch_size=4, max_epochs=30)
SINGLE = LabelMap("animals", 0, {"east": "crab", "north west": "zebra"})
DOUBLE = LabelMap("animals", 0, {"east": "sea crab", "north west": "sea horse"})


@pytest.fixture(scope="module")
def split() -> Split:
    return split_facts(relation(), 0.6, seed=0)


@pytest.mark.parametrize("labels", [SINGLE, DOUBLE], ids=["one token", "two tokens"])
@pytest.mark.parametrize("first_block", [0, 2])
def test_training_subjects_are_learned_and_the_scores_are_the_tuned_models(
    labels: LabelMap, first_block: int, split: Split
) -> None:
    before = fingerprint(model())
    found = finetune_relation(
        model(), relation(), split, labels, config=replace(FAST, first_block=first_block), keep_model=True
    )
    assert fingerprint(model()) == before
    assert found.reached
    assert found.train_accuracy[-1] == 1 > found.train_accuracy[0]
    assert found.accuracy(split.train) == 1
    assert found.right.tolist() == (found.predictions == relation().codes).tolist()
    tuned = found.model
    assert tuned is not None
    words = [continuation(model(), f" {labels.label(answer)}") for answer in relation().answers]
    wanted = closed_set_scores(tuned, encode_prompts(model(), relation(), OPAQUE).rows(), words)
    torch.testing.assert_close(found.scores, wanted, atol=1e-4, rtol=1e-4)


def test_only_the_blocks_from_the_first_and_the_final_norm_are_trained_and_own_their_tensors(split: Split) -> None:
    tuned = finetune_relation(model(), relation(), split, SINGLE, config=replace(FAST, first_block=2), keep_model=True).model
    assert tuned is not None
    ours, theirs = dict(tuned.named_parameters()), dict(model().named_parameters())
    changed = {name for name in ours if not torch.equal(ours[name], theirs[name])}
    assert changed == {name for name in ours if name.startswith(("blocks.2.", "ln_final."))}
    assert all(ours[name] is theirs[name] for name in set(ours) - changed)
    assert all(parameter.grad is None for parameter in (*ours.values(), *theirs.values()))
    assert not set(map(id, tuned.hook_dict.values())) & set(map(id, model().hook_dict.values()))
    assert not tuned.training


def test_held_out_subjects_leave_no_trace(split: Split) -> None:
    """With the held-out facts' answers exchanged, training and all scores are the same."""
    held_out = set(split.held_out)
    other = {"east": "north west", "north west": "east"}
    facts = [fact._replace(answer=other[fact.answer]) if i in held_out else fact for i, fact in enumerate(relation().facts)]
    config = replace(FAST, max_epochs=3)
    one = finetune_relation(model(), relation(), split, SINGLE, config=config)
    two = finetune_relation(model(), replace(relation(), facts=tuple(facts)), split, SINGLE, config=config)
    assert torch.equal(one.scores, two.scores)
    held = list(split.held_out)
    assert (one.right[held] != two.right[held]).all()


def test_the_seed_decides_the_order_and_nothing_else(split: Split) -> None:
    config = replace(FAST, max_epochs=2)
    state = torch.get_rng_state()
    one, again, other = (finetune_relation(model(), relation(), split, SINGLE, config=config, seed=s) for s in (0, 0, 1))
    assert torch.equal(one.scores, again.scores)
    assert not torch.equal(one.scores, other.scores)
    assert torch.equal(torch.get_rng_state(), state)


def test_training_goes_on_to_min_epochs_and_stops_at_max_epochs(split: Split) -> None:
    longer = finetune_relation(model(), relation(), split, SINGLE, config=replace(FAST, min_epochs=25))
    assert len(longer.train_accuracy) == 25
    short = finetune_relation(model(), relation(), split, SINGLE, config=replace(FAST, lr=1e-6, max_epochs=2))
    assert len(short.train_accuracy) == 2
    assert not short.reached


def test_bfloat16_learns_too(split: Split) -> None:
    found = finetune_relation(model(), relation(), split, SINGLE, config=replace(FAST, precision="bf16"), keep_model=True)
    assert found.reached
    assert found.scores.dtype == torch.float32
    assert found.model is not None
    assert all(parameter.dtype == torch.float32 for parameter in found.model.parameters())


def test_a_frozen_model_is_fine_tuned_all_the_same(split: Split) -> None:
    tuned = finetune_relation(model(), relation(), split, SINGLE, config=replace(FAST, max_epochs=1), keep_model=True).model
    assert tuned is not None
    tuned.requires_grad_(False)
    again = finetune_relation(tuned, relation(), split, SINGLE, config=FAST)
    assert again.reached
    model().requires_grad_(True)


def test_what_cannot_be_fine_tuned_on(split: Split) -> None:
    with pytest.raises(ValueError, match=r"answers \['north west'\] have no label"):
        finetune_relation(model(), relation(), split, LabelMap("animals", 0, {"east": "crab"}))
    with pytest.raises(ValueError, match=r"first_block must be in 0\.\.2 for this model, got 3"):
        finetune_relation(model(), relation(), split, SINGLE, config=FinetuneConfig(first_block=3))
    for field, value in (("lr", 0.0), ("batch_size", 0), ("weight_decay", -1.0), ("min_epochs", 50)):
        with pytest.raises(ValueError, match=f"{field} must"):
            FinetuneConfig(**{field: value})
