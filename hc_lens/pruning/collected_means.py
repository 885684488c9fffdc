"""The means over a split as a run directory."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, cast

from hc_lens.runs import Run
from hc_lens.sample import Sample

if TYPE_CHECKING:
    from hc_lens.data.task import Split
    from hc_lens.hooks import HookedModel
    from hc_lens.means import Ablation as AblationKind
    from hc_lens.means import ActivationMeans


def means_spec(
    model: HookedModel, data: Split, *, rows: int | None, max_length: int, kind: AblationKind = "mean"
) -> dict[str, object]:
    """What decides the means that `means_into` collects, JSON-ready."""
    from hc_lens.models import fingerprint

    return {"model": fingerprint(model), "data": data.fingerprint, "rows": rows, "max_length": max_length, "kind": kind}


def means_are_kept(directory: Path) -> bool:
    """Whether the means that were collected into a directory are there."""
    run = Run.open(directory)
    return run.file("means", "json").exists() and (run.path / cast(str, run.read_json("means"))).exists()


def means_into(
    directory: Path, model: HookedModel, data: Split, *, rows: int | None, max_length: int, kind: AblationKind = "mean"
) -> ActivationMeans:
    """The means over random rows of a split (which may come sorted by source), collected once and read back.

    `rows` is how many, None for all. Another process that is collecting them is waited for.

    Raises:
        RunError: if the directory holds another run.
        MeansError: if the means kept there are damaged.
    """
    import torch

    from hc_lens.means import ActivationMeans

    run = Run.at(directory, "means", means_spec(model, data, rows=rows, max_length=max_length, kind=kind))
    with run.locked(wait=True):
        if run.finished and means_are_kept(directory):
            return ActivationMeans.load(run.path / cast(str, run.read_json("means")))
        shuffled = torch.randperm(len(data), generator=torch.Generator().manual_seed(0))
        sample = data.take(shuffled[:rows].tolist(), name=f"{data.name} sample")
        means = ActivationMeans.collect(model, sample, Sample(max_length=max_length), kind=kind)
        run.write_json("means", means.save(run.path).name)
        run.finish()
        return means
