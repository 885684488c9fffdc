"""The attention of chosen heads on one sentence pair, token by token, as a table."""

from collections.abc import Sequence

import numpy as np
import pandas as pd

from hc_lens.analysis.attention import encode_pair, tokenizer_of
from hc_lens.data.tokenise import PairTokenizer
from hc_lens.data.words import align_words
from hc_lens.forward import device_of, inference, length_limit, run_batch, shape_of
from hc_lens.hooks import Edit, HookedModel, captured, hooked, pattern_point
from hc_lens.units import Head, require_in_model


def attention_pattern(
    model: HookedModel,
    first: str,
    second: str,
    heads: Sequence[Head],
    *,
    max_length: int | None = None,
    edits: Sequence[Edit] = (),
) -> pd.DataFrame:
    """What each token of a pair attends to in these heads, after the softmax: one row per head, query and key.

    | column | meaning |
    |---|---|
    | `layer`, `head` | from 0, in the order of `heads` |
    | `query`, `key` | positions in the row, from 0 |
    | `query_token`, `key_token` | the tokens as they stand in the text; `##` marks a later piece of a word |
    | `query_sentence`, `key_sentence` | 0 (first), 1 (second), or -1 (special tokens, the joining separator) |
    | `same_word` | whether the two are pieces of equal normalised words in different sentences |
    | `weight` | the share of the query's attention |

    The pair is cut at `max_length` tokens, by default and at most the model's limit; `edits` are in place meanwhile.

    Raises:
        HookError: for a model without `attn.hook_pattern`.
        TypeError: for a slow tokenizer.
        ValueError: for no heads, a head that the model does not have, or a model without a tokenizer.
    """
    if not heads:
        raise ValueError("no heads to show: give at least one, such as Head(4, 0)")
    shape = shape_of(model)
    require_in_model(heads, shape.n_layers, shape.n_heads)
    pairs = PairTokenizer.of(tokenizer_of(model), length_limit(model, max_length))
    batch = encode_pair(pairs, first, second).batch([0])
    points = list(dict.fromkeys(pattern_point(head.layer) for head in heads))
    with inference(model), hooked(model, edits), captured(model, points) as seen:
        run_batch(model, batch.to(device_of(model)))
    (words,) = align_words(pairs, [first], [second])
    query, key = (at.ravel() for at in np.indices((len(words), len(words))))
    labels = np.array(words.labels, dtype=object)
    across = (words.sentence[query] != words.sentence[key]) & (words.key[query] >= 0)
    tokens = pd.DataFrame(
        {
            "query": query,
            "key": key,
            "query_token": labels[query],
            "key_token": labels[key],
            "query_sentence": words.sentence[query],
            "key_sentence": words.sentence[key],
            "same_word": across & (words.key[query] == words.key[key]),
        }
    )
    tables: list[pd.DataFrame] = []
    for head in heads:
        weights = seen[pattern_point(head.layer)][0, head.index].float().cpu().numpy()
        table = tokens.assign(weight=weights.ravel())
        table.insert(0, "layer", head.layer)
        table.insert(1, "head", head.index)
        tables.append(table)
    return pd.concat(tables, ignore_index=True)
