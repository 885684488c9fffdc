"""What heads attend to, and whether what they write lies on circles in the order of discrete logarithms.

To ratio matching a number is its logarithm: multiplying by c turns the circle of the numbers 1..p-1 by log c. All features here
are those of the last query, for all p^2 queries after the same examples.
"""

from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens import HookedTransformer

from hc_lens.forward import device_of, inference
from hc_lens.hooks import captured, pattern_point, z_point
from hc_lens.modular.incontext.algorithms import inverses, multiples
from hc_lens.modular.incontext.sequences import examples_of
from hc_lens.modular.spectrum import discrete_logs, in_log_basis, ipr

_SHUFFLES = 20


def attention_maps(model: HookedTransformer, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "layer head query key"]:
    """The attention weights of every head, mean over sequences; on the CPU."""
    points = [pattern_point(layer) for layer in range(model.cfg.n_layers)]
    seen = _activations(model, tokens, points)
    return torch.stack([seen[point].mean(0) for point in points])


def matching_attention(model: HookedTransformer, tokens: Int[Tensor, "batch pos"], p: int) -> pd.DataFrame:
    """Where each head looks from the y of the last query, in sequences with an example that the query is a multiple of.

    Columns: `layer`, `head`; the attention, mean over sequences, to the query itself (`own`), to the examples that it is a
    multiple of (`matching`) and to the `other` examples; `chance`, what `matching` would be if examples were looked at alike.

    Raises:
        ValueError: if there is no such sequence.
    """
    matches = multiples(examples_of(tokens), p)[:, -1]
    tokens, matches = tokens[matches.any(1)], matches[matches.any(1)][:, :-1].float()
    if not len(tokens):
        raise ValueError("matching_attention needs a sequence whose last query is a multiple of an earlier example; got none")
    points = [pattern_point(layer) for layer in range(model.cfg.n_layers)]
    seen = _activations(model, tokens, points)
    share = matches.mean(1)
    rows: list[dict[str, float]] = []
    for layer, point in enumerate(points):
        at_y = seen[point][:, :, -2]
        own = at_y[:, :, -3:].sum(-1)
        by_example = at_y[:, :, :-3].unflatten(-1, (-1, 3)).sum(-1)
        matching = (by_example * matches[:, None]).sum(-1)
        other = by_example.sum(-1) - matching
        chance = (matching + other) * share[:, None]
        for head in range(at_y.shape[1]):
            means = {"own": own, "matching": matching, "other": other, "chance": chance}
            rows.append({"layer": layer, "head": head, **{name: float(v[:, head].mean()) for name, v in means.items()}})
    return pd.DataFrame(rows)


def head_features(model: HookedTransformer, queries: Int[Tensor, "pair pos"]) -> Float[Tensor, "layer head pair feature"]:
    """What each head writes to the residual stream at the x and at the y of the last query, side by side; on the CPU."""
    points = [z_point(layer) for layer in range(model.cfg.n_layers)]
    seen = _activations(model, queries, points)
    layers: list[Tensor] = []
    for layer, point in enumerate(points):
        z = seen[point][:, -3:-1]  # pair, (x, y), head, d_head
        written = torch.einsum("nqhd,hdm->hnqm", z, model.blocks[layer].attn.W_O.detach().cpu())
        layers.append(written.flatten(2))
    return torch.stack(layers)


class Components(NamedTuple):
    """The two directions of most variance: coordinates along them, and the share of the variance of each."""

    coordinates: Float[Tensor, "point 2"]
    explained: Float[Tensor, "2"]


def principal_components(features: Float[Tensor, "point feature"]) -> Components:
    """Principal component analysis of centred features, in float64."""
    centred = (features - features.mean(0)).double()
    u, s, _ = torch.linalg.svd(centred, full_matrices=False)
    return Components((u[:, :2] * s[:2]).float(), (s[:2].square() / s.square().sum().clamp(min=1e-30)).float())


class Circularity(NamedTuple):
    """How far points lie on a circle in the order of their logarithms.

    `r2` is the share of the variance that one harmonic of the logarithm explains, the best of all; `chance` is the same after
    shuffling which number has which logarithm (mean), which is no small number for a small p.
    """

    frequency: int
    r2: float
    chance: float


def circularity(coordinates: Float[Tensor, "point 2"], numbers: Int[Tensor, " point"], p: int, seed: int = 0) -> Circularity:
    """The fit of points, each standing for a number 1..p-1, by cos and sin of 2 pi k log_g(number) / (p - 1).

    Raises:
        ValueError: if p < 5 (any three points lie on a circle), or a number is 0, which has no logarithm.
    """
    if p < 5 or not bool((numbers > 0).all()):
        raise ValueError(f"circularity needs p >= 5 and numbers in 1..{p - 1}, got p = {p} and {sorted(set(numbers.tolist()))}")
    logs = discrete_logs(p)
    generator = torch.Generator().manual_seed(seed)
    shuffled = [
        max(_fits(coordinates, logs[1:][torch.randperm(p - 1, generator=generator)][numbers - 1], p)) for _ in range(_SHUFFLES)
    ]
    fits = _fits(coordinates, logs[numbers], p)
    return Circularity(1 + fits.index(max(fits)), max(fits), sum(shuffled) / len(shuffled))


def _fits(coordinates: Float[Tensor, "point 2"], logs: Int[Tensor, " point"], p: int) -> list[float]:
    """R^2 of each harmonic, from the first on."""
    centred = (coordinates - coordinates.mean(0)).double()
    total = centred.square().sum().clamp(min=1e-30)
    fits: list[float] = []
    for frequency in range(1, (p - 1) // 2 + 1):
        angle = 2 * torch.pi * frequency * logs.double() / (p - 1)
        design = torch.stack([torch.ones_like(angle), angle.cos(), angle.sin()], dim=1)
        fitted = design @ (torch.linalg.pinv(design) @ centred)
        fits.append(float(1 - (centred - fitted).square().sum() / total))
    return fits


def head_circles(model: HookedTransformer, queries: Int[Tensor, "pair pos"], p: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Principal components of every head's output over all queries without a 0, and how circular they are.

    Two tables. Points: `layer`, `head`, `x`, `y`, `log_x`, `log_y`, `first`, `second`. Circles: `layer`, `head`, `explained`
    (by both components), `of` ("x", "y" or "y / x"), `frequency`, `r2`, `chance`.
    """
    pairs = examples_of(queries)[:, -1]
    used = (pairs > 0).all(1)
    x, y = pairs[used].unbind(1)
    logs, numbers = discrete_logs(p), {"x": x, "y": y, "y / x": y * inverses(p, y.device)[x] % p}
    points: list[pd.DataFrame] = []
    circles: list[dict[str, object]] = []
    for layer, heads in enumerate(head_features(model, queries)[:, :, used]):
        for head, features in enumerate(heads):
            found = principal_components(features)
            at = {"x": x, "y": y, "log_x": logs[x], "log_y": logs[y]}
            first, second = found.coordinates.unbind(1)
            columns = {name: values.tolist() for name, values in {**at, "first": first, "second": second}.items()}
            points.append(pd.DataFrame({"layer": layer, "head": head, **columns}))
            for name, of in numbers.items():
                fit = circularity(found.coordinates, of, p)
                explained = float(found.explained.sum())
                circles.append({"layer": layer, "head": head, "explained": explained, "of": name, **fit._asdict()})
    return pd.concat(points, ignore_index=True), pd.DataFrame(circles)


def embedding_circle(model: HookedTransformer, p: int) -> tuple[pd.DataFrame, Circularity]:
    """Principal components of the embeddings of 1..p-1 (`number`, `log`, `first`, `second`), and how circular they are."""
    numbers = torch.arange(1, p)
    found = principal_components(model.W_E.detach().cpu()[1:])
    first, second = found.coordinates.unbind(1)
    columns = {"number": numbers, "log": discrete_logs(p)[1:], "first": first, "second": second}
    return pd.DataFrame({k: v.tolist() for k, v in columns.items()}), circularity(found.coordinates, numbers, p)


def periodic_neurons(model: HookedTransformer, queries: Int[Tensor, "pair pos"], p: int) -> pd.DataFrame:
    """The IPR over logarithms of each MLP neuron at the y of the last query: 1 for a neuron that is a cosine of log x or log y.

    Columns: `layer`, `neuron`, `ipr_x` (of its mean over y, for each x) and `ipr_y`; the mean activation does not count.
    """
    tables: list[pd.DataFrame] = []
    for layer in range(model.cfg.n_layers):
        point = f"blocks.{layer}.mlp.hook_post"
        post = _activations(model, queries, [point])[point][:, -2].unflatten(0, (p, p))
        by_number = {"ipr_x": post.mean(1), "ipr_y": post.mean(0)}
        columns = {name: ipr(in_log_basis(of), drop_mean=True).tolist() for name, of in by_number.items()}
        tables.append(pd.DataFrame({"layer": layer, "neuron": range(post.shape[-1]), **columns}))
    return pd.concat(tables, ignore_index=True)


def ratio_similarity(model: HookedTransformer, queries: Int[Tensor, "pair pos"], p: int) -> pd.DataFrame:
    """Whether a block's output at the y of the last query says y / x: cosines of queries with one ratio, and of all others.

    Outputs are standardised over queries, channel by channel. Columns: `layer`, `same`, `other`. Queries with a 0 are left out.
    """
    pairs = examples_of(queries)[:, -1]
    used = (pairs > 0).all(1)
    x, y = pairs[used].unbind(1)
    ratio = y * inverses(p, y.device)[x] % p
    same = ratio[:, None] == ratio
    others = ~torch.eye(len(ratio), dtype=torch.bool)
    rows: list[dict[str, float]] = []
    for layer in range(model.cfg.n_layers):
        point = f"blocks.{layer}.hook_resid_post"
        out = _activations(model, queries, [point])[point][used, -2]
        out = (out - out.mean(0)) / out.std(0).clamp(min=1e-12)
        cosines = torch.nn.functional.normalize(out, dim=1) @ torch.nn.functional.normalize(out, dim=1).T
        rows.append({"layer": layer, "same": float(cosines[same & others].mean()), "other": float(cosines[~same].mean())})
    return pd.DataFrame(rows)


def _activations(model: HookedTransformer, tokens: Int[Tensor, "batch pos"], points: list[str]) -> dict[str, Tensor]:
    """What passes these hook points, on the CPU."""
    with inference(model), captured(model, points) as seen:
        model(tokens.to(device_of(model)))
    return {point: seen[point].float().cpu() for point in points}
