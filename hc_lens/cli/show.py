"""`hc-lens show`: what a run directory holds."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from hc_lens.cli import output
from hc_lens.cli.options import RunPath, parse
from hc_lens.precision import told
from hc_lens.pruning import asked_seeds, collapsed_seeds, kept_evaluation, kept_outcome
from hc_lens.pruning.advice import collapse_told
from hc_lens.questions.accuracy import group_means
from hc_lens.questions.kept_core import open_core
from hc_lens.runs import Run, RunError

_DIGEST = re.compile(r"[0-9a-f]{64}(\[:\d+\])?")


@dataclass(frozen=True)
class Arguments:
    """What a run directory holds: its kind, its configuration, its headline numbers."""

    run: RunPath
    """Any run directory."""
    debug: bool = False
    """Show the traceback of an error."""


def main(words: Sequence[str]) -> None:
    """Print it."""
    args = parse(Arguments, "show", words)
    run = Run.open(args.run)
    print(f"{run.path}: a {run.kind!r} run, {'finished' if run.finished else 'not finished'}, digest {run.digest[:12]}")
    for title, values in (("made with", {**run.provenance, **told(run)}), ("specification", run.spec)):
        print(f"\n{title}")
        for name, value in _flat(values):
            print(f"  {name} = {_short(value)}")
    print("\nresults")
    for line in _results(run):
        print(f"  {line}")


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(cast("dict[str, object]", value), f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _short(value: object) -> object:
    """Digests by their first 12 digits, as file names have them."""
    return value[:12] if isinstance(value, str) and _DIGEST.fullmatch(value) else value


def _results(run: Run) -> Iterator[str]:
    from hc_lens.train import evaluations

    if run.kind == "finetune" and not (found := evaluations(run.path)).empty:
        yield output.training_headline(found)
    if run.kind in ("prune", "prune-path") and (collapsed := collapsed_seeds(run)):
        yield collapse_told(collapsed, len(asked_seeds(run)))
        yield kept_outcome(run)
    if run.kind == "prune" and run.finished and run.file("evaluation/full", "parquet").exists():
        table = kept_evaluation(run)
        if not (pruned := table[table["subnetwork"] != "full"]).empty:
            yield f"subnetworks: {group_means(pruned)}"
    if run.file("core", "json").exists():
        try:
            yield open_core(run).short
        except RunError as error:
            yield str(error)
    for file in sorted(path for path in run.path.iterdir() if path.name != "run.json" and not path.name.startswith(".lock")):
        yield f"{file.name}{'/' if file.is_dir() else ''}"
