"""A task as a directory, so that another process measures exactly the same rows: `task.json` and `pairs.parquet`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from hc_lens.atomic import RunError, read_json, read_table, write_json, write_table
from hc_lens.data.datafile import DataFile
from hc_lens.data.task import Split, Task

if TYPE_CHECKING:
    import pandas as pd

_TRAIN = "train"


def save_task(task: Task, directory: Path) -> Path:
    """Write a task; its rows are not written again where they lie already, whole.

    Raises:
        RunError: if another task lies there.
    """
    import pandas as pd

    try:
        stored = load_stored_task(directory)
    except RunError:  # absent or damaged: written anew, unless it was another
        _require_same(directory / "task.json", task)
    else:
        if stored.fingerprint != task.fingerprint:
            raise RunError(f"{directory} holds another task: choose another directory")
        if task.files not in ((), stored.files):
            write_json(directory / "task.json", _told(task))
        return directory
    splits = _splits(task)
    rows = [
        pd.DataFrame({"split": i, "first": split.first, "second": split.second, "label": split.labels})
        for i, (_, _, split) in enumerate(splits)
    ]
    write_table(directory / "pairs.parquet", pd.concat(rows, ignore_index=True))
    write_json(directory / "task.json", _told(task))  # last: its presence says that the task is whole
    return directory


def _require_same(file: Path, task: Task) -> None:
    told = read_json(file) if file.exists() else {}
    if not isinstance(told, dict) or cast("dict[str, object]", told).get("fingerprint", task.fingerprint) != task.fingerprint:
        raise RunError(f"{file.parent} holds something else than this task: choose another directory")


def _told(task: Task) -> dict[str, object]:
    """All of a task but its rows."""
    described = [
        {"group": group, "case": case, "name": split.name, "label_names": split.label_names, "collapse": split.collapse}
        for group, case, split in _splits(task)
    ]
    files = [asdict(file) for file in task.files]
    return {
        "name": task.name,
        "labels": task.labels,
        "fingerprint": task.fingerprint,
        "splits": described,
        "files": files,
    }


def load_stored_task(directory: Path) -> Task:
    """Read a task written by `save_task`.

    Raises:
        RunError: if it is absent, damaged, or not what was written.
    """
    file = directory / "task.json"
    told = cast("Mapping[str, Any]", read_json(file))
    by_split = dict(iter(read_table(directory / "pairs.parquet").groupby("split")))
    try:
        splits = [(each["group"], each["case"], _split(each, by_split[i])) for i, each in enumerate(told["splits"])]
        (train,) = (split for group, _, split in splits if group == _TRAIN)
        cases = {name: {case: split for group, case, split in splits if group == name} for name in ("ID", "OOD")}
        files = tuple(DataFile(**file) for file in told.get("files", ()))  # earlier versions did not tell
        task = Task(told["name"], tuple(told["labels"]), train, cases["ID"], cases["OOD"], files)
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"{directory} does not hold a task: {error!r}") from error
    if task.fingerprint != told["fingerprint"]:
        raise RunError(f"{directory} was changed: its rows have fingerprint {task.fingerprint[:12]}, {file.name} says another")
    return task


def _splits(task: Task) -> list[tuple[str, str, Split]]:
    """Group, case and split of all that a task holds."""
    return [(_TRAIN, "", task.train), *((task.group(case), case, split) for case, split in task.cases.items())]


def _split(told: Mapping[str, Any], rows: pd.DataFrame) -> Split:
    return Split(
        name=told["name"],
        first=tuple(rows["first"]),
        second=tuple(rows["second"]),
        labels=tuple(int(label) for label in rows["label"]),
        label_names=tuple(told["label_names"]),
        collapse=tuple(told["collapse"]),
    )
