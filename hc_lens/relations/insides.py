"""Which heads and MLPs carry a readable relation, and which the new relation uses (ours, beyond the paper).

The tools are those of the heuristic core: mean ablation, and gates that are pruned.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.hook_points import HookPoint

from hc_lens.analysis.null import core_null
from hc_lens.analysis.overlap import jaccard, kept_units
from hc_lens.data.batches import Encoded
from hc_lens.forward import device_of, inference
from hc_lens.hooks import Edit, HookFunction, captured, hooked, mlp_point, z_point
from hc_lens.means import ActivationMeans
from hc_lens.models import LanguageModel, classifier_of
from hc_lens.pruning import PruneConfig, prune
from hc_lens.relations.config import Place
from hc_lens.relations.fits import Fit, logistic
from hc_lens.relations.probe import Readability, probe_scores
from hc_lens.relations.prompts import Prompts, continuation, encode_prompts
from hc_lens.relations.relation import Relation
from hc_lens.relations.scores import margins
from hc_lens.relations.split import Split
from hc_lens.statistics import bootstrap_means, percentile_interval
from hc_lens.subnetwork import Subnetwork
from hc_lens.units import Head, Mlp, Unit


def carriers(
    model: LanguageModel,
    prompts: Prompts,
    codes: Int[Tensor, " fact"],
    split: Split,
    found: Readability,
    at: Place = "subject",
    fit: Fit = logistic,
) -> pd.DataFrame:
    """What a probe loses when one head or MLP below its layer is mean-ablated: which units write the relation into the state.

    The probe is the one of `found`, fitted on the full model's training facts. A unit's activation at the probed token becomes
    its mean there over the training facts, for held-out facts only; at other tokens the unit stays, so that a first token on
    which a model rests its attention is not ablated with it. Blocks before the unit's own are not computed again.

    Args:
        prompts: of all facts, those that `found` was probed in, at the token `at`.
        codes: each fact's answer, as `found` was given them.

    Returns:
        A row per unit of the blocks below the probed layer (none for the embedding), in the model's order: `unit`, `layer`,
        `accuracy` with the unit ablated; `effect`, the accuracy lost, with its 95 % interval `low`, `high` (paired over
        held-out facts); `margin`, by how much the true answer's lead over the best other one falls.

    Raises:
        ValueError: if the probe's layer is not one of the model's.
    """
    if found.layer > model.cfg.n_layers:
        raise ValueError(f"the probe is of layer {found.layer}, the model has the layers 0..{model.cfg.n_layers}")
    states = _states(model, prompts, split, found.layer, at)
    if not states.ablated:
        return pd.DataFrame(columns=["unit", "layer", "accuracy", "effect", "low", "high", "margin"])
    held_out = torch.cat([states.full[list(split.held_out)], *states.ablated.values()]).double().numpy()
    train = states.full[list(split.train)].double().numpy()
    (scores,) = probe_scores(train, codes[list(split.train)], held_out, fit, (found.strength,))
    by_unit = scores.unflatten(0, (-1, len(split.held_out)))
    answers = codes[list(split.held_out)]
    right = (by_unit.argmax(-1) == answers).double().T.numpy()
    leads = torch.stack([margins(each, answers) for each in by_unit])
    lost = right[:, :1] - right[:, 1:]
    draws = bootstrap_means(lost)
    rows = [
        {
            "unit": str(unit),
            "layer": unit.layer,
            "accuracy": right[:, 1 + place].mean(),
            "effect": lost[:, place].mean(),
            **percentile_interval(draws[:, place])._asdict(),
            "margin": float((leads[0] - leads[1 + place]).mean()),
        }
        for place, unit in enumerate(states.ablated)
    ]
    return pd.DataFrame(rows)


class _States(NamedTuple):
    """States at the probed layer and token: of all facts, and of the held-out ones with each unit ablated, on the CPU."""

    full: Float[Tensor, "fact d_model"]
    ablated: dict[Unit, Float[Tensor, "held_out d_model"]]


def _states(model: LanguageModel, prompts: Prompts, split: Split, layer: int, at: Place) -> _States:
    places = prompts.subject_last if at == "subject" else prompts.last
    device = device_of(model)
    ids, places = prompts.ids[:, : int(places.max()) + 1].to(device), places.to(device)
    held_out, train = torch.tensor(split.held_out, device=device), torch.tensor(split.train, device=device)
    ablated: dict[Unit, Tensor] = {}

    def run(resid: Tensor, start: int, stop: int) -> Tensor:
        return model(resid, start_at_layer=start, stop_at_layer=stop)

    with inference(model):
        resid: Tensor = model(ids, stop_at_layer=0)
        for block in range(layer):
            points = (z_point(block), mlp_point(block))
            with captured(model, points) as seen:
                after = run(resid, block, block + 1)
            z_mean, mlp_mean = (_at(seen[point][train], places[train]).mean(0) for point in points)
            edits: dict[Unit, Edit] = {
                Head(block, head): Edit(points[0], _set_at(places[held_out], z_mean, head)) for head in range(model.cfg.n_heads)
            }
            edits[Mlp(block)] = Edit(points[1], _set_at(places[held_out], mlp_mean))
            for unit, edit in edits.items():
                with hooked(model, [edit]):
                    ablated[unit] = _at(run(resid[held_out], block, layer), places[held_out]).float().cpu()
            resid = after
        return _States(_at(resid, places).float().cpu(), ablated)


def _at(values: Float[Tensor, "batch pos *output"], places: Int[Tensor, " batch"]) -> Float[Tensor, "batch *output"]:
    return values[torch.arange(len(values), device=values.device), places]


def _set_at(places: Int[Tensor, " batch"], mean: Float[Tensor, "*output"], head: int | None = None) -> HookFunction:
    """Put a mean at one token of each row, for one head or for everything."""

    def hook(activation: Tensor, hook: HookPoint) -> Tensor:
        edited, rows = activation.clone(), torch.arange(len(activation), device=activation.device)
        if head is None:
            edited[rows, places] = mean
        else:
            edited[rows, places, head] = mean[head]
        return edited

    return hook


def relation_subnetworks(
    model: LanguageModel,
    relation: Relation,
    template: str,
    words: Mapping[str, str],
    config: PruneConfig,
    seeds: Sequence[int],
) -> tuple[Subnetwork, ...]:
    """The units with which a model answers a relation: gates pruned on its prompts, to imitate the full model's own answers.

    The model is taken as a classifier of the answers' words (`hc_lens.models.classifier_of`). Means are over the prompts.

    Args:
        words: what each answer of the relation is said with: the answers themselves, or the labels of a new relation
            (`LabelMap.labels`); one token each.

    Raises:
        ValueError: for an answer without a word, a word of several tokens, and prompts that cannot be encoded.
        PruneError: if the gates of every seed ended all open or all closed; a seed whose do is left out.
    """
    tokens: dict[str, int] = {}
    for answer in relation.answers:
        if answer not in words:
            raise ValueError(f"relation {relation.name!r}: answer {answer!r} has no word")
        token, *more = continuation(model, f" {words[answer]}")
        if more:
            raise ValueError(
                f"relation {relation.name!r}: {words[answer]!r} has {1 + len(more)} tokens; a classifier needs one for each"
            )
        tokens[words[answer]] = token
    classifier = classifier_of(model, tokens)
    encoded = _encoded(encode_prompts(model, relation, template), relation.codes, model.pad_id)
    means = ActivationMeans.collect(classifier, encoded)
    return prune(classifier, encoded, means, config, seeds).subnetworks


def _encoded(prompts: Prompts, codes: Int[Tensor, " fact"], pad_id: int) -> Encoded:
    tokens = torch.tensor([token for row in prompts.rows() for token in row], dtype=torch.int32)
    digest = hashlib.sha256()
    for values in (tokens, prompts.lengths, codes):
        digest.update(values.numpy().tobytes())
    return Encoded(tokens, None, prompts.lengths, codes, pad_id, digest.hexdigest())


def shared_heads(before: Sequence[Subnetwork], after: Sequence[Subnetwork], n: int = 10_000, seed: int = 0) -> pd.DataFrame:
    """How many heads the subnetworks of the old relation and of the new one share, seed by seed, and how many by chance.

    Chance is `hc_lens.analysis.null.core_null`: each subnetwork's heads shuffled within their layers, so that it is no
    agreement that both prefer the same layers.

    Args:
        before, after: of the model before and after fine-tuning, in the order of the same seeds.
        n: permutations.

    Returns:
        A row per seed: `seed`, `before` and `after` (heads kept), `both`, `jaccard`; `chance` (the permutations' mean) with its
        central 95 % `low`, `high`; `p`, one-sided.

    Raises:
        ValueError: for other seeds before than after, or subnetworks of models of different shape.
    """
    if (one := [sub.seed for sub in before]) != (other := [sub.seed for sub in after]):
        raise ValueError(f"subnetworks are compared seed by seed: those before have the seeds {one}, those after {other}")
    rows: list[dict[str, object]] = []
    for first, second in zip(before, after, strict=True):
        null = core_null(kept_units([first, second]), k=2, n=n, seed=seed)
        rows.append(
            {
                "seed": first.seed,
                "before": int(first.mask[:, :-1].sum()),
                "after": int(second.mask[:, :-1].sum()),
                "both": null.observed,
                "jaccard": float(jaccard([first, second]).to_numpy()[0, 1]),
                "chance": null.permutation_mean,
                "low": null.interval.low,
                "high": null.interval.high,
                "p": null.p_value,
            }
        )
    return pd.DataFrame(rows)
