"""Heads ablated from a run's full model, row by row, kept so that no set is ablated twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hc_lens import analysis
from hc_lens.runs import digest

if TYPE_CHECKING:
    from collections.abc import Callable

    from hc_lens.questions.subject import Subject
    from hc_lens.runs import Run
    from hc_lens.sample import Sample


def single_ablations(run: Subject, sample: Sample) -> analysis.Ablation:
    """Every head of the full model ablated alone; kept as `singles.safetensors`."""
    home, sample = run.home, run.settled(sample)
    options = run.options(sample)
    with home.locked("singles", wait=True):
        found = kept_ablation(home, "singles", options)
        if found is None:
            found = analysis.ablate(run.model, run.task, run.means, analysis.single_heads(run.means), sample)
            _keep(home, "singles", found, options)
        return found


def further_ablations(
    run: Subject, sample: Sample, ablate: Callable[[analysis.Ablation], analysis.Ablation]
) -> analysis.Ablation:
    """What `ablate` makes of all sets ablated on these rows so far, single heads at least; kept as `joint.safetensors`."""
    options = run.options(sample)
    with run.home.locked("joint", wait=True):
        known = kept_ablation(run.home, "joint", options)
        found = ablate(single_ablations(run, sample) if known is None else known)
        _keep(run.home, "joint", found, options)
    return found


def kept_ablation(home: Run, name: str, options: dict[str, object]) -> analysis.Ablation | None:
    """The ablation that a run keeps under a name, if it is of these rows."""
    from hc_lens.analysis.stored import from_tensors

    if not home.file(name, "safetensors").exists() or home.read_metadata(name)["options"] != digest(options):
        return None
    return from_tensors(home.read_tensors(name), home.read_metadata(name))


def _keep(home: Run, name: str, found: analysis.Ablation, options: dict[str, object]) -> None:
    from hc_lens.analysis.stored import to_tensors

    tensors, metadata = to_tensors(found)
    home.write_tensors(name, tensors, metadata | {"options": digest(options)})
