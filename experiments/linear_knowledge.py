"""Does what a linear probe can read before fine-tuning predict what fine-tuning generalizes?

"Linear knowledge before fine-tuning predicts generalization" (Mehri & Schuetze): the answers of an old relation get arbitrary
new labels, a model is fine-tuned on some of the subjects, and the others are asked for. Across relations, how linearly readable
the old relation is in the pretrained model is set beside how well the new one generalizes: in a planted world, where it is
known which relations can, and on LRE's and T-REx's relations with SmolLM2-135M.

Run: `HC_LENS_DATA=... python -m experiments.linear_knowledge --preset desk --workers 2`; the same command resumes.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import pandas as pd
import torch

from experiments.shared.command import Places, run_experiment, versions
from experiments.shared.settings import Preset
from hc_lens.data.desk import data_folder
from hc_lens.models import load_language_model, smollm2_file
from hc_lens.pruning import PruneConfig
from hc_lens.relations.cleaning import usable
from hc_lens.relations.config import CleaningConfig, FinetuneConfig, RelationConfig
from hc_lens.relations.inside_runs import carrier_units, gates_before_and_after
from hc_lens.relations.job import ModelSource, RelationJob, measure_relations
from hc_lens.relations.labels import CATEGORIES, answers_among
from hc_lens.relations.measured import Measured
from hc_lens.relations.relation import Relation
from hc_lens.relations.report import Studied, findings, sections, told
from hc_lens.relations.sources import load_relations
from hc_lens.relations.study import X
from hc_lens.relations.world import WorldConfig, planted_world
from hc_lens.report import Article

QUESTION = (
    "Does the linear readability of a relation before fine-tuning predict how fine-tuning on arbitrary new labels for its "
    "answers generalizes to other subjects?"
)


DESK = (
    *("landmark on continent", "landmark in country", "region of country", "subregion of country", "language of country"),
    *("currency of country", "company hq", "product by company", "person native language", "person occupation"),
    *("person plays instrument", "person sport position", "plays pro sport", "star constellation name"),
    *("word first letter", "word last letter"),
    *("P20", "P27", "P37", "P101", "P108", "P127", "P136", "P140", "P176", "P279", "P407", "P449"),
)
"""Relations of the desk preset: those of LRE and of countries with at least 70 facts after cleaning, and a dozen of T-REx's
that give a subject one answer and ask for different things; chosen before the study was run."""


@dataclass(frozen=True)
class Inside:
    """How far to look inside: so many of the most readable relations for units that carry them, fewer of these for gates."""

    carried: int
    gated: int
    gates: PruneConfig
    seeds: tuple[int, ...]


@dataclass(frozen=True)
class Real:
    """Pretrained models and real relations.

    Attributes:
        models: Hub names, or "smollm2" for the GGUF file of the extra `relations`.
        names: relations that are measured; None: all that can be.
        n_others: further label categories of each relation, another choice for each.
        whole: relations that are fine-tuned once more with all blocks (`whole_finetune`), on the first split and labels.
    """

    models: tuple[str, ...]
    relation: RelationConfig
    cleaning: CleaningConfig
    inside: Inside
    names: tuple[str, ...] | None = None
    n_others: int = 1
    whole: tuple[str, ...] = ()
    whole_finetune: FinetuneConfig = field(default_factory=lambda: FinetuneConfig(lr=2e-4, max_epochs=10))


@dataclass(frozen=True)
class Config:
    """What is measured: a planted world, and real relations (None: not at this scale)."""

    world: WorldConfig
    planted: RelationConfig
    inside: Inside
    real: Real | None
    n_others: int = 1


def config(preset: Preset) -> Config:
    """What is measured at each scale; `paper` has models of several families from the Hub, and more assignments and seeds."""
    # The model of the world never saw two facts in a row, so that recall is asked for without examples.
    planted = RelationConfig(n_shots=0, finetune=FinetuneConfig(lr=3e-3, max_epochs=60))
    if preset == "smoke":
        world = WorldConfig(
            n_subjects=30, latents=(3, 3), n_contexts=2, n_shared=4, n_parity=1, n_isolated=1, d_model=32, d_mlp=64
        )
        world = replace(world, context_steps=20, fact_steps=20, batch_size=128)
        few = replace(planted, seeds=(0,), draws=1, finetune=replace(planted.finetune, max_epochs=2))
        return Config(world, few, Inside(1, 1, replace(PruneConfig.desk(steps=20), gate_mean=0.5, gate_std=2.0), (0,)), None)
    tuned = FinetuneConfig(lr=5e-4, first_block=25, max_epochs=10)  # on short prompts the upper blocks are enough, and quick
    asked = RelationConfig(template="Item: {}\nTag:", finetune=tuned)
    cleaning = CleaningConfig(max_subjects=120)
    if preset == "desk":
        gates = PruneConfig.desk(steps=300)
        quick = {"ramp_steps": 110, "batch_size": 16, "lr_gates": 0.15, "lr_multipliers": 0.2}
        few = Inside(2, 1, replace(PruneConfig.desk(steps=150), **quick), (0, 1))
        return Config(
            WorldConfig(),
            planted,
            Inside(8, 6, gates, (0, 1, 2)),
            Real(("smollm2",), asked, cleaning, few, DESK, whole=DESK[::5]),
        )
    wide = replace(asked, seeds=(0, 1, 2), assignments=(0, 1, 2), finetune=FinetuneConfig(lr=2e-5))
    models = ("HuggingFaceTB/SmolLM2-1.7B", "openai-community/gpt2-xl", "EleutherAI/pythia-6.9b", "meta-llama/Llama-3.1-8B")
    worlds = replace(planted, seeds=tuple(range(5)), assignments=tuple(range(5)))
    inside = Inside(12, 6, PruneConfig.paper(), tuple(range(5)))
    real = Real(models, wide, CleaningConfig(max_subjects=400), inside, n_others=13)
    return Config(WorldConfig(), worlds, inside, real, n_others=13)


def run(config: Config, places: Places) -> Article:
    """Measure both, and tell."""
    found = [planted(config, places)]
    if config.real is not None and (relations := real_relations(config.real)) is not None:
        found += [real(config.real, *relations, model, places) for model in config.real.models]
    return article(config, found)


def planted(config: Config, places: Places) -> Studied:
    """The planted world, whose relations are known to be shared, parities or isolated."""
    world = planted_world(config.world, places.own)
    source = ModelSource.of(world.directory)
    jobs = jobs_of(places, source, world.relations, config.planted, config.n_others)
    kinds = dict(zip(world.how["relation"], world.how["kind"], strict=True))
    measured = measure_relations(places.own, jobs, places.pool)
    return looked_into(Studied("planted world", "planted", measured, kinds), source, config.inside)


def real_relations(config: Real) -> tuple[list[Relation], pd.DataFrame] | None:
    """The relations of `$HC_LENS_DATA` that are left after cleaning, and why the others are not; None without data."""
    folder = data_folder()
    if folder is None:
        return None
    found = usable(load_relations(folder / "relations", config.names), config.cleaning)
    return [each.relation for each in found.cleaned], found.left_out


def real(config: Real, relations: Sequence[Relation], left_out: pd.DataFrame, model: str, places: Places) -> Studied:
    """Real relations on a pretrained model."""
    source = ModelSource.of(smollm2_into(places.models / "smollm2") if model == "smollm2" else model)
    jobs = jobs_of(places, source, relations, config.relation, config.n_others)
    kinds = {relation.name: origin(relation.name) for relation in relations}
    measured = measure_relations(places.own, jobs, places.pool)
    name = "SmolLM2-135M" if model == "smollm2" else model
    key = "".join(c if c.isalnum() else "-" for c in name.lower())
    found = looked_into(Studied(name, key, measured, kinds, left_out=left_out), source, config.inside)
    return replace(found, otherwise=whole(config, relations, source, places), how="all blocks trained")


def origin(name: str) -> str:
    """Where a relation of this name is from."""
    return "T-REx" if name[1:].isdigit() else "countries" if name.endswith(" of country") else "LRE"


def whole(config: Real, relations: Sequence[Relation], source: ModelSource, places: Places) -> list[Measured]:
    """Some of the relations, with every block fine-tuned: is the correlation one of the upper blocks alone?"""
    chosen = [relation for relation in relations if relation.name in config.whole]
    if not chosen:
        return []
    once = replace(config.relation, finetune=config.whole_finetune)
    once = replace(once, seeds=once.seeds[:1], assignments=once.assignments[:1])
    return measure_relations(places.own, jobs_of(places, source, chosen, once, 0), places.pool)


def smollm2_into(directory: Path) -> Path:
    """SmolLM2-135M in transformers format, which loads in a second where the GGUF file takes a minute; written once."""
    if not directory.exists():
        load_language_model(smollm2_file()).save_pretrained(directory)
    return directory


def looked_into(found: Studied, source: ModelSource, config: Inside) -> Studied:
    """The same, with what carries the most readable relations, and what gates keep of the model."""
    model = source.load(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    order = found.table.sort_values(X, ascending=False).index
    chosen = [found.measured[place] for place in order]
    units = [carrier_units(each, model) for each in chosen[: config.carried]]
    gates = [gates_before_and_after(each, model, config.gates, config.seeds) for each in chosen[: config.gated]]
    return replace(found, units=joined(units), gates=joined(gates))


def joined(tables: Sequence[pd.DataFrame]) -> pd.DataFrame | None:
    """One table below the other; None where nothing was found: a relation that is read off the embedding has no carriers."""
    found = [table for table in tables if len(table)]
    return pd.concat(found, ignore_index=True) if found else None


def jobs_of(
    places: Places, model: ModelSource, relations: Sequence[Relation], config: RelationConfig, n_others: int
) -> list[RelationJob]:
    """A job for every relation, each with the next further categories of labels, so that all are used across relations."""
    others = [category for category in CATEGORIES if category != config.category]
    jobs: list[RelationJob] = []
    for place, relation in enumerate(relations):
        first = place * n_others % len(others)
        free = [name for name in (*others[first:], *others[:first]) if not answers_among(relation.answers, name)]
        jobs.append(RelationJob(places.own / "relations", model, relation, replace(config, others=tuple(free[:n_others]))))
    return jobs


def article(config: Config, found: Sequence[Studied]) -> Article:
    """The report."""
    judged = [finding for each in found for finding in findings(each)]
    return Article(
        title="Linear knowledge before fine-tuning",
        question=QUESTION,
        answer=told(judged),
        sections=[section for each in found for section in sections(each)],
        facts=[(each.name, f"{len(each.measured)} relations") for each in found],
        notes=notes(config, found),
        provenance=versions(),
        config=asdict(config),
        findings=judged,
    )


def notes(config: Config, found: Sequence[Studied]) -> list[str]:
    """How it was measured, where the published protocol leaves it open, and what limits it."""
    remarks = [
        "Only the abstract of the paper is public to us: layers, prompts, probes, optimiser and chance correction are ours "
        "(see the docstrings of `hc_lens.relations`).",
    ]
    if config.real is not None and len(found) > 1:
        tuned = config.real.relation.finetune
        remarks.append(
            f"Fine-tuning trains the blocks from {tuned.first_block} on and the final norm (AdamW, learning rate {tuned.lr:g}, "
            f"at most {tuned.max_epochs} epochs, ended by the first in which all training subjects are right; "
            f"{tuned.precision} products); embeddings and unembedding stay."
        )
        if "smollm2" in config.real.models:
            remarks.append(
                "SmolLM2-135M is small, tuned for instructions, and its weights come from a file of 4 bits a weight (Q4_1), so "
                "that it knows less than the models of the paper."
            )
    return remarks


def experiment(preset: Preset, places: Places) -> Article:
    """Everything up to the report."""
    return run(config(preset), places)


if __name__ == "__main__":
    run_experiment("linear_knowledge", QUESTION, experiment)
