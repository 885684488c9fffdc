"""What fine-tuning leaves on disk: weights at every checkpoint, and the one state that goes on from the newest."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hc_lens.data.stored import save_task
from hc_lens.origin import Checkpoint, Origin
from hc_lens.runs import Run, RunError
from hc_lens.sample import Sample

if TYPE_CHECKING:
    import pandas as pd
    import torch
    from torch import Tensor
    from transformer_lens import HookedRootModule

    from hc_lens.data.task import Task


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
        RunError: if the directory is not a fine-tuning run, or its checkpoints were not all evaluated alike.
    """
    import pandas as pd

    run = _open(directory)
    names = [file.stem for file in sorted(run.path.glob("evaluation/step-*.parquet"))]
    options = {name: _options_of(run, name) for name in names}
    if other := [name for name in names if options[name] != options[names[-1]]]:
        raise RunError(
            f"{directory}: evaluation/{other[0]} and {names[-1]} are of different rows or options ({options[other[0]]}, "
            f"{options[names[-1]]}): start the fine-tuning again, it evaluates what is left"
        )
    tables = [run.read_table(f"evaluation/{name}") for name in names]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame()


def is_evaluated(run: Run, step: int, options: Mapping[str, object] | None) -> bool:
    """Whether a checkpoint has a table computed with these options; None: whatever they were."""
    there = run.file(f"evaluation/{name_of(step)}", "parquet").exists()
    return there and (options is None or _options_of(run, name_of(step)) == _told(options))


def keep_evaluation(run: Run, step: int, table: pd.DataFrame, options: Mapping[str, object] | None) -> None:
    """Keep a checkpoint's table with the options it was computed with, if they are known, in the place of another."""
    name = f"evaluation/{name_of(step)}"
    run.file(f"{name}.options", "json").unlink(missing_ok=True)  # a kill must not leave old options beside a new table
    run.write_table(name, table)
    if options is not None:
        run.write_json(f"{name}.options", dict(options))


def _options_of(run: Run, name: str) -> object:
    """The options of a checkpoint's table; None where an earlier version, or a caller, did not tell them."""
    known = run.file(f"evaluation/{name}.options", "json").exists()
    found = run.read_json(f"evaluation/{name}.options") if known else None
    return _told(cast("dict[str, object]", found)) if isinstance(found, dict) else found


def _told(options: Mapping[str, object]) -> dict[str, object]:
    """Options but for those that say what goes without saying: earlier versions told them, or not."""
    usual = asdict(Sample())
    return {name: value for name, value in options.items() if name not in usual or value != usual[name]}


def _open(directory: Path) -> Run:
    run = Run.open(directory)
    if run.kind != "finetune":
        raise RunError(f"{directory} holds a {run.kind!r} run, not a fine-tuning run")
    return run


def keep_rows(run: Run, task: Task) -> None:
    """The task as it is trained on, in `task/`: what becomes of the files it was read from matters no more."""
    save_task(task, run.path / "task")


def keep_model(run: Run, model: HookedRootModule) -> None:
    """The trained model in `model/`, in transformers format, and both places in `origin.json`; for a classifier only.

    A model that is not whole, or not what was trained, is written again.
    """
    from hc_lens.models import Classifier

    if not isinstance(model, Classifier) or model.remains is not None:
        return
    try:
        origin = Origin.of(run)
        origin.require_weights()
        kept = origin.model == run.path / "model" and (run.path / "model" / "config.json").is_file()
    except RunError:
        kept = False
    if not kept and (run.path / "model" / "config.json").is_file():
        model.save_pretrained(run.path / "model")
    run.directory("model", "config.json", model.save_pretrained)
    Origin.at(run.path / "model", run.path / "task", finetuned=run.path).store(run)


def name_of(step: int) -> str:
    """The name of a checkpoint's files; in the order of steps when sorted."""
    return f"step-{step:06d}"


def checkpoint_of(run: Run, step: int) -> Checkpoint:
    """The checkpoint of a run at a step, whether it is there yet or not."""
    return Checkpoint(step, run.file(f"checkpoints/{name_of(step)}", "safetensors"))


def cuda_devices(model: HookedRootModule) -> list[torch.device]:
    """The devices with a random state of their own that the model draws from, besides the CPU."""
    from hc_lens.forward import device_of

    return [device] if (device := device_of(model)).type == "cuda" else []


def keep(run: Run, model: HookedRootModule, optimizer: torch.optim.Optimizer, step: int) -> None:
    """Write the weights, then the state that goes on from them: a kill in between repeats the steps since the last state."""
    run.write_tensors(f"checkpoints/{name_of(step)}", model.state_dict())
    run.write_tensors("resume", _state(model, optimizer), {"step": str(step)})


def _state(model: HookedRootModule, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """All that decides the next step besides the weights: the optimizer's moments and the random state of dropout."""
    import torch

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


def whole(run: Run, steps: Sequence[int]) -> bool:
    """Whether a run has finished and holds its checkpoints at these steps; without one it is to be trained again."""
    if run.finished and (missing := _missing(run, steps)):
        warnings.warn(f"{missing[0].path} is gone: {run.path} is trained again from the start", stacklevel=2)
        run.unfinish()
    return run.finished


def _missing(run: Run, steps: Sequence[int]) -> list[Checkpoint]:
    kept = [checkpoint_of(run, step) for step in steps]
    return [checkpoint for checkpoint in kept if not checkpoint.path.exists()]


def resume(run: Run, model: HookedRootModule, optimizer: torch.optim.Optimizer, steps: Sequence[int]) -> int:
    """Take up the newest kept state; the step it was kept at, 0 when there is none, or a checkpoint before it is gone.

    `steps` are those of the checkpoints of the whole run.
    """
    import torch

    kept = run.file("resume", "safetensors").exists()
    step = int(run.read_metadata("resume")["step"]) if kept else 0
    if kept and (missing := _missing(run, [each for each in steps if each <= step])):
        warnings.warn(f"{missing[0].path} is gone: {run.path} is trained again from the start", stacklevel=2)
        kept = False
    if not kept:
        run.file("resume", "safetensors").unlink(missing_ok=True)
        run.rewind(-1)  # what a killed call logged at step 0 is logged again
        return 0
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
