"""Sequences x y z x y z ... of examples of one task, as tokens, and where in them the answers are predicted."""

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformer_lens import HookedRootModule

from hc_lens.modular.arithmetic import all_pairs


def answers(tasks: Int[Tensor, "batch 2"], examples: Int[Tensor, "batch shot 2"], p: int) -> Int[Tensor, "batch shot"]:
    """z = a x + b y mod p."""
    return (tasks[:, None] * examples).sum(-1) % p


def draw_examples(
    pool: Int[Tensor, "example 2"], rows: int, n_shots: int, generator: torch.Generator
) -> Int[Tensor, "batch shot 2"]:
    """Rows of examples from the pool, those of one row all different: no query can be answered by looking it up.

    Drawn on the device of the pool and the generator.

    Raises:
        ValueError: if a row is longer than the pool.
    """
    if n_shots > len(pool):
        raise ValueError(f"a sequence of {n_shots} different examples cannot be drawn from {len(pool)}")
    order = torch.rand(rows, len(pool), generator=generator, device=pool.device).topk(n_shots, dim=1).indices
    return pool[order]


def as_tokens(tasks: Int[Tensor, "batch 2"], examples: Int[Tensor, "batch shot 2"], p: int) -> Int[Tensor, "batch pos"]:
    """One sequence for each row: pos = 3 shot."""
    z = answers(tasks, examples, p)
    return torch.cat([examples, z[..., None]], dim=-1).flatten(1)


def draw_repeating(
    pool: Int[Tensor, "example 2"], rows: int, n_shots: int, generator: torch.Generator
) -> Int[Tensor, "batch shot 2"]:
    """Rows of examples from the pool, each example drawn from all of it, so that one may come again."""
    return pool[torch.randint(len(pool), (rows, n_shots), generator=generator, device=pool.device)]


def balanced_batch(tasks: Int[Tensor, "task 2"], examples: Int[Tensor, "row shot 2"], p: int) -> Int[Tensor, "batch pos"]:
    """The same rows of examples for every task, task after task, as in the authors' code: sequences differ by task alone."""
    return as_tokens(tasks.repeat_interleave(len(examples), dim=0), examples.repeat(len(tasks), 1, 1), p)


def all_queries(context: Int[Tensor, "shot 2"], task: Int[Tensor, "2"], p: int) -> Int[Tensor, "pair pos"]:
    """The same examples of a task followed by each of the p^2 queries, y running fastest, and its answer."""
    queries = all_pairs(p).numbers
    examples = torch.cat([context.expand(len(queries), -1, -1), queries[:, None]], dim=1)
    return as_tokens(task.expand(len(queries), -1), examples, p)


def examples_of(tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch shot 2"]:
    """The pairs (x, y) of each sequence."""
    return tokens.unflatten(1, (-1, 3))[..., :2]


def answers_of(tokens: Int[Tensor, "batch pos"]) -> Int[Tensor, "batch shot"]:
    """The z of each example."""
    return tokens[:, 2::3]


def answer_logits(model: HookedRootModule, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch shot residue"]:
    """What the model expects for each z, read at the y in front of it; the last z, which nothing follows, is not read in."""
    return model(tokens[:, :-1])[:, 1::3]


def answer_loss(logits: Float[Tensor, "batch shot residue"], tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, ""]:
    """Cross-entropy in nats, mean over all z; what the model would say for an x or a y is not asked."""
    return cross_entropy(logits.flatten(0, 1).float(), answers_of(tokens).flatten())
