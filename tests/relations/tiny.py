"""A tiny language model over a few words, and a relation between them."""

from functools import cache

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast

from hc_lens.models.language import LanguageModel, new_language_model
from hc_lens.relations.relation import Fact, Relation

SUBJECTS = tuple(f"s{i}" for i in range(12))
WORDS = (
    "[PAD]",
    "[UNK]",
    "is",
    "in",
    "from",
    "new",
    "north",
    "->",
    ".",
    "east",
    "west",
    "crab",
    "zebra",
    "sea",
    "horse",
    *SUBJECTS,
)


def tokenizer() -> PreTrainedTokenizerFast:
    built = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=built, unk_token="[UNK]", pad_token="[PAD]")


@cache
def model() -> LanguageModel:
    """Random, in float32; not to be changed by a test."""
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=32,
        max_position_embeddings=64,
        initializer_range=0.2,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=None,
    )
    return new_language_model(config, tokenizer(), seed=3)


def relation() -> Relation:
    """Two answers, one of two words; one subject of three words."""
    facts = [
        Fact("new " + subject if i == 4 else subject, "east" if i % 2 else "north west") for i, subject in enumerate(SUBJECTS)
    ]
    return Relation("side", ("{} is in the", "from {}"), tuple(facts))


def plain_score(of: LanguageModel, prompt: list[int], answer: list[int]) -> float:
    """The log-probability of an answer after a prompt, by one plain pass."""
    with torch.no_grad():
        logits = of(torch.tensor([[*prompt, *answer]]))[0].log_softmax(dim=1)
    return sum(logits[len(prompt) + i - 1, token].item() for i, token in enumerate(answer))
