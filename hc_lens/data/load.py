"""A task by name, or from the user's own files of sentence pairs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from hc_lens.data.datafile import DataFile
from hc_lens.data.files import NLI_COLUMNS, Columns, read_pairs
from hc_lens.data.nli import NLI_LABELS, hans, mnli
from hc_lens.data.paraphrase import paws_qqp, qqp
from hc_lens.data.rows import read_rows
from hc_lens.data.sampling import hold_out, normalised
from hc_lens.data.task import Split, Task

Ood = Path | str | Mapping[str, Path | str]
"""Out-of-domain cases: "hans", a file, or files by case name."""

TASK_NAMES = ("mnli", "qqp", "synthetic")
"""The tasks that `load_task` knows by name."""

_HELD_OUT = 0.1


def load_task(
    name_or_path: Path | str,
    *,
    ood: Ood | None = None,
    label_names: Sequence[str] | None = None,
    columns: Columns = NLI_COLUMNS,
    validation: Path | str | float | None = None,
    drop_unlabelled: bool = False,
    seed: int = 0,
) -> Task:
    """Load a task by name ("mnli" or "qqp" from the hub, "synthetic"), or from a file of labelled sentence pairs.

    A file (formats as `read_pairs`) needs `label_names`, in the order of its label codes if it has codes. Its in-domain split
    is `validation`: a file, or the share of its first sentences of which `seed` draws all pairs, by default a tenth. `ood` is
    "hans" (by hub name; for tasks with the labels entailment, neutral and contradiction), a file, or files by case name, in the
    same columns and labels; for "mnli" it is "hans" or a local HANS file, for "qqp" a local PAWS-QQP file.

    Raises:
        FileNotFoundError: if a file does not exist.
        ValueError: for an unknown name, an argument that the named task does not take, missing label names (naming the labels
            found), or as `read_pairs`.
    """
    name = str(name_or_path)
    if name in TASK_NAMES:
        taken = {"label_names": label_names, "validation": validation, "columns": None if columns == NLI_COLUMNS else columns}
        if given := [key for key, value in taken.items() if value is not None]:
            raise ValueError(f"task {name!r} does not take {', '.join(given)}: it brings its own splits and labels")
        by_name: dict[str, Callable[[Ood | None, bool], Task]] = {
            "mnli": _mnli,
            "qqp": _qqp,
            "synthetic": lambda ood, _: _synthetic(ood, seed),
        }
        task = by_name[name](ood, drop_unlabelled)
    elif (path := Path(name_or_path)).exists():
        if label_names is None:
            found = sorted({str(row.fields[columns.label]) for row in read_rows(path, columns.names)})
            raise ValueError(f"{path}: label_names is needed; the labels in column {columns.label!r} are {found}")
        read = partial(read_pairs, label_names=label_names, columns=columns, drop_unlabelled=drop_unlabelled)
        train = read(path, name="train")
        if validation is None or isinstance(validation, (int, float)):
            train, in_domain = _hold_out_share(train, _HELD_OUT if validation is None else validation, seed)
        else:
            in_domain = read(validation, name="validation")
        task = Task(_stem(path), train.label_names, train, {in_domain.name: in_domain}, _cases(ood, train.label_names, read))
    else:
        raise ValueError(f"no task {name!r}: give a name ({', '.join(TASK_NAMES)}) or the path of an existing file of pairs")
    return replace(task, files=_files(name, None if isinstance(validation, (int, float)) else validation, ood))


def _files(name: str, validation: Path | str | None, ood: Ood | None) -> tuple[DataFile, ...]:
    """The files among what a task is made of, as they are now."""
    cases = ood.values() if isinstance(ood, Mapping) else [] if ood in (None, "hans") else [ood]
    named = [name if name not in TASK_NAMES else None, validation, *cases]
    return tuple(DataFile.of(path) for path in dict.fromkeys(str(each) for each in named if each is not None))


def _cases(ood: Ood | None, labels: tuple[str, ...], read: Callable[..., Split]) -> dict[str, Split]:
    """The out-of-domain cases of a task from files."""
    if ood is None:
        return {}
    if ood == "hans":
        return _hans_for(labels)
    files = ood if isinstance(ood, Mapping) else {_stem(ood): ood}
    return {case: read(file, name=case) for case, file in files.items()}


def _mnli(ood: Ood | None, drop_unlabelled: bool) -> Task:
    if isinstance(ood, Mapping):
        raise ValueError(f"task 'mnli' takes ood='hans' or the path of a local HANS file, got {dict(ood)}")
    cases = None if ood is None else hans() if ood == "hans" else hans(ood)
    return mnli(ood=cases, drop_unlabelled=drop_unlabelled)


def _qqp(ood: Ood | None, drop_unlabelled: bool) -> Task:
    if isinstance(ood, Mapping) or ood == "hans":
        raise ValueError(f"task 'qqp' takes as ood the path of a local PAWS-QQP file, got {ood!r}")
    return qqp(ood=None if ood is None else paws_qqp(ood), drop_unlabelled=drop_unlabelled)


def _synthetic(ood: Ood | None, seed: int) -> Task:
    if ood is not None:
        raise ValueError(f"task 'synthetic' does not take ood (got {ood!r}): it brings its own cases")
    from hc_lens.data.synthetic import synthetic_nli

    return synthetic_nli(seed=seed)


def _stem(path: Path | str) -> str:
    """A file's name without its suffixes: `pairs` for `data/pairs.tsv.gz`."""
    name = Path(path).name
    return name.removesuffix("".join(Path(path).suffixes)) or name


def _hold_out_share(train: Split, share: float, seed: int) -> tuple[Split, Split]:
    if not 0 < share < 1:
        raise ValueError(f"validation must be a share in (0, 1) or a file, got {share}")
    n_firsts = len({normalised(text) for text in train.first})
    return hold_out(train, max(1, round(n_firsts * share)), seed, "held-out")


def _hans_for(labels: tuple[str, ...]) -> dict[str, Split]:
    """HANS, scored for a task whose labels are the NLI ones in any order."""
    if sorted(labels) != sorted(NLI_LABELS):
        raise ValueError(f"ood='hans' needs a task with the labels {list(NLI_LABELS)}, got {list(labels)}")
    collapse = tuple(0 if label == "entailment" else 1 for label in labels)
    return {case: replace(split, collapse=collapse) for case, split in hans().items()}
