"""What a function takes can be said in one breath, and what it does is seen on one screen."""

import ast
from collections.abc import Iterator
from pathlib import Path

import hc_lens

MOST_ARGUMENTS = 7
MOST_LINES = 50
VALUES = ("Sample", "Config", "Choice")
"""Frozen values that regroup what belongs together; they do not count."""

_Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(tree: ast.Module) -> Iterator[_Function]:
    return (node for node in ast.walk(tree) if isinstance(node, _Function))


def is_value(parameter: ast.arg) -> bool:
    """Whether it is annotated with one of the frozen values, or that or None."""
    said = "" if parameter.annotation is None else ast.unparse(parameter.annotation)
    return said.removesuffix(" | None").endswith(VALUES)


def counted(function: _Function) -> list[str]:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return [each.arg for each in every if each.arg not in ("self", "cls") and not is_value(each)]


def lines(function: _Function) -> int:
    """Of the body, without its docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


def package() -> Iterator[tuple[str, _Function]]:
    root = Path(hc_lens.__file__).parent
    for file in sorted(root.rglob("*.py")):
        for function in functions(ast.parse(file.read_text())):
            yield f"{file.relative_to(root)}:{function.lineno} {function.name}", function


def test_no_public_function_takes_more_than_seven_arguments() -> None:
    public = [(place, each) for place, each in package() if not each.name.startswith("_")]
    assert len(public) > 1_000
    assert not {place: counted(function) for place, function in public if len(counted(function)) > MOST_ARGUMENTS}


def test_no_function_is_longer_than_a_screen() -> None:
    assert not {place: lines(function) for place, function in package() if lines(function) > MOST_LINES}


def test_values_and_self_do_not_count_nor_does_a_docstring() -> None:
    text = '''
class C:
    def m(self, a, b: "int", /, sample: Sample = ALL, *, config: PruneConfig | None = None, rows: SampleChoice, n: Sampler = 1):
        """One.

        Two.
        """
        return (
            a
        )
'''
    (method,) = functions(ast.parse(text))
    assert counted(method) == ["a", "b", "n"]
    assert lines(method) == 3
