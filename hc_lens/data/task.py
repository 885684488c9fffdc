"""A task: labelled sentence pairs to train on, in-domain splits, and out-of-domain cases with their scoring rule."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from hc_lens.data.datafile import DataFile
from hc_lens.limits import require_different

_SEPARATORS = {"\x1b": "\x1bb", "\x1e": "\x1be", "\x1f": "\x1bf"}
"""What parts items in a fingerprint, and how each is written where it stands in a text (`\x1b` begins the escape)."""


@dataclass(frozen=True)
class Split:
    """Labelled sentence pairs of one source, with the rule that scores a task's predictions on them.

    `labels[i]` indexes `label_names`, the classes this split is scored in. `collapse[t]` is the split's class for class `t` of
    the task: the identity in-domain; on HANS the task's (entailment, neutral, contradiction) collapse to (0, 1, 1), so an
    argmax over three logits is scored as entailment / non-entailment (The Heuristic Core, section 3).
    """

    name: str
    first: tuple[str, ...]
    second: tuple[str, ...]
    labels: tuple[int, ...]
    label_names: tuple[str, ...]
    collapse: tuple[int, ...]

    def __post_init__(self) -> None:
        if not self.labels:
            raise ValueError(f"split {self.name!r} is empty: it needs at least one labelled pair")
        if not len(self.first) == len(self.second) == len(self.labels):
            raise ValueError(
                f"split {self.name!r}: {len(self.first)} first sentences, {len(self.second)} second sentences and "
                f"{len(self.labels)} labels; the three must be equally many"
            )
        require_different(f"split {self.name!r}: label names", self.label_names)
        for what, values in (("label", self.labels), ("collapse target", self.collapse)):
            if bad := [v for v in values if not 0 <= v < len(self.label_names)]:
                raise ValueError(
                    f"split {self.name!r}: {what} {bad[0]} is outside 0..{len(self.label_names) - 1} ({self.label_names})"
                )

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, rows: Sequence[int], name: str | None = None) -> "Split":
        """The split of these rows, in this order."""
        return Split(
            name=self.name if name is None else name,
            first=tuple(self.first[i] for i in rows),
            second=tuple(self.second[i] for i in rows),
            labels=tuple(self.labels[i] for i in rows),
            label_names=self.label_names,
            collapse=self.collapse,
        )

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the texts, labels and scoring rule (not of the name)."""
        digest = hashlib.sha256()
        for part in (self.label_names, self.collapse, self.labels, self.first, self.second):
            for item in part:
                digest.update(_escaped(str(item)).encode())
                digest.update(b"\x1f")
            digest.update(b"\x1e")
        return digest.hexdigest()


@dataclass(frozen=True)
class Task:
    """Training pairs, in-domain splits and out-of-domain cases that share one label map.

    `labels` are the task's classes, in the order that `train.labels` and every `collapse` refer to. `in_domain` and `ood` map a
    case's name to its split; names are unique over both. `files` are those that the rows were read from, if any; the same rows
    of other files are the same task.
    """

    name: str
    labels: tuple[str, ...]
    train: Split
    in_domain: Mapping[str, Split]
    ood: Mapping[str, Split]
    files: tuple[DataFile, ...] = field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        if self.train.label_names != self.labels:
            raise ValueError(
                f"task {self.name!r}: the training labels {self.train.label_names} are not the task's {self.labels}"
            )
        if shared := set(self.in_domain) & set(self.ood):
            raise ValueError(f"task {self.name!r}: {sorted(shared)} are both in-domain and out-of-domain cases")
        for case, split in self.cases.items():
            if len(split.collapse) != len(self.labels):
                raise ValueError(
                    f"task {self.name!r}, case {case!r}: collapse has {len(split.collapse)} entries, one is needed for each of "
                    f"{self.labels}"
                )

    @property
    def cases(self) -> dict[str, Split]:
        """Every evaluation split by name: in-domain first, then out-of-domain."""
        return {**self.in_domain, **self.ood}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over the names and contents of the training split and of every case."""
        digest = hashlib.sha256("\x1f".join(map(_escaped, self.labels)).encode())
        for name, split in (("train", self.train), *self.cases.items()):
            digest.update(f"{_escaped(name)}\x1f{split.fingerprint}\x1e".encode())
        return digest.hexdigest()

    @property
    def changed_files(self) -> list[str]:
        """What has changed of the files that the rows were read from, a sentence each; files that are gone are not told."""
        return [change for file in self.files if (change := file.change) is not None]

    def group(self, case: str) -> str:
        """`"ID"` or `"OOD"`."""
        if case in self.in_domain:
            return "ID"
        if case in self.ood:
            return "OOD"
        raise KeyError(f"task {self.name!r} has no case {case!r}; it has {list(self.cases)}")


def _escaped(text: str) -> str:
    """The text without the separators; a text that has none of them stays as it is."""
    return text.translate(str.maketrans(_SEPARATORS)) if any(mark in text for mark in _SEPARATORS) else text
