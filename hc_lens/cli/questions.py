"""Commands of two words, such as `hc-lens modular icl`: the first names a subject, the second the question asked about it."""

import difflib
import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hc_lens.cli import Command


@dataclass(frozen=True)
class Questions:
    """What can be asked about one subject.

    Attributes:
        subject: the first word.
        about: the subject, in a sentence.
        commands: where each question is answered, by second word.
        example: a call, after `hc-lens`.
    """

    subject: str
    about: str
    commands: Mapping[str, Command]
    example: str

    def ask(self, words: Sequence[str]) -> None:
        """Ask one question, or print the overview where none, or `--help`, is given.

        Raises:
            ValueError: for a word that is no question, naming the nearest.
        """
        if not words or words[0] in ("-h", "--help"):
            print(self.overview())
            return
        name, *rest = words
        if name not in self.commands:
            near = difflib.get_close_matches(name, self.commands, n=1)
            meant = f"; did you mean {near[0]!r}?" if near else ";"
            known = ", ".join(self.commands)
            raise ValueError(f"no question {name!r}{meant} There are {known} (see hc-lens {self.subject} --help)")
        importlib.import_module(f"hc_lens.cli.{self.commands[name].module}").main(rest)

    def overview(self) -> str:
        """The text of `--help` after the subject alone."""
        width = max(map(len, self.commands))
        return "\n".join(
            [
                f"usage: hc-lens {self.subject} QUESTION [OPTIONS]      hc-lens {self.subject} QUESTION --help",
                "",
                self.about,
                "",
                *(f"  {name:<{width}}  {question.help}" for name, question in self.commands.items()),
                "",
                "For instance:",
                f"  hc-lens {self.example}",
            ]
        )
