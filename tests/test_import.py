"""What a first import costs, and which names the package offers, checked in a fresh interpreter."""

import importlib
import pkgutil
import subprocess
import sys

import pytest

import hc_lens

HEAVY = ("torch", "transformer_lens", "transformers", "pandas", "datasets", "numpy", "plotly", "tyro")


def output_of(code: str) -> list[str]:
    """The words that a fresh interpreter prints last when it runs `code`."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize("code", ["import hc_lens", "from hc_lens.cli import main; main(['--help'])"])
def test_nothing_heavy_is_loaded_by_the_package_or_by_help(code: str) -> None:
    assert output_of(f"{code}\nimport sys\nprint('loaded', *[name for name in {HEAVY!r} if name in sys.modules])") == ["loaded"]


def test_every_public_name_is_the_object_of_its_home_module() -> None:
    assert sorted(hc_lens._HOME) == hc_lens.__all__ == sorted(hc_lens.__all__)
    for name, home in hc_lens._HOME.items():
        assert getattr(hc_lens, name) is getattr(importlib.import_module(f"hc_lens.{home}"), name)
    assert set(hc_lens.__all__) <= set(dir(hc_lens))


def test_no_public_name_is_also_a_submodule() -> None:
    """Importing a submodule binds it on the package: a function of the same name would be hidden once that was imported."""
    submodules = {module.name for module in pkgutil.iter_modules(hc_lens.__path__)}
    assert not submodules & set(hc_lens.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'load_modle'"):
        _ = hc_lens.load_modle  # type: ignore[attr-defined]
