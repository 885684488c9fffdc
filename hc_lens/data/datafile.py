"""A file that rows were read from, and whether it has changed since."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class DataFile:
    """A file, or a folder of a saved data set, as it was when its rows were read.

    Attributes:
        path: absolute.
        sha256: of its contents; of a folder, of the names and contents of all its files.
        size: in bytes.
    """

    path: str
    sha256: str
    size: int

    @classmethod
    def of(cls, path: Path | str) -> "DataFile":
        """The file as it is now.

        Raises:
            OSError: if it cannot be read.
        """
        place = Path(path).absolute()
        if place.is_dir():
            files = sorted(file for file in place.rglob("*") if file.is_file())
            digest = hashlib.sha256()
            for file in files:
                digest.update(f"{file.relative_to(place).as_posix()} {_sha256(file)}\n".encode())
            return cls(str(place), digest.hexdigest(), sum(file.stat().st_size for file in files))
        return cls(str(place), _sha256(place), place.stat().st_size)

    @property
    def change(self) -> str | None:
        """What has changed since, as text; None if nothing, or if the file is not there to be compared."""
        try:
            now = DataFile.of(self.path)
        except OSError:
            return None
        return None if now.sha256 == self.sha256 else f"{self.path} had {self._told} then, and has {now._told} now"

    @property
    def _told(self) -> str:
        return f"{self.size:,} bytes (SHA-256 {self.sha256[:12]})"


def _sha256(file: Path) -> str:
    with file.open("rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()
