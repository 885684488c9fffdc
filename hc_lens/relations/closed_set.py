"""How likely a model finds each of a few given answers after a prompt: the sum of the log-probabilities of its tokens."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import takewhile

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache
from transformer_lens.cache.key_value_cache_entry import TransformerLensKeyValueCacheEntry

from hc_lens.forward import device_of, inference
from hc_lens.models.language import LanguageModel

Tokens = Sequence[int]


def closed_set_scores(
    model: LanguageModel, prompts: Sequence[Tokens], answers: Sequence[Tokens], batch_size: int = 32
) -> Float[Tensor, "fact answer"]:
    """Log-probability (nats) of each answer's tokens after each prompt's, over the whole vocabulary; on the CPU.

    What all prompts begin with, such as the examples of a few-shot prompt, runs once; so does each prompt for all answers.

    Raises:
        ValueError: for no prompts or answers, an empty one, and a prompt that is with the answer longer than the model reads.
    """
    if not prompts or not answers or not all(prompts) or not all(answers):
        raise ValueError("closed_set_scores needs prompts and answers, each of at least one token")
    longest = max(map(len, prompts)) + max(map(len, answers)) - 1
    if longest > model.max_length:
        raise ValueError(f"prompt and answer have up to {longest} tokens; the model reads {model.max_length}")
    scores = torch.empty(len(prompts), len(answers))
    with inference(model):
        shared = _common(prompts)
        prefix = _empty_cache(model)
        if shared:
            _extended(model, prefix, torch.tensor([prompts[0][:shared]]))
        # Rows of one length need no padding, which would stand between a prompt and its answer.
        for rows in _equally_long(prompts, batch_size):
            cache = _repeated(prefix, len(rows))
            resid = _extended(model, cache, torch.tensor([list(prompts[row][shared:]) for row in rows]))
            for frozen in (cache, *cache.entries):
                frozen.frozen = True
            scores[rows] = _answered(model, cache, _log_probabilities(model, resid[:, -1:])[:, 0], answers).float().cpu()
    return scores


def _answered(
    model: LanguageModel, cache: TransformerLensKeyValueCache, after: Float[Tensor, "batch vocab"], answers: Sequence[Tokens]
) -> Float[Tensor, "batch answer"]:
    """Scores of the answers after what the cache holds, whose next token has these log-probabilities."""
    scores = after[:, [answer[0] for answer in answers]]
    by_beginning: dict[tuple[int, ...], list[int]] = defaultdict(list)
    for place, answer in enumerate(answers):
        by_beginning[tuple(answer[:-1])].append(place)
    for beginning, places in by_beginning.items():
        if beginning:
            resid = _extended(model, cache, torch.tensor([beginning]).expand(len(after), -1))
            following = _log_probabilities(model, resid)
            for place in places:
                rest = torch.tensor(answers[place][1:], device=following.device)
                scores[:, place] += following.gather(2, rest.expand(len(after), -1)[..., None]).sum(dim=(1, 2))
    return scores


def _extended(
    model: LanguageModel, cache: TransformerLensKeyValueCache, ids: Int[Tensor, "batch pos"]
) -> Float[Tensor, "batch pos d_model"]:
    """The last residual stream of these tokens after those of the cache, which (unfrozen) takes them in."""
    ids = ids.to(device_of(model))
    mask = torch.ones_like(ids)  # given, since TransformerLens would take pad tokens inside a text for padding
    return model(ids, past_kv_cache=cache, attention_mask=mask, stop_at_layer=model.cfg.n_layers)


def _log_probabilities(model: LanguageModel, resid: Float[Tensor, "batch pos d_model"]) -> Float[Tensor, "batch pos vocab"]:
    """Of the token that follows each position."""
    return model.unembed(model.ln_final(resid)).float().log_softmax(dim=-1)


def _common(rows: Sequence[Tokens]) -> int:
    """How many tokens all rows begin with; each keeps one of its own at least."""
    shared = sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, zip(*rows, strict=False)))
    return min(shared, min(map(len, rows)) - 1)


def _equally_long(rows: Sequence[Tokens], batch_size: int) -> list[list[int]]:
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        by_length[len(row)].append(place)
    return [places[i : i + batch_size] for places in by_length.values() for i in range(0, len(places), batch_size)]


def _empty_cache(model: LanguageModel) -> TransformerLensKeyValueCache:
    return TransformerLensKeyValueCache.init_cache(model.cfg, device_of(model), 1)


def _repeated(cache: TransformerLensKeyValueCache, times: int) -> TransformerLensKeyValueCache:
    """The same cache for a batch of rows that go on from it."""
    return TransformerLensKeyValueCache(
        [
            TransformerLensKeyValueCacheEntry(
                entry.past_keys.expand(times, -1, -1, -1), entry.past_values.expand(times, -1, -1, -1)
            )
            for entry in cache.entries
        ],
        cache.previous_attention_mask.expand(times, -1),
    )
