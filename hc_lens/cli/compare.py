"""`hc-lens compare`: pruning runs side by side."""

from functools import partial

from hc_lens.cli.ask import ask
from hc_lens.questions import Compare

main = partial(ask, Compare, "compare")
