"""The two algorithms that answer from examples alone, as exact oracles, and how far a model agrees with each.

Ratio matching finds an earlier example that the query is a multiple of: (x, y) = c (x_j, y_j) gives z = c z_j. Modular
regression combines two examples: once two of them are independent modulo p, their task is known and every query is answered.
Where an oracle answers it is right, so that agreement with it is accuracy among the queries it answers; what tells the two
apart are the queries that regression answers and ratio matching does not ("Learning to grok", section 5).
"""

from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from hc_lens.modular.incontext.sequences import answers, answers_of, examples_of


class Answers(NamedTuple):
    """What an algorithm answers to each query from the examples before it; 0 where it has no answer."""

    values: Int[Tensor, "batch shot"]
    answered: Bool[Tensor, "batch shot"]


def ratio_matching(tokens: Int[Tensor, "batch pos"], p: int) -> Answers:
    """Answer each query by the first earlier example that it is a multiple of, (0, 0) by any."""
    examples, z = examples_of(tokens), answers_of(tokens)
    matches = multiples(examples, p)
    answered, first = matches.any(-1), matches.int().argmax(-1)
    matched = examples.gather(1, first[..., None].expand(-1, -1, 2))
    return Answers(torch.where(answered, factors(examples, matched, p) * z.gather(1, first) % p, 0), answered)


def modular_regression(tokens: Int[Tensor, "batch pos"], p: int) -> Answers:
    """Solve for the task by the first two independent examples; before they are there, answer what they span."""
    examples, z = examples_of(tokens), answers_of(tokens)
    n_shots = examples.shape[1]
    shot = torch.arange(n_shots, device=tokens.device)
    # only multiples of the first example that is not (0, 0) come before the first that is independent of it
    first = examples.any(-1).int().argmax(1)
    anchor, anchor_z = _at(examples, first), z.gather(1, first[:, None]).squeeze(1)
    independent = determinant(anchor[:, None], examples, p) != 0
    second = torch.where(independent.any(1), independent.int().argmax(1), n_shots)
    other, other_z = (
        _at(examples, second.clamp(max=n_shots - 1)),
        z.gather(1, second.clamp(max=n_shots - 1)[:, None]).squeeze(1),
    )
    inverse = inverses(p, tokens.device)[determinant(anchor, other, p)]
    a = inverse * (anchor_z * other[:, 1] - other_z * anchor[:, 1])
    b = inverse * (other_z * anchor[:, 0] - anchor_z * other[:, 0])
    solved = answers(torch.stack([a, b], dim=-1) % p, examples, p)
    known, spanned = shot > second[:, None], ratio_matching(tokens, p)
    return Answers(torch.where(known, solved, spanned.values), known | spanned.answered)


def determinant(u: Int[Tensor, "*#batch 2"], v: Int[Tensor, "*#batch 2"], p: int) -> Int[Tensor, "*#batch"]:
    """u_x v_y - u_y v_x mod p: 0 if and only if one is a multiple of the other."""
    return (u[..., 0] * v[..., 1] - u[..., 1] * v[..., 0]) % p


def inverses(p: int, device: torch.device) -> Int[Tensor, " residue"]:
    """1 / n modulo the prime p for each n; 0 for 0."""
    return torch.tensor([pow(n, p - 2, p) if n else 0 for n in range(p)], device=device)


def multiples(examples: Int[Tensor, "batch shot 2"], p: int) -> Bool[Tensor, "batch shot earlier"]:
    """Which earlier examples each query is a multiple of."""
    parallel = determinant(examples[:, :, None], examples[:, None], p) == 0
    # every query is parallel to (0, 0), but only (0, 0) is a multiple of it
    possible = examples.any(-1)[:, None] | ~examples.any(-1)[:, :, None]
    return (parallel & possible).tril(-1)


def factors(examples: Int[Tensor, "batch shot 2"], matched: Int[Tensor, "batch shot 2"], p: int) -> Int[Tensor, "batch shot"]:
    """c in examples = c matched; 0 where the match is (0, 0)."""
    inverse = inverses(p, examples.device)
    by_x = examples[..., 0] * inverse[matched[..., 0]]
    by_y = examples[..., 1] * inverse[matched[..., 1]]
    return torch.where(matched[..., 0] != 0, by_x, by_y) % p


def agreement(predictions: Int[Tensor, "batch shot"], tokens: Int[Tensor, "batch pos"], p: int) -> pd.DataFrame:
    """How often predictions agree with each algorithm, by shot.

    Four rows per shot (1 for the first query, which nothing precedes): the queries that `ratio matching` answers, those that
    `regression` does, those that it alone does, and those that `neither` does, where agreement is accuracy. Columns: `shot`,
    `queries`, `n`, `share` (of all queries of that shot), `agreement` (NaN where there is no such query).
    """
    ratio, regression = ratio_matching(tokens, p), modular_regression(tokens, p)
    right = predictions == answers_of(tokens)
    parts = {
        "ratio matching": (ratio.answered, predictions == ratio.values),
        "regression": (regression.answered, predictions == regression.values),
        "regression alone": (regression.answered & ~ratio.answered, predictions == regression.values),
        "neither": (~regression.answered, right),
    }
    tables = [_by_shot(name, queries, agrees) for name, (queries, agrees) in parts.items()]
    return pd.concat(tables, ignore_index=True)


class ChangedMatch(NamedTuple):
    """Sequences in which the one example that the last query is a multiple of was given another answer.

    `original` is what the other examples imply by regression, `changed` what ratio matching now says.
    """

    tokens: Int[Tensor, "batch pos"]
    original: Int[Tensor, " batch"]
    changed: Int[Tensor, " batch"]


def changed_match(tokens: Int[Tensor, "batch pos"], p: int) -> ChangedMatch:
    """Of the sequences whose last query is a multiple of one earlier example alone, that example with its answer raised by 1.

    Only those are kept whose other examples determine the task, so that an algorithm which looks at the match and one which
    solves from all the rest must answer differently.
    """
    examples = examples_of(tokens)
    matches = multiples(examples, p)[:, -1]
    others = (~matches).unsqueeze(-1) * examples  # a match at (0, 0) is independent of nothing
    others[:, -1] = 0
    rank_two = (determinant(others[:, :, None], others[:, None], p) != 0).flatten(1).any(1)
    kept = (matches.sum(1) == 1) & rank_two & examples[:, -1].any(-1)
    tokens, examples, match = tokens[kept].clone(), examples[kept], matches[kept].int().argmax(1)
    factor = factors(examples[:, -1:], _at(examples, match)[:, None], p).squeeze(1)
    rows, original = torch.arange(len(tokens), device=tokens.device), answers_of(tokens)[:, -1].clone()
    place = 3 * match + 2
    tokens[rows, place] = (tokens[rows, place] + 1) % p
    return ChangedMatch(tokens, original, (original + factor) % p)


def _at(examples: Int[Tensor, "batch shot 2"], shot: Int[Tensor, " batch"]) -> Int[Tensor, "batch 2"]:
    return examples[torch.arange(len(examples), device=examples.device), shot]


def _by_shot(name: str, queries: Bool[Tensor, "batch shot"], agrees: Bool[Tensor, "batch shot"]) -> pd.DataFrame:
    n, agreeing = queries.sum(0), (queries & agrees).sum(0)
    return pd.DataFrame(
        {
            "shot": range(1, queries.shape[1] + 1),
            "queries": name,
            "n": n.tolist(),
            "share": (n / max(1, len(queries))).tolist(),
            "agreement": (agreeing / n).tolist(),
        }
    )
