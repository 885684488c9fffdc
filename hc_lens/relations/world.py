"""A planted world: made-up subjects, relations of which it is known what they share, and a small model that recalls them all.

It needs no download and trains in a minute on a CPU. A subject has hidden properties (latents), and the model first reads the
contexts that they show in: many relations that follow one latent each. Then its embeddings are frozen, and it learns the facts
to be tested: relations that follow a latent but for a share `rho` of random answers ("shared"), relations that depend on two
latents and on neither alone ("parity": a Latin square), and random answers ("isolated"). All are recalled in the end; by
construction only what follows a latent can be read off the embeddings with a linear probe. The world is ours (last part of the
protocol).
"""

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from itertools import cycle, islice
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaConfig, PreTrainedTokenizerFast

from hc_lens.models import LanguageModel, load_language_model, new_language_model
from hc_lens.progress import progress
from hc_lens.relations.labels import CATEGORIES
from hc_lens.relations.relation import SLOT, Fact, Relation
from hc_lens.runs import Run
from hc_lens.train import TrainingError

Kind = Literal["shared", "parity", "isolated"]
"""How a relation is planted: along one latent, along two at once, or along none."""

_SPECIAL = ("[PAD]", "[UNK]")
_CONSONANTS, _VOWELS = "bdfgklmnprstvz", "aeiou"


@dataclass(frozen=True)
class WorldConfig:
    """What is planted, and the model that learns it.

    Attributes:
        latents: of each latent, the number of values it takes, uniformly; a relation has as many answers as its latent.
        n_contexts: relations that follow each latent exactly, read before the others.
        n_shared: relations with `rho` = 0, 1 / n_shared, ..., all below 1.
        least_share: a relation is about a random share of the subjects, at least this.
        words: further words of the vocabulary, never trained on; the labels of all categories are so too.
        context_steps, fact_steps: optimizer steps on contexts alone, and then, with frozen embeddings, on everything.
        seed: of the world, the first weights and the batches.

    Raises:
        ValueError: if a field is out of its range, or there are fewer Latin squares than `n_parity`.
    """

    n_subjects: int = 160
    latents: tuple[int, ...] = (3, 3, 5, 5)
    n_contexts: int = 4
    n_shared: int = 12
    n_parity: int = 6
    n_isolated: int = 6
    least_share: float = 0.6
    words: tuple[str, ...] = ("->",)
    d_model: int = 48
    n_layers: int = 2
    n_heads: int = 4
    d_mlp: int = 192
    context_steps: int = 200
    fact_steps: int = 500
    batch_size: int = 512
    lr: float = 4e-3
    weight_decay: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.latents or min(self.latents) < 2:
            raise ValueError(f"latents must be numbers of values, at least one and each at least 2, got {self.latents}")
        if self.n_subjects * self.least_share < 5 * max(self.latents):
            raise ValueError(
                f"n_subjects * least_share must be at least 5 for each of a latent's {max(self.latents)} values, got "
                f"{self.n_subjects} * {self.least_share}"
            )
        if not 0 < self.least_share <= 1:
            raise ValueError(f"least_share must be in (0, 1], got {self.least_share}")
        if self.n_parity > (there := len(_latin_squares(self.latents))):
            raise ValueError(f"latents {self.latents} have {there} Latin squares of two, n_parity is {self.n_parity}")
        if self.d_model % (2 * self.n_heads):
            raise ValueError(f"d_model must be a multiple of 2 * n_heads = {2 * self.n_heads}, got {self.d_model}")


class Planting(NamedTuple):
    """A relation, how it was planted, and the share of its answers that were drawn at random."""

    relation: Relation
    kind: Kind
    rho: float


@dataclass(frozen=True)
class World:
    """What is true in a planted world: the relations to be tested, and the contexts that the latents show in."""

    plantings: tuple[Planting, ...]
    contexts: tuple[Relation, ...] = field(repr=False)


@dataclass(frozen=True, eq=False)
class Planted:
    """A planted world and the directory of the model (transformers format) that recalls it.

    `how` has a row for every relation: `relation` (its name), `kind`, `rho`.
    """

    relations: tuple[Relation, ...]
    how: pd.DataFrame = field(repr=False)
    directory: Path

    def model(self, device: str | torch.device | None = None) -> LanguageModel:
        """The model, as any other is loaded."""
        return load_language_model(self.directory, device=device)


def planted_world(config: WorldConfig, root: Path) -> Planted:
    """The world of this configuration, and its model: trained in a run directory under `root`, or there already.

    The model knows single facts, "Bavori dumek" -> "salu", and was never shown two in a row: ask it with no shots.

    Raises:
        TrainingError: if the loss is not finite.
        RunError: if the directory is damaged or in use.
    """
    world = new_world(config)
    run = Run.create(root, "planted-world", asdict(config) | {"latents": list(config.latents), "words": list(config.words)})
    with run.locked(wait=True):
        directory = run.directory("model", "config.json", lambda place: train_world(world, config).save_pretrained(place))
        if not run.finished:
            run.finish()
    rows = [{"relation": relation.name, "kind": kind, "rho": rho} for relation, kind, rho in world.plantings]
    return Planted(tuple(planting.relation for planting in world.plantings), pd.DataFrame(rows), directory)


def new_world(config: WorldConfig) -> World:
    """Draw the subjects, their latents, what the contexts say, and the relations; names are made up, no two the same."""
    random = np.random.default_rng(config.seed)
    names = _names(random, avoid={word for words in CATEGORIES.values() for word in words})
    subjects = [name.capitalize() for name in islice(names, config.n_subjects)]
    latents = [random.permutation(np.arange(config.n_subjects) % n_values) for n_values in config.latents]

    def relation(name: str, values: Int[np.ndarray, " subject"], n_values: int, least_share: float) -> Relation:
        answers = list(islice(names, n_values))
        some = random.permutation(config.n_subjects)[: round(config.n_subjects * random.uniform(least_share, 1))]
        facts = tuple(Fact(subjects[place], answers[values[place]]) for place in sorted(some.tolist()))
        return Relation(name, (f"{SLOT} {next(names)}",), facts)

    contexts = tuple(
        relation(f"context-{latent}-{i}", latents[latent], n_values, 1.0)
        for latent, n_values in enumerate(config.latents)
        for i in range(config.n_contexts)
    )
    plantings: list[Planting] = []
    for i, latent in enumerate(islice(cycle(range(len(latents))), config.n_shared)):
        rho, n_values = i / config.n_shared, config.latents[latent]
        values = _with_noise(latents[latent], n_values, rho, random)
        plantings.append(Planting(relation(f"shared-{i:02d}", values, n_values, config.least_share), "shared", rho))
    for i, (one, other, factor) in enumerate(_latin_squares(config.latents)[: config.n_parity]):
        n_values = config.latents[one]
        values = (latents[one] + factor * latents[other]) % n_values
        plantings.append(Planting(relation(f"parity-{i:02d}", values, n_values, config.least_share), "parity", 0.0))
    for i, n_values in enumerate(islice(cycle(config.latents), config.n_isolated)):
        values = random.permutation(np.arange(config.n_subjects) % n_values)
        plantings.append(Planting(relation(f"isolated-{i:02d}", values, n_values, config.least_share), "isolated", 1.0))
    return World(tuple(plantings), contexts)


def train_world(world: World, config: WorldConfig) -> LanguageModel:
    """A Llama of few small blocks that recalls a world: contexts first, then everything with frozen embeddings.

    Raises:
        TrainingError: if the loss is not finite.
    """
    tokenizer = _tokenizer(world, config)
    hf_config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=config.d_model,
        intermediate_size=config.d_mlp,
        num_hidden_layers=config.n_layers,
        num_attention_heads=config.n_heads,
        max_position_embeddings=32,
        initializer_range=0.1,
        tie_word_embeddings=False,
        pad_token_id=0,  # the first of _SPECIAL
        bos_token_id=None,
        eos_token_id=None,
    )
    model = new_language_model(hf_config, tokenizer, config.seed)
    ids = _fact_tokens(tokenizer, [*world.contexts, *(planting.relation for planting in world.plantings)])
    contexts = ids[: sum(map(len, world.contexts))]
    generator = torch.Generator().manual_seed(config.seed)
    with progress("planting a world", config.context_steps + config.fact_steps) as advance:
        for _ in _descend(model, list(model.parameters()), contexts, config.context_steps, config, generator):
            advance()
        rest = [weight for weight in model.parameters() if weight is not model.embed.W_E]
        for _ in _descend(model, rest, ids, config.fact_steps, config, generator):
            advance()
    return model


def _descend(
    model: LanguageModel,
    weights: list[nn.Parameter],
    facts: Int[Tensor, "fact token"],
    steps: int,
    config: WorldConfig,
    generator: torch.Generator,
) -> Iterator[int]:
    """Train these weights on facts whose last token is asked for: AdamW, a short warm-up, then a cosine to 0."""
    optimizer = torch.optim.AdamW(weights, lr=config.lr, betas=(0.9, 0.98), weight_decay=config.weight_decay)
    warmup = max(1, min(30, steps // 4))
    rate = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, 0.5 + 0.5 * math.cos(math.pi * step / steps))
    )
    last = torch.full((config.batch_size,), facts.shape[1] - 2)
    for step in range(steps):
        batch = facts[torch.randint(len(facts), (config.batch_size,), generator=generator)]
        loss = functional.cross_entropy(model.next_token_logits(batch[:, :-1], last), batch[:, -1])
        model.zero_grad()
        loss.backward()
        optimizer.step()
        rate.step()
        if not math.isfinite(found := loss.item()):
            raise TrainingError(f"the loss is {found} at step {step} of {steps}; lower lr ({config.lr})")
        yield step
    model.zero_grad()


def _fact_tokens(tokenizer: PreTrainedTokenizerFast, relations: list[Relation]) -> Int[Tensor, "fact token"]:
    texts = [
        f"{relation.templates[0].replace(SLOT, subject)} {answer}"
        for relation in relations
        for subject, answer in relation.facts
    ]
    return torch.tensor(tokenizer(texts)["input_ids"])


def _tokenizer(world: World, config: WorldConfig) -> PreTrainedTokenizerFast:
    """Words to ids, split at white space: those of the world, and those that fine-tuning will use."""
    relations = [*world.contexts, *(planting.relation for planting in world.plantings)]
    asked = [template.replace(SLOT, "") for relation in relations for template in relation.templates]
    told = [word for relation in relations for fact in relation.facts for word in fact]
    later = [*config.words, *(word for words in CATEGORIES.values() for word in words)]
    words = dict.fromkeys([*_SPECIAL, *(word.strip() for word in (*asked, *told, *later))])
    built = Tokenizer(models.WordLevel({word: place for place, word in enumerate(words)}, unk_token=_SPECIAL[1]))
    built.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # pyright: ignore[reportAttributeAccessIssue]
    return PreTrainedTokenizerFast(tokenizer_object=built, pad_token=_SPECIAL[0], unk_token=_SPECIAL[1])


def _names(random: np.random.Generator, avoid: set[str]) -> Iterator[str]:
    """Made-up words of two or three syllables, none twice."""
    seen = set(avoid)
    while True:
        n_syllables = int(random.integers(2, 4))
        letters = ((random.choice(list(_CONSONANTS)), random.choice(list(_VOWELS))) for _ in range(n_syllables))
        name = "".join(consonant + vowel for consonant, vowel in letters)
        if name not in seen:
            seen.add(name)
            yield name


def _with_noise(
    values: Int[np.ndarray, " subject"], n_values: int, rho: float, random: np.random.Generator
) -> Int[np.ndarray, " subject"]:
    """The values of a share 1 - rho of the subjects, and random ones of the others."""
    noisy = values.copy()
    drawn = random.permutation(len(values))[: round(rho * len(values))]
    noisy[drawn] = random.integers(0, n_values, len(drawn))
    return noisy


def _latin_squares(latents: tuple[int, ...]) -> list[tuple[int, int, int]]:
    """Pairs of latents with n values each, and factors k coprime to n: (one + k other) mod n says nothing about either."""
    return [
        (one, other, factor)
        for one in range(len(latents))
        for other in range(one + 1, len(latents))
        if latents[one] == latents[other]
        for factor in range(1, latents[one])
        if math.gcd(factor, latents[one]) == 1
    ]
