"""What heads attend to in sentence pairs: the same word in the other sentence, neighbours, separators, themselves.

The Heuristic Core (Figure 9) describes its core heads so, without publishing a metric; this is one, with baselines.
"""

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hc_lens.analysis.attended import AttentionScores, PairAttention
from hc_lens.analysis.targets import OVERLAPS, RELATIONS, targets_of
from hc_lens.data.batches import Batch, Encoded, encode
from hc_lens.data.sampling import some_rows
from hc_lens.data.task import Split, Task
from hc_lens.data.tokenise import PairTokenizer
from hc_lens.data.words import Extra, Matching, align_words
from hc_lens.forward import device_of, inference, length_limit, run_batch, shape_of
from hc_lens.hooks import Edit, HookedModel, HookFunction, captured, hooked, pattern_point
from hc_lens.precision import Kind, resolve
from hc_lens.progress import Advance, progress
from hc_lens.sample import ALL_ROWS, Sample


def attention_scores(
    model: HookedModel,
    data: Task | Split | Mapping[str, Split],
    sample: Sample = ALL_ROWS,
    *,
    words: Matching = "word",
    include: Collection[Extra] = (),
    shuffle: bool = True,
    edits: Sequence[Edit] = (),
) -> AttentionScores:
    """Measure what every head attends to (The Heuristic Core, Figure 9): see `hc_lens.analysis.targets.Relation`.

    A query is a word: its tokens' attention is averaged, that to the pieces of a target summed. With `words="token"` every
    token is a word of its own. Punctuation and special tokens ask nothing unless `include` names them. Attention is read after
    the softmax, in eval mode; sums per pair are all that is kept. The sample's seed draws the shuffled pairs, too
    (`shuffle=False` saves their pass). `edits` are in place meanwhile: those of a subnetwork, say.

    Works on any hooked model with a tokenizer whose blocks have `attn.hook_pattern`.

    Raises:
        HookError: for a model without `attn.hook_pattern`, or whose pattern does not fire.
        KeyError: for a case that `data` does not have.
        TypeError: for a slow tokenizer.
        ValueError: for no cases, a model without a tokenizer, attention that is not finite.
    """
    chosen, seed = _cases(data, sample.cases), sample.seed
    pairs = PairTokenizer.of(tokenizer_of(model), length_limit(model, sample.max_length))
    splits = [split.take(some_rows(len(split), sample.max_rows, seed)) for split, _ in chosen.values()]
    kind = resolve(sample.precision, model, sample.batch_size)
    with inference(model), progress("reading attention", (1 + shuffle) * sum(map(len, splits))) as advance:
        causal = is_causal(model, pairs)
        read = _Reader(model, pairs, sample.batch_size, words, frozenset(include), tuple(edits), causal, kind, advance)
        parts: list[tuple[PairAttention, PairAttention | None]] = []
        for split, (case, (_, group)) in zip(splits, chosen.items(), strict=True):
            other = _shuffled(split, seed) if shuffle and len(split) > 1 else None
            parts.append((read(split, case, group), None if other is None else read(other, case, group)))
    return AttentionScores(tuple(part for part, _ in parts), tuple(other for _, other in parts))


def tokenizer_of(model: HookedModel) -> PreTrainedTokenizerBase:
    """The model's tokenizer.

    Raises:
        ValueError: if it has none.
    """
    tokenizer = cast("PreTrainedTokenizerBase | None", getattr(model, "tokenizer", None))
    if tokenizer is None:
        raise ValueError(f"{type(model).__name__} has no tokenizer, so its tokens' words are unknown: load the model with one")
    return tokenizer


def is_causal(model: HookedModel, pairs: PairTokenizer) -> bool:
    """Whether no token attends to a later one; asked of the attention itself where the config says so.

    TransformerLens's bridge says "causal" of every model, encoders included.
    """
    if getattr(model.cfg, "attention_dir", None) == "bidirectional":
        return False
    probe = encode_pair(pairs, "a b c", "a b c")
    with captured(model, [pattern_point(0)]) as seen:
        run_batch(model, probe.batch([0]).to(device_of(model)))
    return bool((seen[pattern_point(0)].triu(1) == 0).all())


def encode_pair(pairs: PairTokenizer, first: str, second: str) -> Encoded:
    """One pair of sentences, encoded."""
    return encode(Split("pair", (first,), (second,), (0,), ("",), (0,)), pairs.tokenizer, pairs.max_length)


def _cases(data: Task | Split | Mapping[str, Split], names: Sequence[str] | None) -> dict[str, tuple[Split, str]]:
    if isinstance(data, Task):
        known = {name: (split, data.group(name)) for name, split in data.cases.items()}
    else:
        splits = {data.name: data} if isinstance(data, Split) else data
        known = {name: (split, "") for name, split in splits.items()}
    if unknown := [name for name in names or () if name not in known]:
        raise KeyError(f"there is no case {unknown[0]!r}; there are {list(known)}")
    chosen = {name: known[name] for name in (known if names is None else names)}
    if not chosen:
        raise ValueError(f"no cases to read: there are {list(known)}")
    return chosen


def _shuffled(split: Split, seed: int) -> Split:
    """Every first sentence with the second sentence of another row."""
    order = np.random.default_rng(seed).permutation(len(split))
    source = np.empty_like(order)
    source[order] = np.roll(order, 1)  # one cycle through all rows: none keeps its own
    return dataclasses.replace(split, second=tuple(split.second[i] for i in source))


@dataclass(frozen=True)
class _Reader:
    """The pass over one split's pairs; everything that all splits share."""

    model: HookedModel
    pairs: PairTokenizer
    batch_size: int
    words: Matching
    include: frozenset[Extra]
    edits: tuple[Edit, ...]
    causal: bool
    precision: Kind
    advance: Advance

    def __call__(self, split: Split, case: str, group: str) -> PairAttention:
        encoded = encode(split, self.pairs.tokenizer, self.pairs.max_length)
        shape, n, r = shape_of(self.model), len(split), len(RELATIONS)
        mass = np.zeros((n, shape.n_layers, shape.n_heads, r + len(OVERLAPS)), dtype=np.float32)
        uniform, queries = np.zeros((2, n, r), dtype=np.float32)
        for batch in encoded.batches(self.batch_size):
            rows = batch.rows.numpy()
            first, second = ([texts[row] for row in rows] for texts in (split.first, split.second))
            aligned = align_words(self.pairs, first, second, matching=self.words, include=self.include)
            targets = targets_of(aligned, self.pairs.separator, causal=self.causal)
            mass[rows] = self._sums(batch, torch.cat([targets.weights, targets.others], dim=1))
            uniform[rows], queries[rows] = targets.uniform.numpy(), targets.queries.numpy()
            self.advance(len(rows))
        if not queries.any():
            raise ValueError(f"case {case!r}: none of its {n} pairs has a word, so nothing attends to anything")
        return PairAttention(case, group, mass[..., :r], mass[..., r:], uniform, queries)

    def _sums(
        self, batch: Batch, weights: Float[Tensor, "batch relation query key"]
    ) -> Float[np.ndarray, "batch layer head relation"]:
        """The patterns of every layer, each weighted and summed while it passes; none is kept."""
        device, sums = device_of(self.model), dict[int, Tensor]()
        flat = weights.flatten(2).mT.to(device)

        def reader(layer: int) -> HookFunction:
            def hook(pattern: Float[Tensor, "batch head query key"], hook: object) -> Tensor:
                with torch.autocast(device.type, enabled=False):
                    sums[layer] = pattern.float().flatten(2) @ flat
                return pattern

            return hook

        layers = range(shape_of(self.model).n_layers)
        # blocks whose pattern is listened to compute it step by step, not fused: their low precision is autocast's
        low = torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bf16")
        with low, hooked(self.model, [*self.edits, *(Edit(pattern_point(layer), reader(layer)) for layer in layers)]):
            run_batch(self.model, batch.to(device))
        found = torch.stack([sums[layer] for layer in layers], dim=1).cpu()
        if not found.isfinite().all():
            raise ValueError(
                f"attention of row {int(batch.rows[0])} and its batch is not finite: the model's weights are damaged"
            )
        return found.numpy()
