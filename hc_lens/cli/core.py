"""`hc-lens core`: the heads that the subnetworks share."""

from functools import partial

from hc_lens.cli.ask import ask
from hc_lens.questions import HeuristicCore

main = partial(ask, HeuristicCore, "core")
