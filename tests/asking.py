"""Runs of models in memory, as questions are asked of them."""

from hc_lens.data import Task
from hc_lens.models import Classifier
from hc_lens.pruning import Pruned
from hc_lens.questions.opened import OpenRun


def opened(pruned: Pruned, model: Classifier, task: Task) -> OpenRun:
    """A pruning run of this model and these rows."""
    return OpenRun((pruned,), None, lambda: (model, task))
