"""What holds for every test: shapes and types checked over the whole package, no network, caches of their own, fixed seeds."""

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

# Set before torch, transformers and datasets are imported anywhere: each reads its environment once, at import.
_CACHE = tempfile.mkdtemp(prefix="hc-lens-tests-")
os.environ |= {
    "HF_HUB_OFFLINE": "1",
    "HF_HOME": _CACHE,
    "HF_DATASETS_CACHE": f"{_CACHE}/datasets",
    "TOKENIZERS_PARALLELISM": "false",
}
os.environ.setdefault("OMP_NUM_THREADS", "1")

from hypothesis import settings  # noqa: E402
from jaxtyping import install_import_hook  # noqa: E402

# Every annotation of the package is checked at run time, shapes included. Before the first import of hc_lens.
install_import_hook("hc_lens", "beartype.beartype")

settings.register_profile("untimed", deadline=None)  # how long an example takes says how busy the machine is
settings.load_profile("untimed")


def pytest_unconfigure() -> None:
    shutil.rmtree(_CACHE, ignore_errors=True)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip, with the reason, what this machine cannot run."""
    for item in items:
        if item.get_closest_marker("cuda") and not _has_cuda():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
        if item.get_closest_marker("chromium") and not (shutil.which("chromium") and shutil.which("chromedriver")):
            item.add_marker(pytest.mark.skip(reason="chromium and chromedriver are not installed"))


def _has_cuda() -> bool:
    import torch

    return torch.cuda.is_available()


@pytest.fixture(autouse=True)
def _seeds() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The corpora of the published protocol, where the machine has them."""
    from hc_lens.data.desk import data_folder

    folder = data_folder()
    if folder is None:
        pytest.skip("HC_LENS_DATA is not set: the MNLI and HANS files are not on this machine")
    return folder


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, so that a test sees every file a command leaves."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
