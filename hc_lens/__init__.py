"""Which subnetwork of a fine-tuned language model does what, and how it generalizes.

The public names below are imported on first use: `import hc_lens` itself loads neither torch nor TransformerLens.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hc_lens.analysis.ablation import ablate
    from hc_lens.analysis.overlap import heuristic_core
    from hc_lens.data import load_task, synthetic_nli
    from hc_lens.data.batches import Batch, encode
    from hc_lens.data.task import Split, Task
    from hc_lens.hooks import Edit, captured, hooked
    from hc_lens.means import ActivationMeans
    from hc_lens.metrics import evaluate, predict
    from hc_lens.models import load_model
    from hc_lens.prune import PruneConfig, PruneResult, prune
    from hc_lens.report import write_report
    from hc_lens.runs import Run
    from hc_lens.subnetwork import Subnetwork
    from hc_lens.train import TrainConfig, finetune
    from hc_lens.units import Head, Mlp, parse

__version__ = "0.1.0"

_HOME = {
    "ActivationMeans": "means",
    "Batch": "data.batches",
    "Edit": "hooks",
    "Head": "units",
    "Mlp": "units",
    "PruneConfig": "prune",
    "PruneResult": "prune",
    "Run": "runs",
    "Split": "data.task",
    "Subnetwork": "subnetwork",
    "Task": "data.task",
    "TrainConfig": "train",
    "ablate": "analysis.ablation",
    "captured": "hooks",
    "encode": "data.batches",
    "evaluate": "metrics",
    "finetune": "train",
    "heuristic_core": "analysis.overlap",
    "hooked": "hooks",
    "load_model": "models",
    "load_task": "data",
    "parse": "units",
    "predict": "metrics",
    "prune": "prune",
    "synthetic_nli": "data",
    "write_report": "report",
}
"""The module that each public name is taken from."""

__all__ = [
    "ActivationMeans",
    "Batch",
    "Edit",
    "Head",
    "Mlp",
    "PruneConfig",
    "PruneResult",
    "Run",
    "Split",
    "Subnetwork",
    "Task",
    "TrainConfig",
    "ablate",
    "captured",
    "encode",
    "evaluate",
    "finetune",
    "heuristic_core",
    "hooked",
    "load_model",
    "load_task",
    "parse",
    "predict",
    "prune",
    "synthetic_nli",
    "write_report",
]

if not TYPE_CHECKING:  # so that a type checker still reports a misspelt name

    def __getattr__(name: str) -> object:
        if name not in _HOME:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Keeps a public function apart from the submodule of the same name.

    Importing `hc_lens.prune` would bind the submodule as the package's attribute `prune`, over the function that a notebook
    calls as `hc_lens.prune(...)`; whether it did would depend on what was imported before.
    """

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _HOME and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
