"""`hc-lens modular`: networks that learn arithmetic modulo a prime; the second word says which question is asked."""

import difflib
import importlib
from collections.abc import Sequence
from types import MappingProxyType

from hc_lens.cli import Command

QUESTIONS = MappingProxyType(
    {
        "corrupted": Command("modular_corrupted", "train on partly corrupted labels; which neurons memorise, which generalize"),
        "polynomial": Command("modular_polynomial", "a network of known weights for any polynomial; can it be learned?"),
        "icl": Command("modular_icl", "transformers that learn modular arithmetic in context"),
    }
)


def main(words: Sequence[str]) -> None:
    """Ask one question, or print the overview where none, or `--help`, is given."""
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return
    name, *rest = words
    if name not in QUESTIONS:
        near = difflib.get_close_matches(name, QUESTIONS, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ";"
        raise ValueError(f"no question {name!r}{meant} There are {', '.join(QUESTIONS)} (see hc-lens modular --help)")
    importlib.import_module(f"hc_lens.cli.{QUESTIONS[name].module}").main(rest)


def overview() -> str:
    """The text of `hc-lens modular --help`."""
    width = max(map(len, QUESTIONS))
    lines = [f"  {name:<{width}}  {question.help}" for name, question in QUESTIONS.items()]
    return "\n".join(
        [
            "usage: hc-lens modular QUESTION [OPTIONS]      hc-lens modular QUESTION --help",
            "",
            "Networks that learn arithmetic modulo a prime.",
            "",
            *lines,
            "",
            "For instance:",
            '  hc-lens modular polynomial "2*a**4*b + a**2*b**2 + 3*a*b**3" --p 97',
        ]
    )
