"""Which subnetwork of a fine-tuned language model does what, and how it generalizes.

The public names below are imported on first use: `import hc_lens` itself loads neither torch nor TransformerLens.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hc_lens.analysis import (
        ablate,
        attention_pattern,
        attention_scores,
        compare_runs,
        core_emergence,
        core_pairs,
        dependence_on,
        effective_size,
        first_order_effects,
        greedy_sets,
        grid_agreement,
        heuristic_core,
        in_subnetworks,
        interactions,
        onset,
        rank_correlation,
        shared_over,
        single_heads,
        whole_before_onset,
    )
    from hc_lens.data import Batch, Columns, Split, Task, encode, load_task, synthetic_nli
    from hc_lens.hooks import Edit, captured, hooked
    from hc_lens.means import ActivationMeans
    from hc_lens.metrics import evaluate, predict
    from hc_lens.models import load_compact, load_model, minilm_directory, new_model
    from hc_lens.origin import Origin
    from hc_lens.pruning import PruneConfig, PruneResult, prune
    from hc_lens.report import ReportInputs, write_report
    from hc_lens.runs import Run
    from hc_lens.study import StudyConfig, embedded_model, run_study
    from hc_lens.subnetwork import Subnetwork
    from hc_lens.train import TrainConfig, finetune
    from hc_lens.units import Head, Mlp, parse

__version__ = "0.1.0"

_HOME = {
    "ActivationMeans": "means",
    "Batch": "data",
    "Columns": "data",
    "Edit": "hooks",
    "Head": "units",
    "Mlp": "units",
    "Origin": "origin",
    "PruneConfig": "pruning",
    "PruneResult": "pruning",
    "ReportInputs": "report",
    "Run": "runs",
    "Split": "data",
    "StudyConfig": "study",
    "Subnetwork": "subnetwork",
    "Task": "data",
    "TrainConfig": "train",
    "ablate": "analysis",
    "attention_pattern": "analysis",
    "attention_scores": "analysis",
    "captured": "hooks",
    "compare_runs": "analysis",
    "core_emergence": "analysis",
    "core_pairs": "analysis",
    "dependence_on": "analysis",
    "effective_size": "analysis",
    "embedded_model": "study",
    "encode": "data",
    "evaluate": "metrics",
    "finetune": "train",
    "first_order_effects": "analysis",
    "greedy_sets": "analysis",
    "grid_agreement": "analysis",
    "heuristic_core": "analysis",
    "hooked": "hooks",
    "in_subnetworks": "analysis",
    "interactions": "analysis",
    "load_compact": "models",
    "load_model": "models",
    "load_task": "data",
    "minilm_directory": "models",
    "new_model": "models",
    "onset": "analysis",
    "parse": "units",
    "predict": "metrics",
    "prune": "pruning",
    "rank_correlation": "analysis",
    "run_study": "study",
    "shared_over": "analysis",
    "single_heads": "analysis",
    "synthetic_nli": "data",
    "whole_before_onset": "analysis",
    "write_report": "report",
}
"""The module that each public name is taken from."""

__all__ = [
    "ActivationMeans",
    "Batch",
    "Columns",
    "Edit",
    "Head",
    "Mlp",
    "Origin",
    "PruneConfig",
    "PruneResult",
    "ReportInputs",
    "Run",
    "Split",
    "StudyConfig",
    "Subnetwork",
    "Task",
    "TrainConfig",
    "ablate",
    "attention_pattern",
    "attention_scores",
    "captured",
    "compare_runs",
    "core_emergence",
    "core_pairs",
    "dependence_on",
    "effective_size",
    "embedded_model",
    "encode",
    "evaluate",
    "finetune",
    "first_order_effects",
    "greedy_sets",
    "grid_agreement",
    "heuristic_core",
    "hooked",
    "in_subnetworks",
    "interactions",
    "load_compact",
    "load_model",
    "load_task",
    "minilm_directory",
    "new_model",
    "onset",
    "parse",
    "predict",
    "prune",
    "rank_correlation",
    "run_study",
    "shared_over",
    "single_heads",
    "synthetic_nli",
    "whole_before_onset",
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
