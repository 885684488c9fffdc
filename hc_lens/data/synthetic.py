"""The embedded default task: an NLI corpus of our own grammar in which lexical overlap almost always means entailment.

It needs no download and trains in under a minute on a CPU, and it shows in small what MNLI and HANS show in large (McCoy et
al. 2019, "Right for the Wrong Reasons"): a classifier first learns the overlap heuristic, which in-domain accuracy rewards, and
later, from the few pairs that break it, what the constructions mean.
"""

import functools
import itertools
import random
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, PreTrainedTokenizerFast

from hc_lens.data.grammar import CONSTRUCTIONS, VOCABULARY, Frame, estrange, plain_pair
from hc_lens.data.task import Split, Task

LABELS = ("entailment", "non-entailment")
TWIN_SUFFIX = "_entailed"
MAX_LENGTH = 32
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_CONSTRUCTION_SHARE = 0.3
_MAX_TRIES = 1_000


class _Pair(NamedTuple):
    premise: str
    hypothesis: str
    label: int


_Drawn = TypeVar("_Drawn", _Pair, Frame)


def synthetic_nli(
    minority: float = 0.03,
    seed: int = 0,
    n_train: int = 20_000,
    n_id: int = 1_000,
    n_ood_per_case: int = 200,
) -> Task:
    """Generate the task: training pairs, one in-domain split of the same distribution, and twelve out-of-domain cases.

    `minority` is the share of training (and in-domain) pairs that break the heuristic: every word of the hypothesis is in the
    premise, yet it is not entailed. The other pairs are entailed with full overlap (half of all pairs, the six constructions
    included) or not entailed with words that the premise lacks. Out of domain, each construction gives two cases of
    `n_ood_per_case` rows: `preposition`, never entailed, and its twin `preposition_entailed`, row for row the same premises
    with an entailed hypothesis. No premise of an evaluation split occurs in training.

    The same arguments give the same task in every process.

    Raises:
        ValueError: if `minority` is outside [0, 0.5], a size is below 1, or the grammar has too few premises for the sizes.
    """
    if not 0 <= minority <= 0.5:
        raise ValueError(f"minority is a share of the training pairs and must be in [0, 0.5], got {minority}")
    for name, size in (("n_train", n_train), ("n_id", n_id), ("n_ood_per_case", n_ood_per_case)):
        if size < 1:
            raise ValueError(f"{name} must be at least 1, got {size}")
    train = _corpus(random.Random(f"train {seed}"), n_train, minority, avoid=frozenset())
    seen = frozenset(pair.premise for pair in train)
    in_domain = _corpus(random.Random(f"in-domain {seed}"), n_id, minority, avoid=seen)
    ood: dict[str, Split] = {}
    for case, construct in CONSTRUCTIONS.items():
        draw = functools.partial(construct, random.Random(f"{case} {seed}"))
        frames = _with_new_premises([draw] * n_ood_per_case, avoid=seen)
        ood[case] = _split(case, [_Pair(f.premise, f.broken, 1) for f in frames])
        twin = case + TWIN_SUFFIX
        ood[twin] = _split(twin, [_Pair(f.premise, f.entailed, 0) for f in frames])
    return Task(
        name=f"synthetic_nli(minority={minority}, seed={seed})",
        labels=LABELS,
        train=_split("train", train),
        in_domain={"in_domain": _split("in_domain", in_domain)},
        ood=ood,
    )


def synthetic_tokenizer() -> PreTrainedTokenizerFast:
    """The word-level tokenizer of the task: lower-cased words, `[CLS] first [SEP] second [SEP]` with token types 0 and 1."""
    ids = {word: i for i, word in enumerate((*_SPECIAL, *VOCABULARY))}
    tokenizer = Tokenizer(models.WordLevel(ids, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[(token, ids[token]) for token in ("[CLS]", "[SEP]")],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        model_max_length=MAX_LENGTH,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
    )


def synthetic_config(labels: Sequence[str] = LABELS) -> BertConfig:
    """A post-LN BERT of 4 layers x 8 heads, width 128 (0.8 M parameters), for `synthetic_tokenizer` and these label names."""
    return BertConfig(
        vocab_size=len(_SPECIAL) + len(VOCABULARY),
        hidden_size=128,
        num_hidden_layers=4,
        num_attention_heads=8,
        intermediate_size=512,
        max_position_embeddings=MAX_LENGTH,
        initializer_range=0.05,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        pad_token_id=0,
        id2label=dict(enumerate(labels)),
        label2id={label: i for i, label in enumerate(labels)},
    )


def _split(name: str, pairs: Sequence[_Pair]) -> Split:
    first, second, labels = zip(*pairs, strict=True)
    return Split(name, first, second, labels, LABELS, tuple(range(len(LABELS))))


def _corpus(rng: random.Random, n: int, minority: float, avoid: frozenset[str]) -> list[_Pair]:
    """`n` pairs in random order, half of them entailed; those that break the heuristic are spread evenly over constructions."""
    n_broken = round(minority * n)
    n_strange = max(n // 2 - n_broken, 0)
    turns = itertools.cycle(CONSTRUCTIONS.values())

    def broken() -> _Pair:
        frame = next(turns)(rng)
        return _Pair(frame.premise, frame.broken, 1)

    def strange() -> _Pair:
        premise, hypothesis = _overlapping(rng)
        return _Pair(premise, estrange(rng, premise, hypothesis), 1)

    def entailed() -> _Pair:
        return _Pair(*_overlapping(rng), 0)

    draws = [broken] * n_broken + [strange] * n_strange + [entailed] * (n - n_broken - n_strange)
    pairs = _with_new_premises(draws, avoid)
    rng.shuffle(pairs)
    return pairs


def _overlapping(rng: random.Random) -> tuple[str, str]:
    """An entailed pair with full overlap: an ordinary one, or one of the constructions that can also break the heuristic."""
    if rng.random() >= _CONSTRUCTION_SHARE:
        return plain_pair(rng)
    frame = rng.choice(list(CONSTRUCTIONS.values()))(rng)
    return frame.premise, frame.entailed


def _with_new_premises(draws: Sequence[Callable[[], _Drawn]], avoid: frozenset[str]) -> list[_Drawn]:
    """What each draw gives, drawn again while its premise is one to avoid or was given before."""
    premises = set(avoid)
    found: list[_Drawn] = []
    for draw in draws:
        for _ in range(_MAX_TRIES):
            if (drawn := draw()).premise not in premises:
                break
        else:
            raise ValueError(f"the grammar has no new premise left after {len(premises)}: ask for smaller splits")
        premises.add(drawn.premise)
        found.append(drawn)
    return found
