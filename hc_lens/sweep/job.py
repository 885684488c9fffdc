"""What a sweep can do: anything that is described in JSON, done anywhere, and leaves its results in a run directory.

A sweep's files name their jobs. Such a name stands for a class only if it is one of the program's own, or if the calling code
has registered it: nothing is imported because a file says so.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar, cast, runtime_checkable

from hc_lens.runs import RunError

if TYPE_CHECKING:
    import torch

_OWN = ("hc_lens.sweep.prune_job:PruneJob", "hc_lens.relations.job:RelationJob")
"""The program's own classes of jobs, each imported when a job of it is opened."""


@runtime_checkable  # the tests check annotations
class Job(Protocol):
    """What a worker does at a time; a class of your own is found again by its name once it is registered (`register`)."""

    @property
    def title(self) -> str:
        """The job in a few words."""
        ...

    def do(self, device: torch.device, *, every: float = 30.0) -> None:
        """Do whatever of it is not done yet; what takes long is kept every so many seconds.

        Raises:
            BusyError: if another process does a part of it.
            Exception: whatever goes wrong.
        """
        ...

    def whole(self) -> bool:
        """Whether everything that it leaves is there; a job that is done, but not whole, is done again."""
        ...

    def spec(self, base: Path) -> dict[str, object]:
        """The job as JSON, with places relative to `base`."""
        ...

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> Job:
        """The job that `spec` describes.

        Raises:
            RunError: if what it needs is not what it was.
        """
        ...


_registered: dict[str, type] = {}

_Class = TypeVar("_Class", bound=type)


def register(kind: _Class) -> _Class:
    """Let sweeps of this process, and the workers that it starts, hold jobs of a class; can be used as a decorator.

    Workers import the class from its module, which must be on their path: the current directory is not.
    """
    _registered[_name(kind)] = kind
    return kind


def registered() -> list[str]:
    """The names of the classes that were registered, `module:Class`."""
    return list(_registered)


def register_name(name: str) -> None:
    """Import and register the class `module:Class` that whoever starts this process has named.

    Raises:
        ImportError, AttributeError: if it is not there.
    """
    register(_imported(name))


def described(job: Job, base: Path) -> dict[str, object]:
    """A job as JSON, with its class and its title.

    Raises:
        ValueError: for a job of a class that no worker would know.
    """
    name = _name(type(job))
    if name not in (*_OWN, *_registered):
        raise ValueError(f"{name} is not a class of jobs that sweeps know: register it (hc_lens.sweep.register)")
    return job.spec(base) | {"job": name, "title": job.title}


def job_of(spec: Mapping[str, object], base: Path) -> Job:
    """The job that was described.

    Raises:
        RunError: if its class is not known, or what it needs not what it was.
    """
    name = spec.get("job")
    if not isinstance(name, str) or name not in (*_OWN, *_registered):
        known = ", ".join((*_OWN, *_registered))
        raise RunError(f"job: {name!r:.80} is no class of jobs that this program knows: {known}; nothing was imported")
    kind = _imported(name) if name in _OWN else _registered[name]
    return cast("type[Job]", kind).from_spec(spec, base)


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def _imported(name: str) -> type:
    module, _, attribute = name.partition(":")
    return cast(type, getattr(importlib.import_module(module), attribute))
