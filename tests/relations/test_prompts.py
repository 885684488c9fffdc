"""Prompts and what the model has at their tokens."""

import copy

import pytest
import torch
from tokenizers import processors

from hc_lens.relations.prompts import continuation, encode_prompts, open_ended
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.representations import representations
from tests.relations.tiny import WORDS, model, relation, tokenizer


def test_the_subjects_last_token_is_found_wherever_the_slot_is() -> None:
    for template, places in (("{} is in", {0: 0, 4: 1}), ("from {} ->", {0: 1, 4: 2}), ("from north {}", {0: 2, 4: 3})):
        prompts = encode_prompts(model(), relation(), template)
        assert len(prompts) == 12
        for fact, place in places.items():
            assert prompts.subject_last[fact] == place
            assert WORDS[prompts.ids[fact, place]] == f"s{fact}"


def test_rows_are_the_prompts_without_padding() -> None:
    prompts = encode_prompts(model(), relation(), "{} is", facts=[4, 1])
    words = [[WORDS[token] for token in row] for row in prompts.rows()]
    assert words == [["new", "s4", "is"], ["s1", "is"]]
    assert prompts.last.tolist() == [2, 1]
    assert prompts.ids[1, 2] == model().pad_id


@pytest.mark.parametrize(
    ("subject", "message"),
    [("  ", "fact 1 has an empty subject"), ("Atlantis", "knows no part of the subject 'Atlantis'"), ("s1 " * 64, "66 tokens")],
)
def test_a_subject_that_cannot_be_asked_about_is_named(subject: str, message: str) -> None:
    bad = Relation("side", ("{} is in",), (Fact("s0", "east"), Fact(subject, "west")))
    with pytest.raises(ValueError, match=message):
        encode_prompts(model(), bad, "{} is in")


def test_a_partly_known_subject_is_no_error() -> None:
    prompts = encode_prompts(model(), Relation("side", ("{} is",), (Fact("Atlantis s1", "east"),)), "{} is")
    assert prompts.subject_last.tolist() == [1]


def test_a_template_needs_a_slot_and_the_relation_facts() -> None:
    with pytest.raises(ValueError, match="one slot"):
        encode_prompts(model(), relation(), "where is")
    with pytest.raises(ValueError, match="no fact to encode"):
        encode_prompts(model(), relation(), "{} is", facts=[])


def test_a_continuation_has_the_tokens_it_has_inside_a_text() -> None:
    assert [WORDS[token] for token in continuation(model(), " north west")] == ["north", "west"]
    for text in ("", "crab"):  # nothing; a part of the word before
        with pytest.raises(ValueError, match="put a space before it"):
            continuation(model(), text)


@pytest.mark.parametrize("at", ["subject", "prompt"])
def test_representations_are_the_residual_stream_of_each_prompt_alone(at: str) -> None:
    prompts = encode_prompts(model(), relation(), "from {} ->")
    found = representations(model(), prompts, at=at, batch_size=5)
    assert found.resid.shape == (4, 12, 24)
    assert not found.resid.requires_grad
    for fact, row in enumerate(prompts.rows()):
        _, cache = model().run_with_cache(torch.tensor([row]))
        place = prompts.subject_last[fact] if at == "subject" else len(row) - 1
        for layer in range(4):
            point = "blocks.0.hook_resid_pre" if layer == 0 else f"blocks.{layer - 1}.hook_resid_post"
            torch.testing.assert_close(found.resid[layer, fact], cache[point][0, place], atol=1e-5, rtol=1e-5)


def test_text_after_the_subject_does_not_reach_it() -> None:
    one, other = (representations(model(), encode_prompts(model(), relation(), t)) for t in ("from {}", "from {} is in"))
    torch.testing.assert_close(one.resid, other.resid, atol=1e-5, rtol=1e-5)


def test_a_prompt_ends_where_its_text_ends() -> None:
    """Tokenizers may end each text with a special token; a continuation does not come after that."""
    wrapped, plain = copy.copy(model()), model()
    wrapped.tokenizer = tokenizer()
    wrapped.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="-> $A . .", pair="$A $B", special_tokens=[("->", WORDS.index("->")), (".", WORDS.index("."))]
    )
    assert wrapped.tokenizer("s0 is")["input_ids"][-1] == WORDS.index(".")
    ours, theirs = (encode_prompts(each, relation(), "from {} is") for each in (plain, wrapped))
    assert theirs.rows() == [[WORDS.index("->"), *row] for row in ours.rows()]
    assert torch.equal(theirs.subject_last, ours.subject_last + 1)
    texts = ("s1 in .", "s1")
    assert open_ended(wrapped, texts)[0] == [[WORDS.index(word) for word in ("->", *text.split())] for text in texts]
