"""Run directories: what was asked (`run.json`), what was measured (`metrics.jsonl`) and what came out, resumable at any point.

A run is addressed by the digest of its specification (configuration, model, data). The versions of the code and of what it runs
on are no part of that: they are recorded when the run is made, and reopening it under others warns. Every file in it is written
atomically (`hc_lens.atomic`), so that a killed run holds whole files only and goes on where it stopped.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from filelock import FileLock, Timeout

from hc_lens import atomic
from hc_lens.atomic import RunError, atomic_path, canonical_json
from hc_lens.json_text import parse_json
from hc_lens.provenance import DECIDES_BITS, code_version, provenance

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

__all__ = ["BusyError", "Run", "RunError", "atomic_path", "code_version", "digest", "provenance"]


class BusyError(RunError):
    """A run, or a part of it, that another process is working on."""


_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)*")
_RESERVED = ("run", "finished")
_LOOK = 0.2  # seconds within which whoever only looks at a lock (`Run.held`) has let go of it


def digest(value: object) -> str:
    """SHA-256 (hex) of a JSON value's canonical text: equal for equal values, whatever the order of their keys.

    Raises:
        ValueError: for NaN and for values JSON does not have, naming the key.
    """
    return hashlib.sha256(canonical_json(value, "spec").encode()).hexdigest()


@dataclass(frozen=True)
class Run:
    """One run directory. `kind` says what was run (`"finetune"`), `spec` with what; both are fixed when it is created."""

    path: Path
    kind: str
    spec: Mapping[str, object]

    @staticmethod
    def create(root: Path, kind: str, spec: Mapping[str, object]) -> Run:
        """The run of this specification under `root`, at `<kind>-<12 digits of the digest>`: reopened if it exists.

        Raises:
            RunError: if that directory is foreign, or its `run.json` is damaged.
            ValueError: if `spec` is not JSON, naming the key.
        """
        return Run.at(root / f"{kind}-{digest(dict(spec))[:12]}", kind, spec)

    @staticmethod
    def at(path: Path, kind: str, spec: Mapping[str, object]) -> Run:
        """The run of this specification in a directory of the caller's choice: reopened if it exists.

        Reopening an unfinished run under other code, versions, threads or hardware warns that it will not be bit-equal;
        reopening a finished one under other code, that its results are not this code's.

        Raises:
            RunError: if the directory holds another run (naming the fields that differ), foreign files or a damaged `run.json`.
            ValueError: if `spec` is not JSON, naming the key.
        """
        asked = digest(dict(spec))
        if not (path / "run.json").exists():
            _require_empty(path)
            path.mkdir(parents=True, exist_ok=True)
            with Run(path, kind, spec).locked(wait=True):
                if not (path / "run.json").exists():
                    record = {"format": 1, "kind": kind, "digest": asked, "spec": dict(spec), "provenance": provenance()}
                    atomic.write_json(path / "run.json", record)
        run = Run.open(path)
        if run.kind != kind:
            raise RunError(f"{path} holds a {run.kind!r} run, not a {kind!r} run: choose another directory")
        if run.digest != asked:
            raise RunError(
                f"{path} holds a run with another specification: {_differences(run.spec, spec)}; choose another directory"
            )
        run._warn_of_other_provenance()
        return run

    @staticmethod
    def open(path: Path) -> Run:
        """An existing run directory.

        Raises:
            RunError: if there is no run there, or its `run.json` is truncated, foreign or was edited.
        """
        file = path / "run.json"
        if not path.is_dir():
            raise RunError(f"{path} is not a directory: there is no run")
        if not file.exists():
            raise RunError(f"{path} is not a run directory: it has no run.json")
        record = atomic.read_json(file)
        if not isinstance(record, dict):
            raise RunError(f"{file} is not of this program: it holds a {type(record).__name__}, not an object")
        fields = cast("dict[str, object]", record)
        if missing := [name for name in ("format", "kind", "digest", "spec", "provenance") if name not in fields]:
            raise RunError(f"{file} is not of this program: it has no {missing[0]!r}")
        if fields["format"] != 1:
            raise RunError(f"{file} has format {fields['format']!r}; this version reads format 1")
        kind, spec, written = fields["kind"], fields["spec"], fields["digest"]
        if not isinstance(kind, str) or not isinstance(spec, dict):
            raise RunError(f"{file}: kind must be a text and spec an object, got {kind!r:.80} and {spec!r:.80}")
        run = Run(path, kind, cast("dict[str, object]", spec))
        if run.digest != written:
            raise RunError(f"{file} was edited: its spec has digest {run.digest[:12]}, the file says {written!s:.12}")
        return run

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the specification."""
        return digest(dict(self.spec))

    @property
    def provenance(self) -> Mapping[str, object]:
        """Versions, threads, machine and date of the run's creation."""
        return cast("dict[str, dict[str, object]]", atomic.read_json(self.path / "run.json"))["provenance"]

    def _warn_of_other_provenance(self) -> None:
        then, now = self.provenance, provenance()
        if self.finished:
            if then.get("code") != now["code"]:
                warnings.warn(
                    f"{self.path} was computed by another version of the code; choose another --out to recompute", stacklevel=3
                )
            return
        if other := [
            f"{name} {then.get(name)!s:.40} then, {now[name]!s:.40} now" for name in DECIDES_BITS if then.get(name) != now[name]
        ]:
            warnings.warn(
                f"{self.path} goes on under other conditions and will not be bit-equal: {'; '.join(other)}", stacklevel=3
            )

    @contextmanager
    def locked(self, *parts: str, wait: bool = False) -> Generator[Run, None, None]:
        """Hold the run, or only some parts of it, for this process, so that no two processes do the same at once.

        The file system must support `flock`; on one that does not, the lock fails rather than outlive a dead process.

        A part is whatever goes into files of that name (`"seed-42"`), so that several processes can work on different parts
        of a run; a kind of run is held whole or in parts. What a killed process left of files and directories that are held is
        cleared away. The lock is released when the process ends, however it ends. It is not re-entrant.

        Raises:
            BusyError: at once, if another process holds it; with `wait` never.
            OSError: naming the lock, where no file can be made.
        """
        try:
            with ExitStack() as held:
                for part in sorted(parts) or [""]:
                    lock = FileLock(self._lock(part), timeout=-1 if wait else _LOOK, poll_interval=0.02, fallback_to_soft=False)
                    held.enter_context(lock)
                for part in parts or [""]:
                    for leftover in sorted(self.path.rglob(f".{part}.*.tmp" if part else atomic.TEMPORARY)):
                        atomic.clear(leftover)
                yield self
        except Timeout as error:
            raise BusyError(f"{self.path} is being worked on by another process (it holds {error.lock_file})") from error

    def held(self, part: str = "") -> bool:
        """Whether a living process, on whatever machine, holds the run (or a part of it) just now."""
        try:
            descriptor = os.open(self._lock(part), os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
        return False

    def _lock(self, part: str) -> Path:
        return self.path / (f".lock-{part}" if part else ".lock")

    def file(self, name: str, suffix: str) -> Path:
        """The path of a named file of this run; names are letters, digits, `_`, `.`, `-`, with `/` between folders.

        Raises:
            ValueError: for any other name.
        """
        if not _NAME.fullmatch(name) or ".." in name or (suffix == "json" and name in _RESERVED):
            raise ValueError(
                f"{name!r} cannot name a file of a run: use letters, digits, _ . - and /, not {', '.join(_RESERVED)}"
            )
        return self.path / f"{name}.{suffix}"

    def write_json(self, name: str, value: object) -> None:
        """Write `<name>.json`, atomically."""
        atomic.write_json(self.file(name, "json"), value)

    def read_json(self, name: str) -> object:
        """Read `<name>.json`; RunError if it is missing or damaged."""
        return atomic.read_json(self.file(name, "json"))

    def write_tensors(self, name: str, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
        """Write `<name>.safetensors`, atomically."""
        atomic.write_tensors(self.file(name, "safetensors"), tensors, metadata)

    def read_tensors(self, name: str) -> dict[str, Tensor]:
        """Read the tensors of `<name>.safetensors`, on the CPU; RunError if it is missing or damaged."""
        return atomic.read_tensors(self.file(name, "safetensors"))

    def read_metadata(self, name: str) -> dict[str, str]:
        """Read the text metadata of `<name>.safetensors`; RunError if it is missing or damaged."""
        return atomic.read_metadata(self.file(name, "safetensors"))

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write `<name>.parquet`, atomically."""
        atomic.write_table(self.file(name, "parquet"), table)

    def read_table(self, name: str) -> pd.DataFrame:
        """Read `<name>.parquet`; RunError if it is missing or damaged."""
        return atomic.read_table(self.file(name, "parquet"))

    def json(self, name: str, compute: Callable[[], object]) -> object:
        """The stored value of this name; computed and stored first if it is not there yet."""
        if not self.file(name, "json").exists():
            self.write_json(name, compute())
        return self.read_json(name)

    def tensors(self, name: str, compute: Callable[[], Mapping[str, Tensor]]) -> dict[str, Tensor]:
        """The stored tensors of this name; computed and stored first if they are not there yet."""
        if not self.file(name, "safetensors").exists():
            self.write_tensors(name, compute())
        return self.read_tensors(name)

    def table(self, name: str, compute: Callable[[], pd.DataFrame]) -> pd.DataFrame:
        """The stored table of this name; computed and stored first if it is not there yet."""
        if not self.file(name, "parquet").exists():
            self.write_table(name, compute())
        return self.read_table(name)

    def directory(self, name: str, marker: str, write: Callable[[Path], object]) -> Path:
        """The directory of this name, whose file `marker` says that it is whole; written first if it is not there, or is not.

        The run, or the part of that name, must be held.
        """
        directory = self.path / name
        if not (directory / marker).is_file():
            if directory.is_dir():  # an earlier version of this program wrote it file by file, and was killed
                shutil.rmtree(directory)
            write(directory)
        return directory

    def log(self, row: Mapping[str, object]) -> None:
        """Append one row to `metrics.jsonl`, durably.

        Raises:
            ValueError: if the row is not JSON (NaN included), naming the column.
        """
        canonical_json(dict(row), "row")
        atomic.append_line(self.path / "metrics.jsonl", json.dumps(dict(row), allow_nan=False))

    def metrics(self) -> pd.DataFrame:
        """The rows logged so far, one column per key; a last line torn by a kill is left out, with a warning.

        Raises:
            RunError: if any other line is damaged, naming file and line.
        """
        import pandas as pd

        return pd.DataFrame([row for _, row in self._rows()])

    def rewind(self, step: int) -> None:
        """Drop the rows logged after this step (their `step` is greater), which a resumed run logs again."""
        kept = [line for line, row in self._rows() if cast(int, row.get("step", step)) <= step]
        with atomic_path(self.path / "metrics.jsonl") as temporary:
            temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")

    def _rows(self) -> Iterator[tuple[str, dict[str, object]]]:
        file = self.path / "metrics.jsonl"
        for number, line in enumerate(atomic.read_lines(file), start=1):
            try:
                row = parse_json(line)
            except ValueError as error:
                raise RunError(f"{file}:{number}: this line is damaged ({error}): {line!r:.80}") from error
            if not isinstance(row, dict):
                raise RunError(f"{file}:{number}: this line is no metrics row: {line!r:.80}")
            yield line, cast("dict[str, object]", row)

    @property
    def finished(self) -> bool:
        """Whether `finish` was called."""
        return (self.path / "finished.json").exists()

    def finish(self) -> None:
        """Mark the run as complete, with the versions and date of its end."""
        atomic.write_json(self.path / "finished.json", provenance())

    def unfinish(self) -> None:
        """Take the mark away: the run was asked for more."""
        (self.path / "finished.json").unlink(missing_ok=True)


def _require_empty(path: Path) -> None:
    """A directory without `run.json` may hold nothing but what a killed `Run.at` or a lock leaves."""
    if path.exists() and not path.is_dir():
        raise RunError(f"{path} is a file: a run needs a directory")
    found = list(path.iterdir()) if path.exists() else []
    foreign = sorted(file.name for file in found if not file.name.startswith(".lock") and not file.match(atomic.TEMPORARY))
    if foreign and not (path / "run.json").exists():  # which another process may just have written
        raise RunError(f"{path} is not a run directory: it has no run.json but holds {foreign[0]!r}; choose another directory")


def _differences(there: Mapping[str, object], asked: Mapping[str, object], limit: int = 5) -> str:
    """The fields that differ, as text: `config.steps is 300 there, 600 asked`."""
    found = _different_fields(there, asked, "")
    more = f" and {len(found) - limit} more" if len(found) > limit else ""
    return "; ".join(found[:limit]) + more


def _different_fields(there: Mapping[str, object], asked: Mapping[str, object], prefix: str) -> list[str]:
    found: list[str] = []
    for key in sorted({*there, *asked}):
        a, b = there.get(key, "absent"), asked.get(key, "absent")
        if isinstance(a, dict) and isinstance(b, dict):
            found += _different_fields(cast("dict[str, object]", a), cast("dict[str, object]", b), f"{prefix}{key}.")
        elif canonical_json(a) != canonical_json(b):
            found.append(f"{prefix}{key} is {a!r:.80} there, {b!r:.80} asked")
    return found
