"""Figures of a study: a table in, a plotly Figure out; nothing here loads a run or computes a result.

Every figure carries its own template (no global theme is set), a palette that colour-blind readers can tell apart, and text
from the data escaped. The shape of the table it takes stands in each docstring.
"""

from hc_lens.figures.accuracy import strip, training_curves
from hc_lens.figures.attention import attention_map
from hc_lens.figures.compare import frequency_scatter, jaccard_heatmap
from hc_lens.figures.dependents import dependence
from hc_lens.figures.development import core_entry, core_head_development
from hc_lens.figures.effective_size import accuracy_vs_sparsity, effective_size_curves
from hc_lens.figures.effects import ablation_bars, additivity
from hc_lens.figures.emergence import emergence_curves
from hc_lens.figures.greedy import greedy_path
from hc_lens.figures.heads import head_heatmap, joint_histogram
from hc_lens.figures.interaction import interaction_matrix
from hc_lens.figures.profiles import PROFILES, attention_dots, head_profiles
from hc_lens.figures.style import PALETTE, TEMPLATE

__all__ = [
    "PALETTE",
    "PROFILES",
    "TEMPLATE",
    "ablation_bars",
    "accuracy_vs_sparsity",
    "additivity",
    "attention_dots",
    "attention_map",
    "core_entry",
    "core_head_development",
    "dependence",
    "effective_size_curves",
    "emergence_curves",
    "frequency_scatter",
    "greedy_path",
    "head_heatmap",
    "head_profiles",
    "interaction_matrix",
    "jaccard_heatmap",
    "joint_histogram",
    "strip",
    "training_curves",
]
