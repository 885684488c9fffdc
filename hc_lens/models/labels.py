"""Names of the classes: from the model's config, or the caller's, never a silent mix of both."""

import re
from collections.abc import Sequence
from typing import cast

from transformers import PretrainedConfig

_PLACEHOLDER = re.compile(r"LABEL_\d+")


def label_names(
    config: PretrainedConfig, labels: int | Sequence[str] | None, head_size: int | None, source: str
) -> tuple[str, ...]:
    """Class names in the order of the logits.

    `head_size` is the number of classes of the weights, None when the source has no classification head; then the caller's
    labels decide alone.

    Raises:
        ValueError: for duplicate names, another number of labels than the head has, and names that contradict the config's.
    """
    id2label = cast(dict[int, str], config.id2label)
    stored = tuple(id2label[i] for i in sorted(id2label))
    if labels is None:
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
