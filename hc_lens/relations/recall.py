"""Does the pretrained model recall the old relation: its answers to few-shot prompts, over the closed set of answers."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from hc_lens.models.language import LanguageModel
from hc_lens.relations.closed_set import closed_set_scores
from hc_lens.relations.prompts import continuation, open_ended
from hc_lens.relations.relation import Relation, prompt


@dataclass(frozen=True, eq=False)
class Recall:
    """What a model answers when it is asked for the old relation.

    Attributes:
        facts: places of the facts asked for, in the relation.
        scores: log-probability (nats) of each of `Relation.answers`, the sum over its tokens.
        right: whether the fact's own answer has the highest score.
    """

    facts: tuple[int, ...]
    scores: Float[Tensor, "fact answer"]
    right: Bool[Tensor, " fact"]

    @property
    def accuracy(self) -> float:
        """Share of the facts that are recalled."""
        return self.right.double().mean().item()


def recall(
    model: LanguageModel,
    relation: Relation,
    template: str,
    facts: Sequence[int],
    shots: Sequence[int],
    n_shots: int = 5,
    seed: int = 0,
) -> Recall:
    """Ask for the facts at these places, after `n_shots` examples drawn from those at `shots` (step 7 of the protocol).

    The examples are lines of the same template with their answers. They are the same for all facts, in an order drawn by seed;
    a fact that is itself among them is asked after the next example in its place. `n_shots` of 0 asks without examples.

    Raises:
        ValueError: for no facts, too few examples, or prompts longer than the model reads.
    """
    if not facts:
        raise ValueError(f"relation {relation.name!r}: there is no fact to ask for")
    needed = n_shots + bool(set(facts) & set(shots))
    if n_shots < 0 or (n_shots and len(shots) < needed):
        raise ValueError(
            f"relation {relation.name!r}: n_shots is {n_shots}, there are {len(shots)} facts to draw the examples from: "
            f"it must be in 0..{max(len(shots) - needed + n_shots, 0)}"
        )
    answers = [continuation(model, f" {answer}") for answer in relation.answers]
    order: list[int] = np.random.default_rng(seed).permutation(shots).tolist()
    by_examples: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for row, place in enumerate(facts):
        by_examples[tuple([other for other in order if other != place][:n_shots])].append(row)
    scores = torch.empty(len(facts), len(answers))
    for examples, rows in by_examples.items():
        lines = "".join(f"{prompt(template, relation.facts[i].subject)} {relation.facts[i].answer}\n" for i in examples)
        texts = [lines + prompt(template, relation.facts[facts[row]].subject) for row in rows]
        scores[rows] = closed_set_scores(model, open_ended(model, texts)[0], answers)
    codes = relation.codes[list(facts)]
    return Recall(tuple(facts), scores, scores.argmax(dim=1) == codes)
