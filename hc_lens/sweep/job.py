"""What a sweep can do: anything that is described in JSON, done anywhere, and leaves its results in a run directory."""

import pkgutil
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch

from hc_lens.runs import RunError


@runtime_checkable  # the tests check annotations
class Job(Protocol):
    """What a worker does at a time; its class is found again by its name, at the top of an importable module."""

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

    def spec(self, base: Path) -> dict[str, object]:
        """The job as JSON, with places relative to `base`."""
        ...

    @classmethod
    def from_spec(cls, spec: Mapping[str, object], base: Path) -> "Job":
        """The job that `spec` describes.

        Raises:
            RunError: if what it needs is not what it was.
        """
        ...


def described(job: Job, base: Path) -> dict[str, object]:
    """A job as JSON, with its class and its title."""
    return job.spec(base) | {"job": f"{type(job).__module__}:{type(job).__qualname__}", "title": job.title}


def job_of(spec: Mapping[str, object], base: Path) -> Job:
    """The job that was described.

    Raises:
        RunError: if its class is not there, or what it needs not what it was.
    """
    name = spec.get("job")
    try:
        kind = pkgutil.resolve_name(str(name))
    except (ImportError, AttributeError, ValueError) as error:
        raise RunError(f"job: {name!r} is no class of jobs that this program finds ({error})") from error
    if not hasattr(kind, "from_spec"):
        raise RunError(f"job: {name!r} is no class of jobs: it has no from_spec")
    return kind.from_spec(spec, base)
