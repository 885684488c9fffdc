"""A file that a message names for deletion is made again when it is deleted: every file that a finished run leaves."""

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from hc_lens.data import Task, synthetic_nli
from hc_lens.data.stored import save_task
from hc_lens.origin import Origin
from hc_lens.pruning import PruneConfig, means_into, open_pruned, prune_into, prune_path_into
from hc_lens.questions import (
    Ablation,
    Accuracy,
    Attention,
    AttentionMap,
    Dependence,
    Estimate,
    Greedy,
    HeuristicCore,
    Pairs,
    Removal,
)
from hc_lens.sample import Measuring, Sample
from hc_lens.study import embedded_model, finetune_study
from hc_lens.sweep import Pool, PruneJob, run_jobs
from hc_lens.train import TrainConfig
from hc_lens.units import Head
from tests.asking import opened
from tests.contents import contents

_PRUNE = replace(PruneConfig.desk(0.5, steps=4), batch_size=4, gate_std=2.0, max_length=32, memory_gib=1e-6, precision="fp32")
"""Every seed is trained by itself: one that is trained again has the same bits."""
_HEADS = (Head(0, 1), Head(1, 2))


def small() -> Task:
    return synthetic_nli(n_train=60, n_id=6, n_ood_per_case=2)


def finetuned(root: Path) -> None:
    train = TrainConfig(steps=4, batch_size=8, warmup_steps=1, max_length=32, checkpoint_every=2, precision="fp32")
    finetune_study(embedded_model(), small(), train, root, rows=2, precision="fp32")


def pruned(root: Path) -> None:
    model, task = embedded_model(), small()
    means = means_into(root / "means", model, task.train, rows=10, max_length=32)
    prune_into(root / "pruned", model, task.train, means, _PRUNE, [42, 43])


def path(root: Path) -> None:
    model, task = embedded_model(), small()
    means = means_into(root / "means", model, task.train, rows=10, max_length=32)
    prune_path_into(root / "path", model, task.train, means, _PRUNE, (0.3, 0.5), [42])


def measured(root: Path) -> None:
    run = opened(open_pruned(root / "pruned"), embedded_model(), small())
    kept = tuple(run.subnetworks[0].heads)
    for question in (
        *(Accuracy(), Attention(_HEADS), AttentionMap(_HEADS), HeuristicCore(1, 10), Ablation(_HEADS, 2), Pairs(_HEADS, 2)),
        *(Greedy(1, heads=_HEADS, controls=2), Removal(kept), Dependence(_HEADS, 2), Estimate()),
    ):
        run.ask(question, Sample(2))


def swept(root: Path) -> None:
    source = Origin.at(root / "finetune" / "model", save_task(small(), root / "task"))
    job = PruneJob(source, root / "swept", root / "swept-means", _PRUNE, (42,), Measuring(10, 2))
    run_jobs(root, [job], Pool(1, device="cpu"))


_TABLES = ["attention", "attention_groups", "profiles", "effects", "additivity", "interactions", "domains", "greedy", "removal"]
_TABLES += [
    "dependence",
    "attention_pair",
    "estimates",
    "agreement",
    "evaluation/full",
    "evaluation/seed-42",
    "evaluation/seed-43",
]
_OPTIONS = [name for name in _TABLES if name not in ("attention_groups", "profiles", "effects", "interactions", "agreement")]
_SEEDS = ["gates/seed-42.safetensors", "history/seed-42.parquet", "outcome/seed-42.json", "subnetworks/seed-42.safetensors"]

CASES: dict[str, tuple[Callable[[Path], None], ...]] = {
    **{f"finetune/checkpoints/step-00000{step}.safetensors": (finetuned,) for step in (0, 2, 4)},
    **{f"finetune/evaluation/step-00000{step}.parquet": (finetuned,) for step in (0, 2, 4)},
    **{f"finetune/evaluation/step-00000{step}.options.json": (finetuned,) for step in (0, 2, 4)},
    "finetune/origin.json": (finetuned,),
    "finetune/task/pairs.parquet": (finetuned,),
    "finetune/task/task.json": (finetuned,),
    "finetune/model": (finetuned,),
    "finetune/model/config.json": (finetuned,),
    **{f"means/{name}": (pruned,) for name in ("means.json", "*.safetensors")},
    **{f"pruned/{name}": (pruned,) for name in (*_SEEDS, "seeds.json", "subnetworks/means/*.safetensors")},
    **{f"pruned/{name}.parquet": (measured,) for name in _TABLES},
    **{f"pruned/{name}.options.json": (measured,) for name in _OPTIONS},
    **{f"pruned/{name}.safetensors": (measured,) for name in ("singles", "joint")},
    "pruned/core.json": (measured,),
    "pruned/task.json": (measured,),
    "path/history/seed-42.parquet": (path,),
    "path/outcome/seed-42.json": (path,),
    "path/subnetworks/seed-42.at-0.3.safetensors": (path,),
    "path/subnetworks/seed-42.at-0.5.safetensors": (path,),
    "path/subnetworks/means/*.safetensors": (path,),
    "path/seeds.json": (path,),
    "swept/origin.json": (swept,),
    "swept/task.json": (swept,),
    "task/pairs.parquet": (swept,),
    "task/task.json": (swept,),
    "sweep-*/plan.json": (swept,),
    "sweep-*/jobs/*/seconds.json": (swept,),
    **{f"swept/{name}": (swept,) for name in (*_SEEDS, "seeds.json", "subnetworks/means/*.safetensors")},
    **{
        f"swept/evaluation/{name}": (swept,)
        for name in ("full.parquet", "seed-42.parquet", "full.options.json", "seed-42.options.json")
    },
    **{f"swept-means/{name}": (swept,) for name in ("means.json", "*.safetensors")},
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("finished")
    for stage in (finetuned, pruned, path, measured, swept):
        stage(root)
    return root


_QUICK = ("finetune/model", "means/*.safetensors", "pruned/outcome/seed-42.json", "pruned/effects.parquet", "sweep-*/plan.json")


@pytest.mark.parametrize("name", [pytest.param(name, marks=() if name in _QUICK else pytest.mark.slow) for name in CASES])
def test_what_is_deleted_is_made_again(name: str, finished: Path, tmp_path: Path) -> None:
    root = tmp_path / "copy"
    shutil.copytree(finished, root, copy_function=shutil.copy)
    (place,) = root.glob(name)
    before = contents(place)
    shutil.rmtree(place) if place.is_dir() else place.unlink()
    for stage in CASES[name]:
        stage(root)
    if place.name == "joint.safetensors":  # what is known already of sets: a question that is answered needs none of it
        return
    assert place.exists(), "made again"
    if place.name != "seconds.json":
        assert contents(place) == before
    assert not [each for each in root.rglob(".*") if not each.name.startswith(".lock")]


def test_every_file_of_the_runs_is_among_the_cases(finished: Path) -> None:
    """But for what says what a run is, what auto came to in it and that it has ended, its log, and the files of a model."""
    apart = ("run.json", "finished.json", "precision.json", "metrics.jsonl", "logs", "model/*")
    left = [
        file.relative_to(finished)
        for file in finished.rglob("*")
        if file.is_file() and not file.name.startswith(".lock") and not any(file.match(each) for each in apart)
    ]
    names = [Path(*(part.replace("seed-43", "seed-42") for part in file.parts)) for file in left]
    assert not [name for name in names if not any(name.match(case) for case in CASES)]
