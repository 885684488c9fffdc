"""Everything that is measured of one relation on one model: a run directory in which every part is computed once.

The run holds the subjects' states (`states`), for each split the probes (`probe/seed-0`) and the recall (`recall/seed-0`), and
for each label assignment and split the scores after fine-tuning (`finetune/animals-0-seed-0`, with the course of training).
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor

from hc_lens.models.fingerprint import fingerprint
from hc_lens.models.language import LanguageModel
from hc_lens.precision import Resolved, settle, settled
from hc_lens.relations.config import FinetuneConfig, RelationConfig, Variant
from hc_lens.relations.finetune import finetune_relation
from hc_lens.relations.fits import Fit, affine_map, logistic, nearest_mean
from hc_lens.relations.labels import LabelMap, assign_labels
from hc_lens.relations.probe import Control, Readability, control_task, readability
from hc_lens.relations.prompts import continuation, encode_prompts
from hc_lens.relations.recall import Recall, recall
from hc_lens.relations.relation import Fact, Relation
from hc_lens.relations.representations import representations
from hc_lens.relations.split import Split, split_facts
from hc_lens.runs import Run, RunError, digest

PROBES = ("logistic", "nearest mean", "affine")
"""What reads the answer off the subject's state: the first is the protocol's, the others are beside it."""


class Probed(NamedTuple):
    """A readability with its control task."""

    found: Readability
    control: Control


@dataclass(frozen=True, eq=False)
class Tuned:
    """What a fine-tuned model labels every fact with: `scores` as `Finetuned` has them, in the order of the answers."""

    labels: LabelMap
    scores: Float[Tensor, "fact label"]
    train_accuracy: tuple[float, ...]
    reached: bool
    seconds: float

    @property
    def predictions(self) -> Int[Tensor, " fact"]:
        """The label with the highest score, as the place of its answer."""
        return self.scores.argmax(dim=1)


@dataclass(frozen=True, eq=False)
class Measured:
    """One relation, measured; every part is read from the run when it is asked for."""

    run: Run

    @property
    def whole(self) -> bool:
        """Whether it was measured to the end, and every part is still there."""
        seeds, variants = self.config.seeds, self.config.variants
        tensors = ["states", *(_probe_name(probe, seed) for probe in PROBES for seed in seeds)]
        tensors += [*(f"recall/seed-{seed}" for seed in seeds), *(variant.name for variant in variants)]
        files = [self.run.file(name, "safetensors") for name in tensors]
        files += [self.run.file(variant.name, "json") for variant in variants]
        return self.run.finished and all(file.exists() for file in files)

    @cached_property
    def relation(self) -> Relation:
        """Its facts, as they were split."""
        return relation_of(cast("dict[str, object]", self.run.spec["relation"]))

    @cached_property
    def config(self) -> RelationConfig:
        """How it was measured."""
        return RelationConfig.from_dict(cast("dict[str, object]", self.run.spec["config"]))

    def split(self, seed: int) -> Split:
        """Which facts are trained on with this seed."""
        return split_facts(self.relation, self.config.train_share, seed)

    def probed(self, seed: int, probe: str = PROBES[0]) -> Probed:
        """A probe on the split of this seed."""
        stored = self.run.read_tensors(_probe_name(probe, seed))
        found = Readability(
            int(stored["layer"]),
            float(stored["strength"]),
            *(stored[name] for name in ("inner", "held_out", "codes", "scores")),
        )
        control = Control(stored["control_held_out"], stored["control_train"], float(stored["selectivity"]))
        return Probed(found, control)

    def recall(self, seed: int) -> Recall:
        """What the pretrained model recalls of the facts held out with this seed."""
        stored = self.run.read_tensors(f"recall/seed-{seed}")
        return Recall(self.split(seed).held_out, stored["scores"], stored["right"])

    def tuned(self, variant: Variant) -> Tuned:
        """What came of one fine-tuning."""
        course = cast("dict[str, object]", self.run.read_json(variant.name))
        labels = LabelMap(variant.category, variant.assignment, cast("dict[str, str]", course["labels"]))
        return Tuned(
            labels,
            self.run.read_tensors(variant.name)["scores"],
            tuple(cast("list[float]", course["train_accuracy"])),
            bool(course["reached"]),
            cast(float, course["seconds"]),
        )


def _probe_name(probe: str, seed: int) -> str:
    return f"probe/{probe.replace(' ', '-')}-seed-{seed}"


def relation_spec(model: str, relation: Relation, config: RelationConfig) -> dict[str, object]:
    """What a run measures, as JSON; `model` is the fingerprint of its weights."""
    facts = {"name": relation.name, "templates": list(relation.templates), "facts": [list(fact) for fact in relation.facts]}
    return {"model": model, "relation": facts, "config": asdict(config)}


def relation_of(spec: Mapping[str, object]) -> Relation:
    """The relation of a run's specification."""
    facts = tuple(Fact(*fact) for fact in cast("list[tuple[str, str]]", spec["facts"]))
    return Relation(cast(str, spec["name"]), tuple(cast("list[str]", spec["templates"])), facts)


def open_measured(root: Path, spec: dict[str, object]) -> Measured:
    """The finished run of this specification under `root`.

    Raises:
        RunError: if it is not there, not finished, or damaged.
    """
    measured = Measured(Run.open(root / f"relation-{digest(spec)[:12]}"))
    if not measured.whole:
        raise RunError(f"{measured.run.path} is not finished, or parts of it are gone: measure the relation again")
    return measured


def measure_into(
    root: Path, model: LanguageModel, relation: Relation, config: RelationConfig, *, auto: Resolved | None = None
) -> Measured:
    """Probe, recall and fine-tune on one relation: whatever of it is not there yet.

    `auto` is what precision "auto" comes to where the run has not decided yet: by default what is faster here.

    Raises:
        BusyError: if another process measures it.
        RunError: if its directory is damaged.
        ValueError: for a relation that cannot be split, asked about or labelled, before anything is trained.
    """
    splits = {seed: split_facts(relation, config.train_share, seed) for seed in config.seeds}
    labels = {variant: labels_of(model, relation, variant.category, variant.assignment) for variant in config.variants}
    prompts = encode_prompts(model, relation, config.template)
    run = Run.create(root, "relation", relation_spec(fingerprint(model), relation, config))
    measured = Measured(run)
    if measured.whole:
        return measured
    with run.locked():
        if auto is not None:
            settle(run, lambda: auto)
        resid = run.tensors("states", lambda: {"resid": representations(model, prompts, config.at).resid})["resid"]
        for seed, split in splits.items():
            _probe_into(run, model, resid, relation, split, config, seed)
            run.tensors(f"recall/seed-{seed}", lambda split=split, seed=seed: _recalled(model, relation, split, config, seed))
        for variant, names in labels.items():
            _finetune_into(run, model, relation, splits[variant.seed], config, variant, names)
        run.finish()
    return measured


def labels_of(model: LanguageModel, relation: Relation, category: str, seed: int) -> LabelMap:
    """Labels of a category for the relation's answers, which the model's tokenizer tells apart.

    Raises:
        ValueError: as `assign_labels`.
    """
    return assign_labels(relation.answers, category, seed, lambda text: continuation(model, text))


def _probe_into(
    run: Run,
    model: LanguageModel,
    resid: Float[Tensor, "layer fact d_model"],
    relation: Relation,
    split: Split,
    config: RelationConfig,
    seed: int,
) -> None:
    chosen = replace(config.probe, seed=seed)
    fits: tuple[Fit, ...] = (logistic, nearest_mean, affine_map(_answer_vectors(model, relation)))

    def probed(fit: Fit) -> dict[str, Tensor]:
        found = readability(resid, relation.codes, split, chosen, fit)
        control = control_task(resid, relation.codes, split, chosen, found, fit, draws=config.draws)
        return {
            "layer": torch.tensor(found.layer),
            "strength": torch.tensor(found.strength, dtype=torch.float64),
            "inner": found.inner,
            "held_out": found.held_out,
            "codes": found.codes,
            "scores": found.scores,
            "control_held_out": control.held_out,
            "control_train": control.train,
            "selectivity": torch.tensor(control.selectivity, dtype=torch.float64),
        }

    for name, fit in zip(PROBES, fits, strict=True):
        run.tensors(_probe_name(name, seed), lambda fit=fit: probed(fit))


def _answer_vectors(model: LanguageModel, relation: Relation) -> Float[Tensor, "answer d_model"]:
    """The mean unembedding vector of each answer's tokens, which stands for the answer in the affine map."""
    unembedding = model.unembed.W_U.detach().cpu()
    return torch.stack([unembedding[:, list(continuation(model, f" {answer}"))].mean(dim=1) for answer in relation.answers])


def _recalled(model: LanguageModel, relation: Relation, split: Split, config: RelationConfig, seed: int) -> dict[str, Tensor]:
    n_shots = min(config.n_shots, len(split.train))
    found = recall(model, relation, relation.templates[0], split.held_out, split.train, n_shots, seed)
    return {"scores": found.scores, "right": found.right}


def _finetune_into(
    run: Run,
    model: LanguageModel,
    relation: Relation,
    split: Split,
    config: RelationConfig,
    variant: Variant,
    labels: LabelMap,
) -> None:
    """Fine-tune, unless it is done; the course of training is written last, as a sign that it is."""
    if run.file(variant.name, "json").exists() and run.file(variant.name, "safetensors").exists():
        return
    tuning = tuning_in(run, model, config.finetune)
    found = finetune_relation(model, relation, split, labels, config.template, tuning, variant.seed)
    run.write_tensors(variant.name, {"scores": found.scores})
    run.write_json(
        variant.name,
        {
            "labels": dict(labels.labels),
            "train_accuracy": list(found.train_accuracy),
            "reached": found.reached,
            "seconds": found.seconds,
        },
    )


def tuning_in(run: Run, model: LanguageModel, config: FinetuneConfig) -> FinetuneConfig:
    """The configuration with the precision that "auto" comes to in a run."""
    return replace(config, precision=settled(run, config.precision, model, config.batch_size))
