"""Comparisons of subnetworks and of the units in them."""

from hc_lens.analysis.ablation import ablate as ablate
from hc_lens.analysis.ablation import single_heads as single_heads
from hc_lens.analysis.controls import layer_matched_sets as layer_matched_sets
from hc_lens.analysis.effective_size import effective_size as effective_size
from hc_lens.analysis.effective_size import seed_sizes as seed_sizes
from hc_lens.analysis.effects import Ablation as Ablation
from hc_lens.analysis.grid_agreement import GridAgreement as GridAgreement
from hc_lens.analysis.grid_agreement import grid_agreement as grid_agreement
from hc_lens.analysis.null import NullResult as NullResult
from hc_lens.analysis.null import independent_size as independent_size
from hc_lens.analysis.overlap import Core as Core
from hc_lens.analysis.overlap import head_frequency as head_frequency
from hc_lens.analysis.overlap import heuristic_core as heuristic_core
from hc_lens.analysis.overlap import jaccard as jaccard
from hc_lens.analysis.overlap import joint_histogram as joint_histogram
from hc_lens.analysis.overlap import mlp_frequency as mlp_frequency
from hc_lens.analysis.overlap import spearman as spearman
from hc_lens.analysis.spread import spread as spread
from hc_lens.analysis.sweep import fall_gap as fall_gap
from hc_lens.analysis.sweep import falls_at as falls_at
from hc_lens.analysis.sweep import sparsity_trend as sparsity_trend
