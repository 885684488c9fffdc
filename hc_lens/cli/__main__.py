"""`python -m hc_lens.cli`: the `hc-lens` command where it is not on the path."""

import sys

from hc_lens.cli import main

sys.exit(main())
