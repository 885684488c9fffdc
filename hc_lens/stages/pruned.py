"""A pruning run directory: pruned seed by seed, and read back.

It holds `subnetworks/seed-42.safetensors` (with the means once, in `subnetworks/means/`), `gates/`, `history/`, `outcome/`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pandas as pd
import torch

from hc_lens.forward import Inputs, device_of, inputs_of
from hc_lens.hooks import HookedModel
from hc_lens.means import ActivationMeans
from hc_lens.pruning import PruneConfig, PruneResult, prune
from hc_lens.pruning.objective import imitation
from hc_lens.pruning.training import data_order, runs_together
from hc_lens.runs import Run, RunError
from hc_lens.subnetwork import Subnetwork


@dataclass(frozen=True, eq=False)
class Pruned:
    """A finished pruning run: its directory, configuration, subnetworks in the order of their seeds, and what it warned of.

    `devices` are those that its seeds were trained on, where that is recorded.
    """

    run: Run
    config: PruneConfig
    subnetworks: tuple[Subnetwork, ...]
    warnings: tuple[str, ...]
    devices: tuple[str, ...] = ()

    @property
    def means(self) -> ActivationMeans:
        return self.subnetworks[0].means

    def with_targets(self, evaluation: pd.DataFrame) -> pd.DataFrame:
        """The evaluation of `subnetworks` with the sparsity that was asked for, as `target`."""
        return evaluation.assign(target=self.config.sparsity)

    def history(self) -> pd.DataFrame:
        """Target, sparsity, loss and multipliers at every step of every seed."""
        tables = [self.run.read_table(f"history/seed-{sub.seed}") for sub in self.subnetworks]
        return pd.concat(tables, ignore_index=True)


def prune_into(
    directory: Path, model: HookedModel, data: Inputs, means: ActivationMeans, config: PruneConfig, seeds: Sequence[int]
) -> Pruned:
    """Prune with every seed that the directory does not hold yet, keeping each group of seeds as soon as it is trained.

    Raises:
        RunError: if the directory holds another run, or another process works on it.
        MeansError, PruneError, ValueError: as `prune`.
    """
    encoded = inputs_of(model, data, config.max_length)
    spec = {
        "config": config.as_dict(),
        "seeds": list(seeds),
        "model": means.model,
        "data": encoded.fingerprint,
        "means": means.digest,
    }
    run = Run.at(directory, "prune", spec)
    with run.locked():
        missing = [seed for seed in seeds if not _subnetwork_file(run, seed).exists()]
        if missing:
            # The full model's predictions, computed once for all groups of seeds.
            loss = imitation(model, encoded, config, [data_order(encoded, config, seed) for seed in missing])
            together = runs_together(model, encoded, config)
            for start in range(0, len(missing), together):
                trained = prune(model, encoded, means, config, missing[start : start + together], loss)
                _keep(run, trained, _device_name(model))
        if not run.finished:
            run.finish()
    return open_pruned(directory)


def _device_name(model: HookedModel) -> str:
    device = device_of(model)
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _keep(run: Run, result: PruneResult, device: str) -> None:
    for i, sub in enumerate(result.subnetworks):
        mine = [text for text in result.warnings if text.startswith(f"seed {sub.seed}:")]
        run.write_table(f"history/seed-{sub.seed}", result.history[result.history["seed"] == sub.seed].reset_index(drop=True))
        run.write_tensors(f"gates/seed-{sub.seed}", {"log_alpha": result.log_alpha[i]})
        run.write_json(f"outcome/seed-{sub.seed}", {"warnings": mine, "device": device})
        sub.save(_subnetwork_file(run, cast(int, sub.seed)))  # last: its presence says that the seed is done


def _subnetwork_file(run: Run, seed: int) -> Path:
    return run.file(f"subnetworks/seed-{seed}", "safetensors")


def open_pruned(directory: Path, model: HookedModel | None = None) -> Pruned:
    """Read a pruning run back; with `model`, refuse one of another model.

    Raises:
        RunError: if the directory is not a finished pruning run.
        SubnetworkError, MeansError: if a subnetwork or its means are absent, damaged, or of another model.
    """
    run = Run.open(directory)
    if run.kind != "prune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a 'prune' run")
    if not run.finished:
        raise RunError(f"{directory} holds a pruning run that has not finished: start it again, it goes on where it stopped")
    seeds = cast("list[int]", run.spec["seeds"])
    subnetworks = tuple(Subnetwork.load(_subnetwork_file(run, seed), model) for seed in seeds)
    outcomes = [cast("dict[str, Any]", run.read_json(f"outcome/seed-{seed}")) for seed in seeds]
    devices = tuple(dict.fromkeys(outcome["device"] for outcome in outcomes if "device" in outcome))
    config = PruneConfig(**cast("dict[str, Any]", run.spec["config"]))
    return Pruned(run, config, subnetworks, tuple(text for outcome in outcomes for text in outcome["warnings"]), devices)
