"""What a first import and a command that computes nothing load, and which names the packages offer; in fresh interpreters."""

import ast
import importlib
import json
import pkgutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

import hc_lens
from hc_lens.cli import COMMANDS, main, modular, relations
from tests.conftest import PRUNE

HEAVY = ("torch", "transformer_lens", "transformers", "datasets", "scipy", "sklearn", "pandas", "sympy")
"""What takes longer to import than a command that only explains itself may take."""

MODELS = ("transformer_lens", "transformers", "datasets")
"""What reading measured tables needs none of."""

COMPUTING = ("torch", *MODELS)

_EACH = """
import contextlib, io, json, sys
from hc_lens.cli import main
for words in json.loads(sys.argv[1]):
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
    print(json.dumps([code, [name for name in sys.argv[2:] if name in sys.modules], said.getvalue()]))
"""


class Outcome(NamedTuple):
    """Of a command: its exit code, which of the libraries were loaded after it, and what it said."""

    code: int
    loaded: list[str]
    said: str


def loaded_by(commands: list[list[str]], libraries: tuple[str, ...]) -> list[Outcome]:
    """What became of each command, one after the other in one fresh interpreter."""
    words = [sys.executable, "-c", _EACH, json.dumps(commands), *libraries]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return [Outcome(*json.loads(line)) for line in done.stdout.splitlines()]


def test_the_package_itself_loads_nothing_heavy() -> None:
    names = (*HEAVY, "numpy", "plotly", "tyro")
    code = f"import hc_lens, sys\nprint('loaded', *[name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["loaded"]


def test_help_of_every_command_loads_nothing_heavy() -> None:
    asked = {"modular": modular.QUESTIONS, "relations": relations.QUESTIONS}
    every = [[], *([name] for name in COMMANDS), *([name, question] for name, of in asked.items() for question in of.commands)]
    for words, (code, loaded, said) in zip(every, loaded_by([[*words, "--help"] for words in every], HEAVY), strict=True):
        assert (code, loaded) == (0, []), (words, said)
        assert "usage: hc-lens" in said


@pytest.mark.parametrize(
    "words",
    [
        ["core"],
        ["core", "nowhere"],
        ["core", "{ft}"],
        ["compare", "{pruned}", "nowhere"],
        ["evaluate", "{pruned}", "--max-rows", "0"],
        ["evaluate", "{ft}"],
        ["ablate", "{pruned}", "--device", "tpu"],
        ["ablate", "nowhere"],
        ["attention", "{ft}"],
        ["export", "nowhere", "--seed", "1", "--out", "somewhere"],
        ["prune"],
        ["prune", "nowhere"],
        ["prune", "{ft}", "--sparsity", "2"],
        ["finetune", "--steps", "0"],
        ["finetune", "--no-such-option"],
        ["demo", "--seeds", "x"],
        ["sweep"],
        ["sweep", "nowhere", "--status"],
        ["sweep-sparsity", "nowhere"],
        ["sweep-sparsity", "{ft}", "--drop", "3"],
        ["effective-size", "nowhere"],
        ["emergence", "{pruned}"],
        ["show", "nowhere"],
        ["modular", "corrupted", "--p", "4"],
        ["modular", "corrupted", "--xi", "3"],
        ["modular", "polynomial", "a +"],
        ["modular", "polynomial", "a*b", "--p", "4"],
        ["modular", "icl", "--p", "4"],
        ["modular", "icl", "--tasks", "7"],
        ["relations", "probe", "nowhere.tsv"],
        ["relations", "finetune"],
        ["relations", "study"],
    ],
    ids=" ".join,
)
def test_a_refusal_loads_no_library_of_models(refusals: dict[str, Outcome], words: list[str]) -> None:
    code, loaded, said = refusals[" ".join(words)]
    assert (code, loaded) == (2, []), said


@pytest.fixture(scope="module")
def refusals(first_line: Path, request: pytest.FixtureRequest) -> dict[str, Outcome]:
    """Every refusal above in one interpreter: what one loads, all after it have loaded, so the first names the culprit."""
    marks = test_a_refusal_loads_no_library_of_models.pytestmark  # type: ignore[attr-defined]
    cases: list[list[str]] = marks[0].args[1]
    places = {"{ft}": str(first_line / "ft"), "{pruned}": str(first_line / "pruned")}
    words = [[places.get(word, word) for word in case] for case in cases]
    return dict(zip(map(" ".join, cases), loaded_by(words, COMPUTING), strict=True))


def test_show_loads_neither_torch_nor_the_libraries_of_models(line: Path) -> None:
    for words in (["evaluate", "--max-rows", "4"], ["core"]):
        assert main([words[0], str(line / "pruned"), *words[1:]]) == 0
    found = loaded_by([["show", str(line / "ft")], ["show", str(line / "pruned")]], COMPUTING)
    assert [(code, loaded) for code, loaded, _ in found] == [(0, []), (0, [])], found
    assert "accuracy" in found[0][2]
    assert "heads are kept by at least" in found[1][2]


def test_what_reads_measured_tables_loads_no_library_of_models(line: Path) -> None:
    first, second = str(line / "pruned"), str(line / "second")
    assert main(["prune", str(line / "ft"), *PRUNE, "--seeds", "5..6", "--out", second]) == 0
    for run in (first, second):
        assert main(["evaluate", run, "--max-rows", "4"]) == 0
    commands = [["core", first], ["compare", first, second], ["report", first]]
    for code, loaded, said in loaded_by(commands, MODELS):
        assert (code, loaded) == (0, []), said


def _packages() -> list[str]:
    """Those whose names are imported on first use, as their stubs list them."""
    root = Path(hc_lens.__file__).parent
    return sorted(".".join(["hc_lens", *stub.parent.relative_to(root).parts]) for stub in root.rglob("__init__.pyi"))


def _homes(package: str) -> dict[str, str]:
    """The module that a stub takes each public name from."""
    stub = Path(str(importlib.import_module(package).__file__)).with_suffix(".pyi")
    return _named(package, stub)


def _named(package: str, stub: Path) -> dict[str, str]:
    """A star stands for all that another stub of the package names."""
    homes: dict[str, str] = {}
    for node in ast.parse(stub.read_text()).body:
        if not isinstance(node, ast.ImportFrom):
            continue
        place = stub.parent / str(node.module)
        if node.names[0].name == "*" and place.is_dir():
            homes |= _named(f"{package}.{node.module}", place / "__init__.pyi")
        elif node.names[0].name == "*":
            homes |= _named(package, place.with_suffix(".pyi"))
        else:
            homes |= {alias.name: f"{package}.{node.module}" for alias in node.names}
    return homes


@pytest.mark.parametrize("package", _packages())
def test_every_public_name_is_the_object_of_its_home_module(package: str) -> None:
    module, homes = importlib.import_module(package), _homes(package)
    assert sorted(homes) == sorted(module.__all__)
    for name, home in homes.items():
        assert getattr(module, name) is getattr(importlib.import_module(home), name)
    assert set(homes) <= set(dir(module))


@pytest.mark.parametrize("package", _packages())
def test_a_function_is_not_hidden_by_the_module_that_it_is_in(package: str) -> None:
    module, homes = importlib.import_module(package), _homes(package)
    submodules = {found.name for found in pkgutil.iter_modules(module.__path__)}
    for name in submodules & set(homes):
        importlib.import_module(f"{package}.{name}")
        assert getattr(module, name) is getattr(sys.modules[homes[name]], name)


def test_no_public_name_of_the_package_is_also_a_submodule() -> None:
    submodules = {module.name for module in pkgutil.iter_modules(hc_lens.__path__)}
    assert not submodules & set(hc_lens.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="load_modle"):
        _ = hc_lens.load_modle  # type: ignore[attr-defined]
