"""What fine-tuning leaves on disk: weights at every checkpoint, and the one state that goes on from the newest."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

import pandas as pd
import torch
from torch import Tensor
from transformer_lens import HookedRootModule

from hc_lens.atomic import read_tensors
from hc_lens.forward import device_of
from hc_lens.runs import Run, RunError


@dataclass(frozen=True)
class Checkpoint:
    """A model's weights after `step` updates, in TransformerLens's names, as safetensors."""

    step: int
    path: Path

    @property
    def finetuned(self) -> Path:
        """The fine-tuning run it is of."""
        return self.path.parents[1]

    def load_into(self, model: HookedRootModule) -> None:
        """Give `model` these weights.

        Raises:
            RunError: if the file is missing, damaged, or of another architecture.
        """
        try:
            model.load_state_dict(read_tensors(self.path))
        except RuntimeError as error:
            raise RunError(f"{self.path} is not of this model ({type(model).__name__}): {error}") from error


def checkpoints(directory: Path) -> list[Checkpoint]:
    """The checkpoints of a fine-tuning run so far, in order of their steps.

    Raises:
        RunError: if the directory is not a fine-tuning run.
    """
    return [
        Checkpoint(int(file.stem.removeprefix("step-")), file)
        for file in sorted(_open(directory).path.glob("checkpoints/step-*"))
    ]


def evaluations(directory: Path) -> pd.DataFrame:
    """The evaluation at every checkpoint so far, as one table with a `step` column (empty when nothing was evaluated).

    Raises:
        RunError: if the directory is not a fine-tuning run.
    """
    run = _open(directory)
    tables = [run.read_table(f"evaluation/{file.stem}") for file in sorted(run.path.glob("evaluation/step-*"))]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def _open(directory: Path) -> Run:
    run = Run.open(directory)
    if run.kind != "finetune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a fine-tuning run")
    return run


def name_of(step: int) -> str:
    """The name of a checkpoint's files; in the order of steps when sorted."""
    return f"step-{step:06d}"


def checkpoint_of(run: Run, step: int) -> Checkpoint:
    """The checkpoint of a run at a step, whether it is there yet or not."""
    return Checkpoint(step, run.file(f"checkpoints/{name_of(step)}", "safetensors"))


def cuda_devices(model: HookedRootModule) -> list[torch.device]:
    """The devices with a random state of their own that the model draws from, besides the CPU."""
    return [device] if (device := device_of(model)).type == "cuda" else []


def keep(run: Run, model: HookedRootModule, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write the weights, then the state that goes on from them: a kill in between repeats the steps since the last state."""
    run.write_tensors(f"checkpoints/{name_of(step)}", model.state_dict())
    run.write_tensors("resume", _state(model, optimizer), {"step": str(step)})


def _state(model: HookedRootModule, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that decides the next step besides the weights: the optimizer's moments and the random state of dropout."""
    names = _names(model, optimizer)
    tensors = {
        f"optimizer/{names[index]}/{key}": value
        for index, moments in cast("dict[int, dict[str, Tensor]]", optimizer.state_dict()["state"]).items()
        for key, value in moments.items()
    }
    tensors["random/cpu"] = torch.get_rng_state()
    for device in cuda_devices(model):
        tensors["random/cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def _names(model: HookedRootModule, optimizer: torch.optim.Optimizer) -> list[str]:
    """The weights' names in the optimizer's order, which goes by its groups."""
    name_of_weight = {weight: name for name, weight in model.named_parameters()}
    return [name_of_weight[weight] for group in optimizer.param_groups for weight in group["params"]]


def resume(run: Run, model: HookedRootModule, optimizer: torch.optim.Optimizer) -> int:
    """Take up the newest kept state; the step it was kept at, 0 when there is none."""
    if not run.file("resume", "safetensors").exists():
        run.rewind(0)
        return 0
    step = int(run.read_metadata("resume")["step"])
    stored = run.read_tensors("resume")
    checkpoint_of(run, step).load_into(model)
    state: dict[int, dict[str, Tensor]] = {}
    index = {name: i for i, name in enumerate(_names(model, optimizer))}
    for place, value in stored.items():
        kind, _, rest = place.partition("/")
        if kind == "optimizer":
            name, key = rest.rsplit("/", 1)
            state.setdefault(index[name], {})[key] = value
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
    torch.set_rng_state(stored["random/cpu"])
    for device in cuda_devices(model):
        torch.cuda.set_rng_state(stored["random/cuda"], device)
    run.rewind(step)
    return step
