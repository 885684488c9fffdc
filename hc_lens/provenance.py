"""What a result depends on besides its configuration: code, versions, threads and machine."""

from __future__ import annotations

import hashlib
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path

_PACKAGES = ("torch", "transformer-lens", "transformers", "tokenizers", "datasets", "numpy", "pandas")

Provenance = Mapping[str, str | int | float | bool | None]
"""Where a stored result came from: names and plain values."""

DECIDES_BITS = ("hc_lens", "code", "python", *_PACKAGES, "threads", "gpu", "machine")
"""The entries of `provenance` that must agree for results to be bit-equal; the rest (the date) may differ."""


@cache
def code_version() -> str:
    """SHA-256 over the names and contents of the package's Python files, as they are on disk."""
    root = Path(__file__).parent
    digest = hashlib.sha256()
    for file in sorted(root.rglob("*.py")):
        name, content = file.relative_to(root).as_posix().encode(), file.read_bytes()
        digest.update(b"%d %d " % (len(name), len(content)) + name + content)  # lengths: no other files join to the same bytes
    return digest.hexdigest()


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def provenance() -> dict[str, str | int]:
    """Versions, code, threads, machine and date (UTC), as stored with every run; `gpu` is what there is, used or not."""
    import torch

    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "none"
    machine = f"{platform.system()} {platform.machine()}, {torch.backends.cpu.get_cpu_capability()}, {os.cpu_count()} CPUs"
    return {
        "hc_lens": _version("hc-lens"),
        "code": code_version(),
        "python": platform.python_version(),
        **{package: _version(package) for package in _PACKAGES},
        "threads": torch.get_num_threads(),
        "gpu": gpu,
        "machine": machine,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }
