"""The README's commands and code are what the package really takes."""

import re
import shlex
import shutil
from pathlib import Path

import pytest

from hc_lens.cli import main

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """The fenced code blocks of one language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, flags=re.DOTALL | re.MULTILINE)


def test_every_option_of_the_commands_shown_exists(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [shlex.split(line, comments=True) for block in blocks("sh") for line in block.splitlines()]
    commands = [words[1:] for words in lines if words and words[0].endswith("hc-lens")]
    assert {words[0] for words in commands} >= {"demo", "finetune", "prune", "evaluate", "core", "ablate", "report", "show"}
    for name, *words in commands:
        question = words[:1] if name in ("modular", "relations") else []
        assert main([name, *question, "--help"]) == 0
        shown = capsys.readouterr().out
        assert not [word for word in words if word.startswith("--") and word not in shown]


@pytest.mark.slow
@pytest.mark.parametrize("code", blocks("python"))
def test_the_code_runs_as_it_stands(code: str, working_directory: Path, line: Path) -> None:
    if 'hc.open("runs/half")' in code:  # which the command line made
        shutil.copytree(line, working_directory / "runs")
        (working_directory / "runs" / "pruned").rename(working_directory / "runs" / "half")
        for words in (["evaluate", "runs/half", "--max-rows", "4"], ["core", "runs/half", "--k", "3"]):
            assert main(words) == 0
    exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
