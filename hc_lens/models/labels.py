"""Names of the classes: from the model's config, or the caller's, never a silent mix of both."""

import re
from collections.abc import Sequence
from typing import Literal, cast

from transformers import PretrainedConfig

Problem = Literal["single_label_classification"]
_SINGLE: Problem = "single_label_classification"
_PLACEHOLDER = re.compile(r"LABEL_\d+")


def label_names(
    config: PretrainedConfig, labels: int | Sequence[str] | None, head_size: int | None, source: str
) -> tuple[str, ...]:
    """Class names in the order of the logits.

    `head_size` is the number of classes of the weights, None when the source has no classification head; then the caller's
    labels decide alone.

    Raises:
        ValueError: for duplicate names, another number of labels than the head has, names that contradict the config's, and an
            id2label of the config that does not name every class, or not as label2id does.
    """
    stored = _stored(config, source)
    if labels is None:
        _require_agreement(stored, config, source)
        names = stored
    elif isinstance(labels, int):
        names = stored if len(stored) == labels else tuple(f"LABEL_{i}" for i in range(labels))
    else:
        names = tuple(labels)
    if len(names) < 2:
        raise ValueError(f"{source}: a classifier needs at least two labels, got {list(names)}")
    if len(set(names)) < len(names):
        raise ValueError(f"{source}: labels must differ, got {list(names)}")
    if head_size is None:
        return names
    if len(names) != head_size:
        raise ValueError(
            f"{source}: the classification head has {head_size} classes, the labels are {len(names)}: {list(names)}"
        )
    real = not any(_PLACEHOLDER.fullmatch(name) for name in stored)
    if real and not isinstance(labels, int) and names != stored:
        how = "in another order than" if set(names) == set(stored) else "not"
        raise ValueError(f"{source}: labels {list(names)} are {how} those of the model's config, {list(stored)}")
    return names


def problem_type(config: PretrainedConfig, labels: int | Sequence[str] | None, source: str) -> Problem | None:
    """The config's problem type, which must be that of one label out of several unless the caller names the labels.

    Raises:
        ValueError: for a head of another kind, naming it.
    """
    kind = config.problem_type
    if kind is None or kind == _SINGLE:
        return kind
    if labels is None or isinstance(labels, int):
        raise ValueError(
            f"{source} has problem_type={kind!r} in its config, and its logits are not those of one label out of several: only "
            f"{_SINGLE!r} is supported; name the classes (labels=...) to read, train and save it as such a model"
        )
    return _SINGLE


def _stored(config: PretrainedConfig, source: str) -> tuple[str, ...]:
    """The config's label names; numbers are read as their text."""
    id2label = cast("dict[int, object]", config.id2label)
    if sorted(id2label) != list(range(len(id2label))):
        raise ValueError(f"{source}: id2label in the config has keys {sorted(id2label)}; they must be 0 to {len(id2label) - 1}")
    for i, name in id2label.items():
        if isinstance(name, bool) or not isinstance(name, str | int | float):
            raise ValueError(f"{source}: id2label in the config names class {i} {name!r:.80}; it must be a text")
    return tuple(str(id2label[i]) for i in range(len(id2label)))


def _require_agreement(stored: tuple[str, ...], config: PretrainedConfig, source: str) -> None:
    """Check that label2id, where it has a label of id2label, gives it the same number."""
    numbers = {str(name): number for name, number in cast("dict[object, object]", config.label2id or {}).items()}
    for i, name in enumerate(stored):
        if str(numbers.get(name, i)) != str(i):
            raise ValueError(
                f"{source}: the config contradicts itself: id2label says {i} is {name!r}, label2id says {name!r} is "
                f"{numbers[name]!r}; correct config.json, or pass labels=..."
            )
