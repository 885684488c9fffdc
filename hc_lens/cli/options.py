"""What several commands take: seeds, a device, a task; and how their arguments are read."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from hc_lens.cli.numbers import require_numbers
from hc_lens.data import Task
from hc_lens.limits import Count, Natural, require_at_least_one, require_different
from hc_lens.runs import Run
from hc_lens.sweep import Pool

if TYPE_CHECKING:
    import torch

_T = TypeVar("_T")

MOST_SEEDS = 10_000
"""Seeds that a command takes at most; each is a subnetwork of its own."""


def read_seeds(words: Sequence[str]) -> tuple[int, ...]:
    """Seeds as `42..53` (both ends included), single numbers, or a list of either.

    Raises:
        ValueError: for anything else, a seed given twice, or more than `MOST_SEEDS`.
    """
    seeds: list[int] = []
    for part in (part for word in words for part in word.split(",") if part):
        first, dots, last = part.partition("..")
        try:
            found = range(int(first), int(last) + 1) if dots else [int(part)]
        except ValueError:
            raise ValueError(
                f"{part!r:.40} is not a seed: write 42, a list (42 43) or a range with both ends (42..53)"
            ) from None
        if not found:
            raise ValueError(f"{part!r} holds no seed: the first end of a range must not be above the second")
        if found[0] < 0:
            raise ValueError(f"seeds must not be negative, got {found[0]}")
        if found[-1] - found[0] + len(seeds) >= MOST_SEEDS:
            raise ValueError(f"{part!r} is too many seeds: at most {MOST_SEEDS} in all")
        seeds += found
    if not seeds:
        raise ValueError("seeds must be at least one, got none")
    require_different("seeds", seeds)
    return tuple(seeds)


def _is_seeds(value: object) -> bool:
    return isinstance(value, tuple) and all(isinstance(seed, int) for seed in cast("tuple[object, ...]", value))


def _seed_words(seeds: tuple[int, ...]) -> list[str]:
    """Seeds as they are shown in `--help`."""
    first, last = min(seeds), max(seeds)
    return [f"{first}..{last}"] if seeds == tuple(range(first, last + 1)) else [str(seed) for seed in seeds]


Seeds = Annotated[
    tuple[int, ...],
    PrimitiveConstructorSpec(
        nargs="*", metavar="N|FIRST..LAST", instance_from_str=read_seeds, is_instance=_is_seeds, str_from_instance=_seed_words
    ),
]


RunPath = Annotated[Path, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]

RunPaths = Annotated[
    tuple[Path, ...], tyro.conf.Positional, tyro.conf.arg(metavar="RUN [RUN ...]", help_behavior_hint="(required)")
]


def at_least_one(runs: tuple[Path, ...], command: str) -> tuple[Path, ...]:
    """The runs given.

    Raises:
        ValueError: if there are none, or one is given twice, however it is spelled.
    """
    if not runs:
        raise ValueError(f"no RUN given: name at least one pruning run (see hc-lens {command} --help)")
    return each_once(runs)


def each_once(runs: tuple[Path, ...]) -> tuple[Path, ...]:
    """The runs given.

    Raises:
        ValueError: if one is given twice, however it is spelled.
        RunError: if one is not a run.
    """
    known: dict[Path, Path] = {}
    for run in runs:
        if (place := run.resolve()) in known:
            spelled = "" if run == known[place] else f", as {known[place]} and as {run}"
            raise ValueError(f"{known[place]} is given twice{spelled}: give each run once")
        known[place] = run
    for run in runs:
        Run.open(run)
    return runs


def device_of_name(name: str) -> torch.device:
    """The device called `auto`, `cpu`, `cuda` or `cuda:1`.

    Raises:
        ValueError: if there is no such device here.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device = torch.device(name)
    if device.type == "cuda" and (not torch.cuda.is_available() or (device.index or 0) >= torch.cuda.device_count()):
        raise ValueError(f"--device {name}: this machine has {torch.cuda.device_count()} CUDA devices")
    return device


@dataclass(frozen=True)
class Computing:
    """What computes, and where the tables go besides the run that is read."""

    out: Path | None = None
    """A directory that gets the tables as CSV files, too; RUN keeps its own copy, which hc-lens report reads."""
    device: str = "auto"
    """auto (CUDA if there is one), cpu, cuda, cuda:1."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class PoolChoice:
    """How many processes prune side by side."""

    workers: Count | None = None
    """Processes that prune side by side; 1 for this one alone; one for each GPU or core by default."""
    threads: Count | None = None
    """Threads of each; the cores divided by the workers by default."""

    def on(self, device: str) -> Pool:
        """The pool, on a device of this name.

        Raises:
            ValueError: if there is no such device here, or for numbers below 1.
        """
        return Pool(self.workers, self.threads, str(device_of_name(device)))


@dataclass(frozen=True)
class Common:
    """Where results go and what computes them."""

    out: Path | None = None
    """Run directory; by default one under ./runs named after what is asked for. The same command again goes on or reuses it."""
    device: str = "auto"
    """auto (CUDA if there is one), cpu, cuda, cuda:1."""
    debug: bool = False
    """Show the traceback of an error."""


@dataclass(frozen=True)
class TaskChoice:
    """Which sentence pairs."""

    task: str | None = None
    """synthetic (the embedded grammar), mnli or qqp (from the hub), or a file of pairs (TSV, CSV, JSONL, Parquet, also .gz)."""
    ood: tuple[str, ...] = ()
    """Out-of-domain cases: hans (from the hub), files as NAME=FILE, or one FILE (of HANS for mnli, of PAWS-QQP for qqp)."""
    label_names: tuple[str, ...] = ()
    """For a file: the labels, in the order of their codes."""
    columns: tuple[str, str, str] = ("premise", "hypothesis", "label")
    """For a file: its columns with the first sentence, the second, and the label."""
    validation: Path | None = None
    """For a file: the in-domain pairs; without it, a share of the file is held out."""
    drop_unlabelled: bool = False
    """Leave out pairs without a gold label instead of stopping at the first."""
    limit: Count | None = None
    """At most so many rows of every split."""
    minority: float = 0.03
    """For synthetic: the share of training pairs that break the overlap heuristic."""
    task_seed: Natural = 0
    """Seed of what is generated, held out or sampled."""

    def load(self) -> Task:
        """The task itself.

        Raises:
            FileNotFoundError, ValueError: as `load_task`.
        """
        from hc_lens.data import Columns, load_task, synthetic_nli
        from hc_lens.data.sampling import limited

        require_at_least_one("limit", self.limit)
        name = self.task or "synthetic"
        if name == "synthetic" and not self.ood:
            at_most = 20_000 if self.limit is None else self.limit
            return synthetic_nli(
                minority=self.minority,
                seed=self.task_seed,
                n_train=at_most,
                n_id=min(at_most, 1_000),
                n_ood_per_case=min(at_most, 200),
            )
        task = load_task(
            name,
            ood=_cases(self.ood),
            label_names=self.label_names or None,
            columns=Columns(*self.columns),
            validation=self.validation,
            drop_unlabelled=self.drop_unlabelled,
            seed=self.task_seed,
        )
        return limited(task, self.task_seed, train=self.limit, in_domain=self.limit, ood=self.limit)

    def as_json(self) -> Mapping[str, object]:
        """The choice as it is stored beside a run, files by absolute path."""
        named = self.task or "synthetic"
        file = str(Path(named).absolute()) if Path(named).exists() else named
        validation = None if self.validation is None else str(self.validation.absolute())
        cases = _cases(self.ood)
        if isinstance(cases, dict):
            ood = [f"{name}={path}" for name, path in cases.items()]
        else:
            ood = [] if cases is None else [cases]
        return asdict(self) | {"task": file, "validation": validation, "ood": ood}

    @classmethod
    def from_json(cls, stored: Mapping[str, object]) -> TaskChoice:
        """The choice back."""
        values = {key: tuple(cast("list[str]", v)) if isinstance(v, list) else v for key, v in stored.items()}
        if isinstance(values.get("validation"), str):
            values["validation"] = Path(cast(str, values["validation"]))
        return cls(**cast("dict[str, Any]", values))


def _cases(words: Sequence[str]) -> str | dict[str, Path | str] | None:
    if not words:
        return None
    if list(words) == ["hans"]:
        return "hans"
    if len(words) == 1 and Path(words[0]).exists():
        return str(Path(words[0]).absolute())
    named = [word.partition("=") for word in words]
    if bad := [word for word, (_, sign, file) in zip(words, named, strict=True) if not (sign and file)]:
        raise ValueError(f"--ood {bad[0]}: give hans, an existing file, or each case as NAME=FILE")
    require_different("--ood: names of cases", [name for name, _, _ in named])
    return {name: str(Path(file).absolute()) for name, _, file in named}


def parse(arguments: type[_T], command: str, words: Sequence[str], default: _T | None = None) -> _T:
    """Read a command's arguments; ends the process with tyro's explanation where they cannot be read, or with `--help`.

    Raises:
        ValueError: naming the option, for a number that is too small or not finite, or a directory that is a file.
    """
    prog = f"hc-lens {command}"
    if default is None:
        read = tyro.cli(arguments, prog=prog, args=list(words))
    else:
        read = tyro.cli(arguments, prog=prog, args=list(words), default=default)
    require_numbers(read)
    _require_directory(read)
    _require_device(read)
    return read


def _require_directory(arguments: object) -> None:
    """Refuse an `--out` at or below a file before hours are spent on what is to go there."""
    for name, value in ((field.name, getattr(arguments, field.name)) for field in fields(cast(Any, arguments))):
        if is_dataclass(value):
            _require_directory(value)
            continue
        places = (value, *value.parents) if name == "out" and isinstance(value, Path) else ()
        if files := [place for place in places if place.is_file()]:
            raise ValueError(f"--out {value}: {files[0]} is a file, results need a directory")


def _require_device(arguments: object) -> None:
    """Refuse a `--device` of another kind without asking torch, which takes longer to import than the rest."""
    for name, value in ((field.name, getattr(arguments, field.name)) for field in fields(cast(Any, arguments))):
        if is_dataclass(value):
            _require_device(value)
        elif name == "device" and not re.fullmatch(r"auto|cpu|cuda(:\d{1,4})?", value):
            raise ValueError(f"--device {value}: no such device; give auto, cpu, cuda or cuda:1")


def peek(words: Sequence[str], option: str, read: Callable[[str], _T], otherwise: _T) -> _T:
    """The value of one option ahead of the rest, since defaults of others follow from it; bad values are left to `parse`."""
    scout = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    scout.add_argument(option, dest="value", default=None)
    try:
        found = scout.parse_known_args(list(words))[0].value
        return otherwise if found is None else read(found)
    except (argparse.ArgumentError, ValueError):
        return otherwise
