"""What the questions about relations take: a language model, relations, how they are cleaned; where they leave results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from hc_lens.cli import output
from hc_lens.cli.options import Common, device_of_name
from hc_lens.limits import Count, Natural
from hc_lens.relations.config import CleaningConfig
from hc_lens.runs import Run

if TYPE_CHECKING:
    from hc_lens.models.language import LanguageModel
    from hc_lens.relations.relation import Relation

ModelName = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")]

RelationPaths = Annotated[
    tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RELATION [RELATION ...]", help_behavior_hint="(required)")
]


@dataclass(frozen=True)
class RelationChoice:
    """What is kept of the relations.

    A relation is LRE's JSON file, T-REx's P30.jsonl in its folder, a table with the columns subject and answer (with
    --template), or a folder of relations, of which all usable ones are taken.
    """

    template: str | None = None
    """For a table: how a prompt asks for the answer, with {} for the subject, as in "{} is in the country of"."""
    only: tuple[str, ...] = ()
    """For a folder: the relations of these names."""
    min_subjects: Count = CleaningConfig.min_subjects
    """An answer with fewer subjects is dropped."""
    max_answers: Count = CleaningConfig.max_answers
    """So many answers are kept, those with the most subjects."""
    max_subjects_per_answer: Count | None = CleaningConfig.max_subjects_per_answer
    """More subjects of an answer are dropped at random."""
    max_subjects: Count | None = CleaningConfig.max_subjects
    """In all: the answers with the most subjects are cut to an equal number."""
    cleaning_seed: Natural = CleaningConfig.seed
    """Of which subjects are dropped."""
    train_share: float = 0.5
    """Share of each answer's subjects that is trained on, in (0, 1); the others are held out."""

    def load(self, paths: tuple[Path, ...]) -> tuple[Relation, ...]:
        """The relations of files and folders, cleaned; what cannot be used of a whole folder is left out, and said.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: for no relation, two of one name, or a file that cannot be read or used.
        """
        relations = [relation for path in paths for relation in self._relations(path)]
        names = [relation.name for relation in relations]
        if not names:
            raise ValueError("no relation is left: name at least one file, or a folder of usable relations")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two relations are called {twice[0]!r}: give each once, under a name of its own")
        return tuple(relations)

    def _relations(self, path: Path) -> list[Relation]:
        from hc_lens.relations.cleaning import clean, usable
        from hc_lens.relations.sources import load_relation, load_relations

        caps = self.max_subjects_per_answer, self.max_subjects
        config = CleaningConfig(self.min_subjects, self.max_answers, *caps, self.cleaning_seed)
        if not path.exists():
            raise FileNotFoundError(f"no such file: {path}")
        if not path.is_dir():
            return [clean(load_relation(path, self.template), config).relation]
        if self.only:
            return [clean(relation, config).relation for relation in load_relations(path, self.only)]
        found = usable(load_relations(path), config)
        for name, reason in zip(found.left_out["name"], found.left_out["reason"], strict=True):
            output.say(f"left out {name}: {reason}")
        return [cleaned.relation for cleaned in found.cleaned]


def open_model(name: str, device: str) -> LanguageModel:
    """The model on a device of this name.

    Raises:
        FileNotFoundError, ValueError: as `load_language_model`.
        ModuleNotFoundError: for smollm2, or a GGUF file, where the extra is not installed.
    """
    from hc_lens.models.language import load_language_model, smollm2_file

    output.say(f"reading {name}")
    return load_language_model(smollm2_file() if name == "smollm2" else name, device=device_of_name(device))


def open_run(
    common: Common, kind: str, model: LanguageModel, relations: tuple[Relation, ...], settings: Mapping[str, object]
) -> Run:
    """The run of this model, these relations and settings: where it was asked for, or under ./runs.

    Raises:
        RunError: if the directory holds something else.
    """
    from hc_lens.models.fingerprint import fingerprint

    spec = {"model": fingerprint(model), "relations": [asdict(relation) for relation in relations], **settings}
    return keep_run(common, kind, spec)


def keep_run(common: Common, kind: str, spec: Mapping[str, object]) -> Run:
    """The run of this specification: where it was asked for, or under ./runs.

    Raises:
        RunError: if the directory holds something else.
    """
    return Run.create(Path("runs"), kind, spec) if common.out is None else Run.at(common.out, kind, spec)
