"""Files that are either whole or absent: JSON, tensors and tables, written beside their place, fsynced, and moved into it."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import re
import secrets
import shutil
import stat
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar, cast

from safetensors import SafetensorError, safe_open

from hc_lens.json_text import parse_json

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_T = TypeVar("_T")

TEMPORARY = ".*.tmp"
"""Glob of the files and directories that a killed write leaves behind (`atomic_path`, `atomic_directory` name theirs so)."""
_ASIDE = ".old.tmp"
"""End of the name of a directory that another is taking the place of."""


class RunError(ValueError):
    """A run directory or one of its files is missing, truncated, foreign, or in use; the message names the file."""


@contextmanager
def atomic_path(path: Path) -> Generator[Path, None, None]:
    """Yield a temporary path beside `path`; on success it is fsynced and takes `path`'s place, on any error it is removed.

    Parent directories are made. The file gets the permissions that the umask gives to any new file, whatever wrote it.

    Raises:
        OSError: naming `path`, when the disk is full or not writable; what `path` held before is untouched.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        mode = _mode_of_a_new_file(temporary)
        yield temporary
        _fsync(temporary)
        temporary.chmod(mode)  # safetensors leaves its files readable by their owner alone
        os.replace(temporary, path)
        _fsync_directory(path.parent)
    except OSError as error:
        if error.filename not in (None, str(temporary), str(path.parent)):
            raise  # the body failed on some other file, which its error names
        raise _write_error(path, error) from error
    finally:
        with suppress(OSError):  # a place that cannot be written cannot be cleared either
            temporary.unlink(missing_ok=True)


_KEPT = "; nothing was written, an earlier version is kept"


def _write_error(path: Path, error: OSError) -> OSError:
    reason = (error.strerror or str(error)).removesuffix(_KEPT)
    return OSError(error.errno or errno.EIO, f"{reason}{_KEPT}", str(path))


def _mode_of_a_new_file(path: Path) -> int:
    """The permissions under the umask, which can be read without changing it only from a file made under it."""
    path.touch(exist_ok=False)
    mode = stat.S_IMODE(path.stat().st_mode)
    path.unlink()  # so that a body that writes nothing is an error still
    return mode


def _fsync(file: Path) -> None:
    with file.open("rb") as opened:
        os.fsync(opened.fileno())


def _fsync_directory(directory: Path) -> None:
    """Make a rename durable; some systems cannot open a directory, and there the rename alone has to do."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except OSError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def atomic_directory(path: Path) -> Generator[Path, None, None]:
    """Yield a new directory beside `path`; on success it takes `path`'s place, whole or not at all, on any error it is removed.

    What lies in `path` besides the new files stays there. Parent directories are made. What a killed call left is cleared
    first: its half-written directory is removed; an earlier version that it had moved aside comes back.

    Raises:
        OSError: naming `path`, when the disk is full or not writable; what `path` held before is untouched.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        for leftover in path.parent.glob(f".{path.name}.*.tmp"):
            _clear_if_abandoned(leftover)
        temporary, held = _new_directory(path)
        try:
            yield temporary
            _keep_others(path, temporary)
            for folder, _, files in os.walk(temporary):
                for file in files:
                    _fsync(Path(folder, file))
                _fsync_directory(Path(folder))
            _take_place(temporary, path)
        finally:
            os.close(held)
    except OSError as error:
        if isinstance(error.filename, str) and not Path(error.filename).is_relative_to(path.parent):
            raise  # the body failed on some other file, which its error names
        raise _write_error(path, error) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def clear(leftover: Path) -> None:
    """Remove a file or directory that a killed write left, whose name `TEMPORARY` matches.

    An earlier version of a directory whose place is empty, because a kill came between the two renames, comes back to it.
    """
    if not leftover.is_dir():
        leftover.unlink(missing_ok=True)
        return
    place = leftover.with_name(leftover.name[1:].rsplit(".", 3)[0])
    if leftover.name.endswith(_ASIDE) and not place.exists():
        leftover.rename(place)
    else:
        shutil.rmtree(leftover)


def _clear_if_abandoned(leftover: Path) -> None:
    """Remove what a killed call left, not what a living one holds; where a directory cannot be locked, nothing is removed."""
    if leftover.is_dir() and (held := _locked(leftover)) is not None:
        try:
            clear(leftover)
        finally:
            os.close(held)


def _new_directory(path: Path) -> tuple[Path, int]:
    """A new directory beside `path`, and the descriptor that holds its lock."""
    while True:
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
        temporary.mkdir()
        held = _locked(temporary)
        if held is None:  # a file system without such locks, or somebody clears it up already
            held = os.open(os.devnull, os.O_RDONLY)
        if temporary.exists():
            return temporary, held
        os.close(held)


def _locked(directory: Path) -> int | None:
    """A descriptor that holds a lock on a directory for as long as it is open; None if another process holds one."""
    try:
        descriptor = os.open(directory, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _keep_others(path: Path, temporary: Path) -> None:
    """Give the new directory what the old one holds besides: as further links to the same files where that can be."""
    for other in path.iterdir() if path.is_dir() else ():
        new = temporary / other.name
        if new.exists() or other.match(TEMPORARY):
            continue
        if other.is_dir() and not other.is_symlink():
            shutil.copytree(other, new, symlinks=True, copy_function=_link)
        else:
            _link(str(other), str(new))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


def _take_place(temporary: Path, path: Path) -> None:
    """Move a whole directory to its place; an earlier one is moved aside first, and removed when the new one is there."""
    aside = path.with_name(f".{path.name}.{secrets.token_hex(4)}{_ASIDE}")
    try:
        os.rename(temporary, path)  # takes the place of nothing, or of an empty directory
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        os.rename(path, aside)
        try:
            os.rename(temporary, path)
        except OSError:
            os.rename(aside, path)
            raise
    _fsync_directory(path.parent)
    shutil.rmtree(aside, ignore_errors=True)


def canonical_json(value: object, where: str = "value") -> str:
    """One text for one value: keys sorted, floats by repr, tuples as lists; the input of `digest`.

    Raises:
        ValueError: for NaN, infinities, keys that are not strings and values JSON does not have, naming the key; for a value
            that is nested too deeply.
    """
    _require_json(value, where)
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _require_json(value: object, where: str) -> None:
    try:
        _require_json_within(value, where)
    except RecursionError:
        raise ValueError(f"{where} is nested too deeply to be JSON") from None


def _require_json_within(value: object, where: str) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"{where} is {value}: only finite numbers are allowed (write None for a missing value)")
    if isinstance(value, dict):
        for key, item in cast("dict[object, object]", value).items():
            if not isinstance(key, str):
                raise ValueError(f"{where} has the key {key!r}: keys must be strings")
            _require_json_within(item, f"{where}.{key}")
    elif isinstance(value, list | tuple):
        for i, item in enumerate(cast("list[object]", value)):
            _require_json_within(item, f"{where}[{i}]")
    elif value is not None and not isinstance(value, str | int | float):
        raise ValueError(
            f"{where} is a {type(value).__name__} ({value!r:.80}), not None, bool, int, float, str, list, tuple or dict"
        )


def write_json(path: Path, value: object) -> None:
    """Write a JSON value (strict: no NaN); raises as `canonical_json` and `atomic_path`."""
    _require_json(value, path.stem)
    with atomic_path(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")


def read_json(path: Path) -> object:
    """Read a JSON file.

    Raises:
        RunError: if it is missing or not valid JSON, naming the file and the place.
    """

    def parse(file: Path) -> object:
        return parse_json(file.read_text(encoding="utf-8"))

    return _read(path, parse, (ValueError,), "JSON")


def write_tensors(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Write named tensors and text metadata as safetensors (values are stored contiguous and on the CPU)."""
    from safetensors.torch import save_file

    # clone() only where two names share storage, which the format refuses
    stored: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in tensors.items():
        value = tensor.detach().cpu().contiguous()
        pointer = value.untyped_storage().data_ptr()
        stored[name] = value.clone() if pointer in seen or value.untyped_storage().nbytes() > value.nbytes else value
        seen.add(pointer)
    with atomic_path(path) as temporary:
        try:
            save_file(stored, temporary, metadata=None if metadata is None else dict(metadata))
        except SafetensorError as error:
            raise OSError(_errno_in(str(error)), str(error)) from error


def _errno_in(message: str) -> int:
    """The errno that safetensors gives in its text only."""
    match = re.search(r"(?:os error |code: )(\d+)", message)
    return int(match[1]) if match else errno.EIO


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read the tensors of a safetensors file, on the CPU.

    Raises:
        RunError: if it is missing or truncated.
    """
    from safetensors.torch import load_file

    return _read(path, load_file, (SafetensorError,), "safetensors")


def read_metadata(path: Path) -> dict[str, str]:
    """Read the text metadata of a safetensors file; raises as `read_tensors`."""

    def metadata(file: Path) -> dict[str, str]:
        with safe_open(file, framework="pt") as opened:
            return dict(opened.metadata() or {})

    return _read(path, metadata, (SafetensorError,), "safetensors")


def write_table(path: Path, table: pd.DataFrame) -> None:
    """Write a table as Parquet, which keeps column types and index.

    Raises:
        ValueError: if a column has no single type, naming file and column.
    """
    with atomic_path(path) as temporary:
        try:
            table.to_parquet(temporary)
        except OSError:
            raise
        except (ValueError, TypeError) as error:
            raise ValueError(f"{path}: this table cannot be stored: {error}") from error


def read_table(path: Path) -> pd.DataFrame:
    """Read a table back as it was written.

    Raises:
        RunError: if it is missing or truncated.
    """
    import pandas as pd

    return _read(path, pd.read_parquet, (ValueError, OSError), "Parquet")


def _read(path: Path, read: Callable[[Path], _T], broken: tuple[type[Exception], ...], what: str) -> _T:
    if not path.is_file():
        raise RunError(f"{path} does not exist")
    try:
        return read(path)
    except FileNotFoundError as error:  # gone in this moment
        raise RunError(f"{path} does not exist") from error
    except broken as error:
        raise RunError(
            f"{path} is not a whole {what} file ({error}): it was truncated or changed; delete it to redo it"
        ) from error


def append_line(path: Path, line: str) -> None:
    """Append one line, durably; a last line torn by a kill is dropped first, with a warning.

    Raises:
        OSError: naming `path`, when the line cannot be written whole; the file is then as before.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b", buffering=0) as file:
        whole = file.seek(0, os.SEEK_END)
        if whole:
            file.seek(-1, os.SEEK_END)
            if file.read(1) != b"\n":
                file.seek(0)
                whole = len(_whole_lines(path, file.readall()))
        try:
            file.truncate(whole)
            remaining = memoryview(f"{line}\n".encode())
            while remaining:
                remaining = remaining[file.write(remaining) :]
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(whole)
            raise _write_error(path, error) from error


def read_lines(path: Path) -> list[str]:
    """The whole lines of a file (none if it does not exist); a last line torn by a kill is left out, with a warning."""
    if not path.exists():
        return []
    return _whole_lines(path, path.read_bytes()).decode("utf-8").split("\n")[:-1]


def _whole_lines(path: Path, content: bytes) -> bytes:
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        warnings.warn(f"{path}: the last line was cut off by a kill and is dropped", stacklevel=3)
    return whole
