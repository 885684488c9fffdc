"""How a model, full or ablated, does on a task: predictions, scores per case, and their statistics."""

from hc_lens.forward import inference as inference
from hc_lens.metrics.cases import EncodedCases as EncodedCases
from hc_lens.metrics.cases import encode_cases as encode_cases
from hc_lens.metrics.forward_rows import predict as predict
from hc_lens.metrics.forward_rows import read_rows as read_rows
from hc_lens.metrics.forward_rows import read_rows_of_each as read_rows_of_each
from hc_lens.metrics.grouping import grouped as grouped
from hc_lens.metrics.scores import CaseScores as CaseScores
from hc_lens.metrics.scores import LabelOrderError as LabelOrderError
from hc_lens.metrics.scores import confidence as confidence
from hc_lens.metrics.scores import label_order as label_order
from hc_lens.metrics.scores import labels_of as labels_of
from hc_lens.metrics.scores import log_odds as log_odds
from hc_lens.metrics.scores import right_classes as right_classes
from hc_lens.metrics.scores import score as score
from hc_lens.metrics.statistics import Interval as Interval
from hc_lens.metrics.statistics import agreement as agreement
from hc_lens.metrics.statistics import bootstrap_interval as bootstrap_interval
from hc_lens.metrics.statistics import bootstrap_means as bootstrap_means
from hc_lens.metrics.statistics import calibration_error as calibration_error
from hc_lens.metrics.statistics import kl_to_full as kl_to_full
from hc_lens.metrics.statistics import percentile_interval as percentile_interval
from hc_lens.metrics.statistics import wilson_interval as wilson_interval
from hc_lens.metrics.table import evaluate as evaluate
from hc_lens.progress import progress as progress
