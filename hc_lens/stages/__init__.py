"""The steps of the line as run directories: what each leaves, and how the next reads it; every step resumes."""

from hc_lens.stages.ablation import AblationTables, ablate_into, singles_into
from hc_lens.stages.attention import AttentionTables, attention_into
from hc_lens.stages.core import core_into, core_of, open_core, open_core_of
from hc_lens.stages.estimate import EstimateTables, estimate_into
from hc_lens.stages.evaluation import evaluate_into, evaluation_of, grid_evaluation, pruned_evaluation
from hc_lens.stages.interaction import InteractionTables, dependence_into, greedy_into, interactions_into, removal_into
from hc_lens.stages.kept import remembered
from hc_lens.stages.means import means_into, means_spec
from hc_lens.stages.outcomes import asked_seeds, collapsed_seeds, kept_outcome
from hc_lens.stages.path import PrunedPath, open_path, prune_path_into
from hc_lens.stages.pruned import Pruned, open_pruned, prune_into, pruned_outcome
from hc_lens.stages.reporting import QUESTION, report_inputs
from hc_lens.stages.rows import Measuring, Rows

__all__ = [
    "QUESTION",
    "AblationTables",
    "AttentionTables",
    "EstimateTables",
    "InteractionTables",
    "Measuring",
    "Pruned",
    "PrunedPath",
    "Rows",
    "ablate_into",
    "asked_seeds",
    "attention_into",
    "collapsed_seeds",
    "core_into",
    "core_of",
    "dependence_into",
    "estimate_into",
    "evaluate_into",
    "evaluation_of",
    "greedy_into",
    "grid_evaluation",
    "interactions_into",
    "kept_outcome",
    "means_into",
    "means_spec",
    "open_core",
    "open_core_of",
    "open_path",
    "open_pruned",
    "prune_into",
    "prune_path_into",
    "pruned_evaluation",
    "pruned_outcome",
    "remembered",
    "removal_into",
    "report_inputs",
    "singles_into",
]
