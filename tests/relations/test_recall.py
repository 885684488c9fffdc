"""Scores over a closed set of answers, and few-shot recall."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import processors

from hc_lens.relations.closed_set import closed_set_scores
from hc_lens.relations.recall import recall
from tests.relations.tiny import WORDS, model, plain_score, relation, tokenizer

_token = st.integers(1, len(WORDS) - 1)


@settings(max_examples=15)
@given(
    shared=st.lists(_token, max_size=4),
    prompts=st.lists(st.lists(_token, min_size=1, max_size=4), min_size=1, max_size=5),
    answers=st.lists(st.lists(_token, min_size=1, max_size=3), min_size=1, max_size=4),
)
def test_scores_are_those_of_plain_passes(shared: list[int], prompts: list[list[int]], answers: list[list[int]]) -> None:
    prompts = [shared + prompt for prompt in prompts]
    wanted = torch.tensor([[plain_score(model(), prompt, answer) for answer in answers] for prompt in prompts])
    torch.testing.assert_close(closed_set_scores(model(), prompts, answers, batch_size=2), wanted, atol=1e-4, rtol=1e-4)


def test_pad_tokens_inside_a_text_are_read_like_any_other() -> None:
    prompts, answers = [[3, 0, 4], [3, 0, 0, 5]], [[0, 6], [7]]
    wanted = torch.tensor([[plain_score(model(), prompt, answer) for answer in answers] for prompt in prompts])
    torch.testing.assert_close(closed_set_scores(model(), prompts, answers), wanted, atol=1e-4, rtol=1e-4)


def test_what_cannot_be_scored() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        closed_set_scores(model(), [[1], []], [[2]])
    with pytest.raises(ValueError, match="up to 66 tokens; the model reads 64"):
        closed_set_scores(model(), [[3] * 65], [[2, 2]])


def test_recall_asks_after_examples_and_never_after_the_answer_itself() -> None:
    facts, shots = [0, 1, 9], [1, 2, 3]
    found = recall(model(), relation(), "{} is", facts, shots, n_shots=2, seed=5)
    assert found.facts == (0, 1, 9)
    assert found.right.tolist() == [found.scores[row].argmax() == code for row, code in enumerate([1, 0, 0])]
    assert found.accuracy == found.right.double().mean()
    answers = [[9], [6, 10]]  # "east", "north west"
    lines = {1: [16, 2, 9], 2: [17, 2, 6, 10], 3: [18, 2, 9]}
    pairs = [(a, b) for a in shots for b in shots if a != b]
    by_pair = {
        pair: [
            [plain_score(model(), lines[pair[0]] + lines[pair[1]] + [15 + fact, 2], answer) for answer in answers]
            for fact in facts
        ]
        for pair in pairs
    }
    for row, fact in enumerate(facts):
        used = [p for p, scores in by_pair.items() if torch.allclose(found.scores[row], torch.tensor(scores[row]), atol=1e-4)]
        assert len(used) == 1
        assert fact not in used[0]


def test_recall_without_examples_and_with_too_many() -> None:
    found = recall(model(), relation(), "{} is", [4], [], n_shots=0)
    assert found.scores[0, 0].item() == pytest.approx(plain_score(model(), [5, 19, 2], [9]), abs=1e-4)
    for facts, most in (([0], 3), ([2], 2)):  # one of the three is asked for
        with pytest.raises(ValueError, match=rf"n_shots is 4, there are 3 facts .* in 0\.\.{most}"):
            recall(model(), relation(), "{} is", facts, [1, 2, 3], n_shots=4)
    with pytest.raises(ValueError, match="no fact to ask for"):
        recall(model(), relation(), "{} is", [], [1], n_shots=1)


def test_examples_and_question_stay_open_where_the_tokenizer_closes_each_text() -> None:
    closing = copy.copy(model())
    closing.tokenizer = tokenizer()
    closing.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="$A .", pair="$A $B", special_tokens=[(".", WORDS.index("."))]
    )
    arguments = (relation(), "{} is", [0, 1, 9], [1, 2, 3])
    ours, theirs = (recall(each, *arguments, n_shots=2, seed=5).scores for each in (model(), closing))
    torch.testing.assert_close(theirs, ours)
