"""How a relation is cleaned, probed and fine-tuned on: settings, apart from what computes with them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple, cast

from hc_lens.precision import Precision, require_precision

Place = Literal["subject", "prompt"]
"""The subject's last token, or the prompt's."""

MIN_TRAIN, MIN_HELD_OUT = 2, 1
"""Facts of every answer that are in each part at least (ours): one for each half of an inner validation, one to test on."""

LEAST = 4
"""Relations that a correlation needs: with fewer there is no interval worth the name."""

OPAQUE = "{} ->"
"""A prompt that names neither the old relation nor the rule."""


@dataclass(frozen=True)
class FinetuneConfig:
    """How to fine-tune on a new relation (step 5 of the protocol; the numbers are ours).

    AdamW at a constant rate `lr` after `warmup_steps`, gradients clipped to norm `clip`, batches of `batch_size` subjects. An
    epoch sees every training subject once; training stops after the first epoch, from `min_epochs` on, in which all of them
    were right before their own update, and at `max_epochs` at the latest.

    Only the blocks from `first_block` on and the final norm are trained: the embeddings, the blocks below and the unembedding
    stay, so what goes into `first_block` is computed once. `precision` is that of the matrix products; the residual stream,
    losses, weights and final scores are float32.
    """

    lr: float = 1e-4
    weight_decay: float = 0.01
    batch_size: int = 16
    max_epochs: int = 20
    min_epochs: int = 1
    warmup_steps: int = 5
    clip: float = 1.0
    first_block: int = 0
    precision: Precision = "fp32"

    def __post_init__(self) -> None:
        require_precision(self.precision)
        for name in ("batch_size", "max_epochs", "min_epochs"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("lr", "clip"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be positive, got {getattr(self, name)}")
        for name in ("weight_decay", "warmup_steps", "first_block"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        if self.min_epochs > self.max_epochs:
            raise ValueError(f"min_epochs must be at most max_epochs = {self.max_epochs}, got {self.min_epochs}")


@dataclass(frozen=True)
class ProbeConfig:
    """How a probe is chosen.

    Attributes:
        strengths: inverse penalties C to choose from, ascending: as scikit-learn has them, so that smaller is simpler.
        folds: of the inner cross-validation; fewer where an answer has fewer training subjects.
        seed: of the folds.

    Raises:
        ValueError: if the strengths are not positive and ascending, or there are fewer than two folds.
    """

    strengths: tuple[float, ...] = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2)
    folds: int = 5
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.strengths or list(self.strengths) != sorted(set(self.strengths)) or self.strengths[0] <= 0:
            raise ValueError(f"strengths must be positive and ascending, got {self.strengths}")
        if self.folds < 2:
            raise ValueError(f"folds must be at least 2, got {self.folds}")


@dataclass(frozen=True)
class CleaningConfig:
    """Which answers and subjects are kept.

    Attributes:
        min_subjects: an answer with fewer is dropped.
        max_answers: so many are kept, those with the most subjects.
        max_subjects_per_answer: more are dropped at random. None: all are kept.
        max_subjects: the answers with the most subjects are cut to an equal number so that there are no more in all.
        seed: of which subjects are dropped.

    Raises:
        ValueError: if a field is out of its range.
    """

    min_subjects: int = 5
    max_answers: int = 12
    max_subjects_per_answer: int | None = 50
    max_subjects: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.min_subjects < MIN_TRAIN + MIN_HELD_OUT:
            raise ValueError(
                f"min_subjects must be at least {MIN_TRAIN + MIN_HELD_OUT}, or none can be held out, got {self.min_subjects}"
            )
        if self.max_answers < 2:
            raise ValueError(f"max_answers must be at least 2, got {self.max_answers}")
        if self.max_subjects_per_answer is not None and self.max_subjects_per_answer < self.min_subjects:
            raise ValueError(
                f"max_subjects_per_answer must be at least min_subjects={self.min_subjects}, got {self.max_subjects_per_answer}"
            )
        if self.max_subjects is not None and self.max_subjects < 2 * self.min_subjects:
            raise ValueError(f"max_subjects must be at least twice min_subjects={self.min_subjects}, got {self.max_subjects}")


class Variant(NamedTuple):
    """One fine-tuning: labels of a category drawn by a seed (`assignment`), on the split and in the order of another."""

    category: str
    assignment: int
    seed: int

    @property
    def name(self) -> str:
        """Of its files."""
        return f"finetune/{self.category}-{self.assignment}-seed-{self.seed}"


@dataclass(frozen=True)
class RelationConfig:
    """What is measured of a relation.

    Attributes:
        template: asks for the new label; probes read the subject's state in it, too. A text before the slot keeps the subject
            off the first position, which many models use as a sink of attention.
        train_share: of each answer's subjects.
        seeds: of splits, fine-tuning orders and few-shot examples.
        assignments: seeds of label maps.
        category: of the labels.
        others: further categories, each with the first assignment and seed.
        n_shots: examples before a fact that is to be recalled.
        at: which token's state is probed.
        draws: of the control task.

    Raises:
        ValueError: if there is no seed or assignment, or one is given twice.
    """

    template: str = OPAQUE
    train_share: float = 0.5
    seeds: tuple[int, ...] = (0, 1)
    assignments: tuple[int, ...] = (0, 1)
    category: str = "animals"
    others: tuple[str, ...] = ()
    n_shots: int = 5
    at: Place = "subject"
    draws: int = 5
    probe: ProbeConfig = field(default_factory=ProbeConfig)
    finetune: FinetuneConfig = field(default_factory=FinetuneConfig)

    def __post_init__(self) -> None:
        for name in ("seeds", "assignments"):
            values: tuple[int, ...] = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"{name} must be at least one, each once, got {values}")

    @property
    def variants(self) -> tuple[Variant, ...]:
        """Every fine-tuning: all assignments with all seeds, then the other categories."""
        own = [Variant(self.category, assignment, seed) for assignment in self.assignments for seed in self.seeds]
        return (*own, *(Variant(category, self.assignments[0], self.seeds[0]) for category in self.others))

    @classmethod
    def from_dict(cls, fields: Mapping[str, object]) -> "RelationConfig":
        """The configuration whose fields these are, as JSON has them."""
        values = _tupled(fields)
        values["probe"] = ProbeConfig(**_tupled(cast("dict[str, object]", values["probe"])))  # pyright: ignore[reportArgumentType]
        tuned = dict(cast("dict[str, object]", values["finetune"]))
        tuned["precision"] = _EARLIER.get(cast(str, tuned["precision"]), tuned["precision"])
        values["finetune"] = FinetuneConfig(**tuned)  # pyright: ignore[reportArgumentType]
        return cls(**values)  # pyright: ignore[reportArgumentType]


_EARLIER = MappingProxyType({"float32": "fp32", "bfloat16": "bf16"})
"""What earlier versions called a precision."""


def _tupled(fields: Mapping[str, object]) -> dict[str, object]:
    return {name: tuple(cast("list[object]", each)) if isinstance(each, list) else each for name, each in fields.items()}
