"""What holds for every test: shapes and types checked over the whole package, no network, caches of their own, fixed seeds."""

import ast
import os
import random
import shutil
import tempfile
from collections.abc import Generator
from pathlib import Path

import pytest
from filelock import FileLock

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
from jaxtyping._import_hook import JaxtypingTransformer  # noqa: E402

_checked = JaxtypingTransformer.visit_FunctionDef


def _outermost(self: JaxtypingTransformer, node: ast.FunctionDef) -> ast.FunctionDef:
    """Functions inside functions stay as they are: their checks would be compiled anew at each call of the outer one."""
    inside = any(isinstance(parent, ast.FunctionDef) for parent in self._parents)
    return node if inside else _checked(self, node)


def _for_real(self: JaxtypingTransformer, node: ast.If) -> ast.If:
    """What only annotations need is imported here, or they could not be checked: `if TYPE_CHECKING` holds."""
    if isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        node.test = ast.copy_location(ast.Constant(True), node.test)
    self.generic_visit(node)
    return node


# Every annotation of the package's functions is checked at run time, shapes included. Before the first import of hc_lens.
JaxtypingTransformer.visit_FunctionDef = _outermost
JaxtypingTransformer.visit_If = _for_real  # pyright: ignore
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


@pytest.fixture(autouse=True, scope="session")
def _no_machine_decides() -> Generator[None]:
    """`auto` is fp32 unless a test says otherwise: what a machine is faster in must not decide what a test sees."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hc_lens.machine.bf16_speedup", lambda products: 1.0)
        yield


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The corpora of the published protocol, where the machine has them."""
    from hc_lens.data.desk import data_folder

    folder = data_folder()
    if folder is None:
        pytest.skip("HC_LENS_DATA is not set: the MNLI and HANS files are not on this machine")
    return folder


FP32 = ("--precision", "fp32")
FINETUNE = ("--limit", "300", "--steps", "20", "--batch-size", "16", "--checkpoint-every", "10", "--eval-rows", "10", *FP32)
PRUNE = ("--steps", "20", "--gate-std", "2", "--batch-size", "8", *FP32, "--seeds", "42..44", "--means-rows", "50")


@pytest.fixture(scope="session")
def first_line(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model fine-tuned (`ft`) and pruned with three seeds (`pruned`) by commands, once for all test processes."""
    from hc_lens.cli import main

    own = tmp_path_factory.getbasetemp()
    place = (own.parent if os.environ.get("PYTEST_XDIST_WORKER") else own) / "line"
    with FileLock(f"{place}.lock"):
        if not place.exists():  # moved into place when it is whole
            making = tmp_path_factory.mktemp("making")
            assert main(["finetune", *FINETUNE, "--out", str(making / "ft")]) == 0
            assert main(["prune", str(making / "ft"), *PRUNE, "--out", str(making / "pruned")]) == 0
            making.rename(place)
    return place


@pytest.fixture(scope="module")
def line(first_line: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of that folder for the tests of one file, to write in."""
    return Path(shutil.copytree(first_line, tmp_path_factory.mktemp("copy") / "line"))


@pytest.fixture
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current directory, so that a test sees every file a command leaves."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
