"""What a first import costs, checked in a fresh interpreter."""

import subprocess
import sys

HEAVY = ("torch", "transformer_lens", "transformers", "pandas", "datasets", "numpy", "plotly")


def loaded_after(code: str) -> set[str]:
    """Which of the heavy modules a fresh interpreter has loaded after running `code`."""
    probe = f"{code}\nimport sys\nprint(*[name for name in {HEAVY!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert loaded_after("import hc_lens") == set()
