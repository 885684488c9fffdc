"""Runs one subcommand and turns what goes wrong into one sentence and an exit code."""

import importlib
import os
import sys
import traceback
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager

from rich.console import Console

from hc_lens.signals import ended_by_sigterm

BAD_INPUT = (ValueError, FileNotFoundError, NotADirectoryError, IsADirectoryError, FileExistsError, UnicodeError)
"""What the library raises when the caller gave it something wrong; it all names the value and what is allowed."""

FAILED = (RuntimeError, OSError, ArithmeticError, MemoryError)
"""What the library raises when work that was asked for correctly could not be finished."""


def run(name: str, module: str, words: Sequence[str]) -> int:
    """Run `hc-lens NAME WORDS...` and return the exit code; `--debug` among the words shows the traceback of an error."""
    debug = "--debug" in words
    rest = [word for word in words if word != "--debug"]
    try:
        with _quiet(debug), ended_by_sigterm():
            importlib.import_module(f"hc_lens.cli.{module}").main(rest)
    except SystemExit as stop:  # tyro has already explained what it did not understand, or printed --help
        return stop.code if isinstance(stop.code, int) else 2 if stop.code else 0
    except KeyboardInterrupt:
        print(
            f"hc-lens {name}: interrupted; what was finished is kept, and the same command goes on from there", file=sys.stderr
        )
        return 130
    except BrokenPipeError:  # the reader of a pipe (`| head`) is gone: nobody to tell
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        if debug:
            traceback.print_exc()
        return _explain(name, error, debug=debug)
    return 0


def _explain(name: str, error: Exception, *, debug: bool) -> int:
    """Say in one line what went wrong and return the exit code that goes with it."""
    text = str(error)
    bad_input = isinstance(error, BAD_INPUT) or _is_missing_extra(error)
    if bad_input or isinstance(error, FAILED):
        sentence = text or type(error).__name__
    else:
        hint = "" if debug else "; run it again with --debug for the traceback"
        sentence = f"internal error, {type(error).__name__}: {text}{hint}"
    Console(stderr=True, soft_wrap=True).print(f"hc-lens {name}: {sentence}", style="red", markup=False, highlight=False)
    return 2 if bad_input else 1


def _is_missing_extra(error: Exception) -> bool:
    """Whether the library itself says which extra to install; Python's own ModuleNotFoundError names the module it lacks."""
    return isinstance(error, ModuleNotFoundError) and error.name is None


@contextmanager
def _quiet(debug: bool) -> Generator[None]:
    """Keep TransformerLens's deprecation notices out of the output, and print other warnings without their source line."""
    with warnings.catch_warnings():
        if not debug:
            warnings.filterwarnings("ignore", category=DeprecationWarning)
            warnings.filterwarnings("ignore", category=FutureWarning)
        original = warnings.formatwarning
        warnings.formatwarning = lambda message, *_args, **_kwargs: f"warning: {message}\n"
        try:
            yield
        finally:
            warnings.formatwarning = original
